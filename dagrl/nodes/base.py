"""The two shapes of a node, play and learn, and what a play node is given when its turn comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from dagrl.errors import UserCodeError
from dagrl.experience import Experience
from dagrl.hooks import Inputs
from dagrl.nodes.usage import Usage
from dagrl.types import ExtraRollout, Metrics, PromptKey, SamplingParams, Trajectory, Turn
from dagrl.workflow.kinds import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How an agent is to speak where a rollout is varied."""

    text: str | None = None
    """What it gives instead of an answer of its own."""
    is_initial: bool = False
    """It speaks with its initial weights."""
    draw: int = 0
    """Which draw of the turn; 0 is the first."""
    known: Mapping[int, Turn] = field(default_factory=dict)
    """By branch: what it said in the sample, which stands where its prompt is the same again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """What an agent knows when it is to speak."""

    trajectory: Trajectory
    """A copy: the rounds before, and of this round what the node depends on."""
    round: int
    context_ids: tuple[int, ...]
    """In the tokenizer of the node's agent group."""
    obs: str | None
    """What the environment said to it; None where it said nothing or where it already stands in the context."""
    inputs: Inputs
    params: SamplingParams
    seed: int | None
    """Replaces the run's seed for its draws."""
    part: Part = Part()
    usage: Usage = field(default_factory=Usage)
    """Of the conversation; the node counts into it."""


class PlayNode(Protocol):
    """Acts once per round in one trajectory."""

    node: Node

    async def act(self, cue: Cue) -> tuple[Turn, ...]:
        """One turn for each of its branches. Raises `ContextFull` and `TrajectoryFault`."""
        ...


class LearnNode(Protocol):
    """Works once per step on the batch of finished trajectories."""

    node: Node

    def run(self, experience: Experience, step: int) -> Metrics: ...


class ExtraPlay(Protocol):
    """More play in the middle of a step, with the weights and the REWARD node of the step."""

    async def again(self, wanted: Sequence[ExtraRollout]) -> list[Trajectory | None]:
        """Each of them played and scored, in the same order; None where it failed or has no reward.

        Raises `FaultBudgetError` where too many fail.
        """
        ...

    async def more(self, num_prompts: int) -> list[Trajectory] | None:
        """Samples of so many further prompts, or more where the workflow says so, played and scored; None where all of
        the data is in this step already. Raises as `again` does."""
        ...

    def leave_out(self, trajectories: Iterable[Trajectory], reason: str) -> None:
        """Samples that the node took out of the step, for the books."""
        ...

    def carry_over(self, trajectories: Iterable[Trajectory]) -> None:
        """Samples that the node took out of the step, and that the next one begins with."""
        ...


@runtime_checkable
class PlayingNode(Protocol):
    """A learn node that needs more play before it can do its work."""

    node: Node

    async def run_playing(self, experience: Experience, step: int, play: ExtraPlay) -> Metrics: ...


@runtime_checkable
class Stateful(Protocol):
    """A node that changes during a run, and so is part of a checkpoint."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


AnyLearnNode = LearnNode | PlayingNode


def stateful(nodes: Mapping[str, AnyLearnNode]) -> dict[str, Stateful]:
    """Those of `nodes` that have a state."""
    return {name: node for name, node in nodes.items() if isinstance(node, Stateful)}


def by_prompt(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """The samples of each prompt, in the order of the batch."""
    found: dict[PromptKey, list[Trajectory]] = {}
    for one in trajectories:
        found.setdefault(one.prompt_key, []).append(one)
    return list(found.values())


class ContextFull(Exception):
    """The conversation leaves no room for a response."""


class TrajectoryFault(Exception):
    """User code broke one trajectory; `kind` is for the books: `env_timeout`, `pre_process_raised`, …"""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turns a `UserCodeError` into the fault of one trajectory, counted as `<what>_<kind>`."""
    try:
        yield
    except UserCodeError as error:
        raise TrajectoryFault(f"{what}_{error.kind}", str(error)) from error
