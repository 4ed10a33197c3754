"""The nouns of a run: Task, SamplingParams, Completion, Turn, Trajectory, TrajectoryGroup. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LARGEST_REWARD = 3.4028234663852886e38
"""Rewards are kept as float32: a larger one would become infinite."""
SOLVED = 1.0
"""A trajectory counts as solved when its team's reward reaches this."""
_FIRST_HANDLE = 2**30
"""Above every vocabulary."""


class FinishReason(StrEnum):
    """Why one generation ended."""

    STOP = "stop"
    """The model gave an end token or a stop string."""
    LENGTH = "length"
    """`max_tokens` or the context budget ran out."""


class StopReason(StrEnum):
    """Why a trajectory ended."""

    TERMINATED = "terminated"
    """The environment said done, or there is no environment and the one round was played."""
    MAX_ROUNDS = "max_rounds"
    """Truncated: `rollout.max_rounds` were played and the environment had not said done."""
    MAX_CONTEXT = "max_context"
    """Truncated: an agent's conversation would not fit into `rollout.max_context_len`."""
    ENV_TRUNCATED = "env_truncated"
    """Truncated: the environment said so."""

    @property
    def is_truncated(self) -> bool:
        return self is not StopReason.TERMINATED


def handle_of(digest: str) -> int:
    """The id that stands for an image in transcripts: 30 bits of its hash, above every vocabulary."""
    return _FIRST_HANDLE + int(digest[:8], 16) % _FIRST_HANDLE


def is_image_id(token_id: int) -> bool:
    """Whether an id of a transcript, as hooks get it, stands for an image."""
    return token_id >= _FIRST_HANDLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture that an agent is shown; two are the same if their bytes are."""

    digest: str
    """SHA-256 of `data`, in hex."""
    width: int = field(compare=False)
    height: int = field(compare=False)
    data: bytes = field(repr=False, compare=False)
    """PNG or JPEG."""

    @property
    def handle(self) -> int:
        return handle_of(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of a data set."""

    task_id: str
    """Unique within the data set and the same in every run: `<split>:<row>` unless the row names one."""
    prompt: str | Sequence[Mapping[str, Any]]
    """A text, or chat messages with `role` and `content`; images stand in it as marks (`images.mark`)."""
    images: tuple[Image, ...] = ()
    """That the prompt shows."""
    ground_truth: Any = None
    data_source: str = "unknown"
    extra_info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one response is sampled."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all."""
    min_p: float = 0.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    """Texts that end the response; the text found is kept."""
    stop_token_ids: tuple[int, ...] = ()
    """Besides the model's own end tokens; the token found is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One response asked of a generator."""

    agent_group: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    """64 bits; the draw at position t of the response depends on (seed, t) alone."""
    images: tuple[Image, ...] = ()
    """That the prompt shows, in the order of their tokens."""
    is_initial: bool = False
    """Asks the weights that the agent began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a generator answers."""

    token_ids: tuple[int, ...]
    """With the end token, if the model gave one."""
    logprobs: tuple[float, ...] | None
    """Of each token under softmax(logits / temperature), before top-p and the like; temperature 1 where greedy. None
    where a server gave the answer, which is never trained on."""
    finish_reason: FinishReason
    policy_version: int
    """Number of updates the sampling weights had seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What an engine was given and gave for one turn: kept apart, to be compared with what is about to be trained."""

    agent_group: int
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    images: tuple[Image, ...] = ()


@dataclass(slots=True, kw_only=True)
class Turn:
    """One agent speaks once."""

    node_id: str
    agent_group: int
    round: int
    """From 0."""
    branch: int = 0
    """Which of a node's `num_parallel` parallel tries, from 0."""
    prompt_ids: tuple[int, ...]
    images: tuple[Image, ...] = ()
    """That the prompt shows, in the order of their tokens."""
    response_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...] | None
    """None where a server gave the answer."""
    temperature: float
    """The temperature that `rollout_logprobs` were taken at (1 where greedy)."""
    finish_reason: FinishReason
    policy_version: int
    response_text: str
    transcript_ids: tuple[int, ...] = ()
    """What `post_process` made: handed to the next agent and the next round. One id stands for an image, its handle."""
    reward: float = 0.0
    """The agent's reward at its last token; filled by the environment or a REWARD node."""
    reward_parts: dict[str, float] = field(default_factory=dict)
    """Further numbers a reward function gave, for the metrics."""
    seconds: float = 0.0
    sampled: Sampled | None = field(default=None, repr=False, compare=False)
    """As the engine had it; None where no engine spoke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an environment answered to one step."""

    round: int
    node_id: str
    texts: Mapping[int, str]
    """By agent group; empty where it said nothing."""
    rewards: Mapping[int, float]
    """By agent group; a team's reward stands under every group that acts on the environment."""
    is_team_reward: bool
    terminated: bool
    truncated: bool
    heard: Mapping[str, str] = field(default_factory=dict)
    """By rollout node: what it gets before it speaks next. Differs from `texts` where a group has several nodes."""
    seconds: float = 0.0


PromptKey = tuple[int, str]
"""(step that asked for it, task id)."""


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """All turns of all agents on one sample of a task, in time order."""

    task: Task
    sample: int
    """Which of the `rollout.n` samples of the task, from 0."""
    step: int
    turns: list[Turn] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    stop_reason: StopReason | None = None
    """None while it is being played."""
    reward: float = 0.0
    """The team's reward of the whole trajectory, for metrics and selection; NaN where none could be found."""
    is_scored: bool = False
    """A REWARD node has looked at it, and does not a second time."""
    unscored: str | None = None
    """Why no reward could be found, in a word (`undecided`, `raised`, `timeout`, …); None where there is one."""
    num_rounds: int = 0
    seconds: float = 0.0
    images: dict[int, Image] = field(default_factory=dict)
    """By handle: all that was shown so far, by the task or an environment."""

    @property
    def prompt_key(self) -> PromptKey:
        """Its samples are compared with each other; a task that a later step asks again is another prompt."""
        return self.step, self.task.task_id

    @property
    def truncated(self) -> bool:
        return self.stop_reason is not None and self.stop_reason.is_truncated

    def of_group(self, agent_group: int) -> list[Turn]:
        """The turns of one agent, in time order."""
        return [turn for turn in self.turns if turn.agent_group == agent_group]

    def of_round(self, round: int) -> list[Turn]:
        """The turns of one round, in time order."""
        return [turn for turn in self.turns if turn.round == round]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How a rollout is played otherwise than the sample that it goes back to. Where it says nothing the same draws are
    made, so an agent that is told the same says the same.

    >>> Variation(silent=("critic",)).name
    'without critic'
    """

    silent: tuple[str, ...] = ()
    """Rollout nodes whose text is left out; what depends on them gets the context that they would have got."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Rollout node to the text that it gives instead of its own."""
    initial: tuple[str, ...] = ()
    """Rollout nodes that speak with their initial weights."""
    redrawn: tuple[str, int, int] | None = None
    """(rollout node, round, number from 1): this one turn is drawn anew."""
    is_greedy: bool = False
    """All agents take the likeliest token."""

    @property
    def name(self) -> str:
        """For messages and files; empty where nothing is otherwise."""
        told = [f"without {node}" for node in self.silent]
        told += [f"said for {node}" for node in self.said]
        told += [f"initial {node}" for node in self.initial]
        if self.redrawn is not None:
            node, turn_round, number = self.redrawn
            told.append(f"{node} of round {turn_round} drawn anew {number}")
        return ", ".join([*told, "greedy"] if self.is_greedy else told)


AS_SAMPLED = Variation()
"""Nothing is otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraRollout:
    """A rollout besides the samples that are trained on: asked for by a learn node, scored, and thrown away."""

    sample: Trajectory
    """What it goes back to: its task, step and number, and the turns that need not be given again."""
    variation: Variation


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrajectory:
    """A trajectory that user code broke: what a failure file holds."""

    task: Task
    sample: int
    step: int
    kind: str
    """For the books: `<what>_<kind>`, such as `env_timeout` or `pre_process_raised`."""
    message: str
    turns: tuple[Turn, ...] = ()
    """Played before the fault."""
    sampling: str = "train"
    """Whether it was played to learn from (`train`) or held out (`val`)."""
    held_out: str = ""
    """Name of its held-out set, where that has one."""
    variation: Variation = AS_SAMPLED
    """How it was played otherwise than its sample."""

    @property
    def shown_step(self) -> int:
        """As users see it: training steps are numbered from 1, an evaluation has the number of steps before it."""
        return self.step + (self.sampling == "train")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryGroup:
    """The samples of one task."""

    task: Task
    trajectories: tuple[Trajectory, ...]


Metrics = dict[str, float]
"""Names with slashes (`agent_reasoner/entropy`) to numbers."""
