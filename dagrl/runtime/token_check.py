"""Token-in, token-out: at every step what is about to be trained is compared with what the engine sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.errors import BreachError
from dagrl.experience import Experience, cumulative
from dagrl.types import Image, Sampled, Trajectory
from dagrl.workflow.kinds import Column, Node, NodeKind

Decode = Callable[[int, Sequence[int]], str]
"""(agent group, token ids) -> text."""

AROUND = 6
"""Tokens of text that are shown before and after a span."""
SHOWN = 8
"""Ids and log-probs of a span that are shown."""
QUIET_STEPS = 50
"""Steps for which the same agent's drift is not told again."""
MOST = 0.5
"""Share of an agent's tokens apart above which its weights are suspected, not single places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How far the sampler's and the trainer's log-probs of the same token may be apart, in nats."""

    token: float
    """For any one token."""
    mean: float
    """For the mean over one agent's tokens of a step."""


BOUNDS: Mapping[str, Bound] = {
    "float32": Bound(token=1e-2, mean=1e-3),
    "bfloat16": Bound(token=1.0, mean=0.05),
}
"""By `model.dtype`. Batches of another shape round differently: by some 1e-6 in float32, some 1e-2 in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """What the engine was given and gave, laid out as `collate` lays it out."""

    agent_group: Tensor
    prompt_lens: Tensor
    response_lens: Tensor
    input_ids: Tensor
    logprobs: Tensor
    images: tuple[tuple[Image, ...], ...]


class TokenCheck:
    """Compares the stream of one step, before every node that works on it, with what was sampled.

    Other ids or other masks raise `BreachError`. Log-probs that drift apart are told, or raised where `stops`.
    """

    def __init__(self, agents: Sequence[str], dtypes: Sequence[str], decode: Decode, *, stops: bool) -> None:
        """`agents` and `dtypes` by agent group."""
        self._agents = tuple(agents)
        self._bounds = tuple(BOUNDS[dtype] for dtype in dtypes)
        self._decode = decode
        self._stops = stops
        self._told: dict[int, int] = {}
        self._sampled: _Stream | None = None

    def begin(self, experience: Experience, step: int) -> None:
        """Takes down what the trajectories of this step were sampled as; of turns from a file nothing is known."""
        turns = [turn for trajectory in experience.trajectories for turn in trajectory.turns]
        kept = [turn.sampled for turn in turns if turn.sampled is not None]
        self._sampled = _stream(kept) if len(kept) == len(turns) else None
        self.ids(experience, step)

    def ids(self, experience: Experience, step: int) -> None:
        """Raises BreachError where ids or masks are not those sampled."""
        sampled = self._sampled
        if sampled is None:
            return
        sequences, table = experience.sequences, experience.turns
        for name, expected, found in (
            ("agent", sampled.agent_group, table.agent_group),
            ("prompt length", sampled.prompt_lens, sequences.prompt_lens),
            ("response length", sampled.response_lens, sequences.response_lens),
            ("response length in the table", sampled.response_lens, table.response_len),
            ("first id", cumulative(sampled.prompt_lens + sampled.response_lens), sequences.offsets),
            ("number of ids", torch.tensor([len(sampled.input_ids)]), torch.tensor([len(sequences.input_ids)])),
        ):
            if not torch.equal(expected, found):
                raise self._mask_breach(experience, step, name, expected, found)
        if not torch.equal(sampled.input_ids, sequences.input_ids):
            raise self._id_breach(experience, step, sampled)
        if (experience.sequences.images or ((),) * len(sampled.images)) != sampled.images:
            raise self._image_breach(experience, step, sampled)
        column = experience.columns[Column.ROLLOUT_LOGPROBS]
        if not torch.equal(sampled.logprobs, column):
            raise self._logprob_breach(experience, step, sampled.logprobs, column)

    def drift(self, experience: Experience, node: Node, step: int) -> str | None:
        """After an OLD_LOGPROBS node: what to tell of log-probs that are apart; None where all agree.

        Raises BreachError instead where the run is to stop.
        """
        turns = _of_step(experience, experience.turns_of(node.groups), step)
        if node.kind is not NodeKind.OLD_LOGPROBS or not len(turns):
            return None
        bound = self._bounds[node.agent_group]
        sampler, trainer = experience.read(Column.ROLLOUT_LOGPROBS, turns), experience.read(Column.OLD_LOGPROBS, turns)
        gap = (trainer - sampler).abs()
        is_apart = ~(gap <= bound.token)  # NaN is apart too
        if not bool(is_apart.any()) and float(gap.mean()) <= bound.mean:
            return None
        text, cause = self._drift_text(experience, turns, step, bound)
        if self._stops:
            raise BreachError(text, how=f"{cause}; config.trainer.on_logprob_drift: warn goes on")
        if step - self._told.get(node.agent_group, -QUIET_STEPS) < QUIET_STEPS:
            return None
        self._told[node.agent_group] = step
        return f"logprob_drift: {text}; {cause}"

    def _drift_text(self, experience: Experience, turns: Tensor, step: int, bound: Bound) -> tuple[str, str]:
        """The span around the token that is furthest apart, and the likely cause."""
        sampler, trainer = experience.read(Column.ROLLOUT_LOGPROBS, turns), experience.read(Column.OLD_LOGPROBS, turns)
        gap = torch.nan_to_num((trainer - sampler).abs(), nan=torch.inf)
        lens = experience.turns.response_len[turns]
        worst = int(gap.argmax())
        which = int(torch.repeat_interleave(torch.arange(len(turns)), lens)[worst])
        begin = int(lens[:which].sum())
        own = slice(begin, begin + int(lens[which]))
        first, last = _span(gap[own] > min(bound.token, float(gap[worst]) / 2), worst - begin)
        shown = slice(begin + first, begin + min(last + 1, first + SHOWN))
        share = float((gap > bound.token).double().mean())
        text = (
            f"sampler and trainer disagree at {self._span_text(experience, step, int(turns[which]), first, last)}, "
            f"log-probs sampled {_numbers(sampler[shown])}, trained {_numbers(trainer[shown])} "
            f"(bound {bound.token:g}; {share:.1%} of the agent's tokens are beyond it, mean {float(gap.mean()):.3g})"
        )
        return text, _drift_cause(share, bound)

    def _mask_breach(
        self, experience: Experience, step: int, name: str, expected: Tensor, found: Tensor
    ) -> BreachError:
        first = 0 if expected.shape != found.shape else int((expected != found).nonzero()[0])
        turn = min(first, len(experience.turns) - 1)
        told = (
            f"{len(expected)} entries of {name} were sampled, the batch has {len(found)}"
            if expected.shape != found.shape
            else f"{name} {int(expected[first])} was sampled, the batch says {int(found[first])}"
        )
        assert self._sampled is not None
        last = max(int(self._sampled.response_lens[turn]) - 1, 0)
        return BreachError(
            f"the mask of what is trained is not that of what was sampled: {told}, at "
            f"{self._span_text(experience, step, turn, 0, last)}",
            how="likely cause: a COMPUTE or REWARD function changed turns or lengths of the batch",
        )

    def _id_breach(self, experience: Experience, step: int, sampled: _Stream) -> BreachError:
        differs = sampled.input_ids != experience.sequences.input_ids
        offsets = cumulative(sampled.prompt_lens + sampled.response_lens)
        turn = int((offsets[1:] <= int(differs.nonzero()[0])).sum())
        begin, prompt = int(offsets[turn]), int(sampled.prompt_lens[turn])
        own = differs[begin : int(offsets[turn + 1])]
        first, last = _span(own, int(own.nonzero()[0]))
        shown = slice(begin + first, begin + min(last + 1, first + SHOWN))
        where = self._span_text(experience, step, turn, first - prompt, last - prompt)
        return BreachError(
            f"the ids that would be trained are not those sampled, at {where}: sampled "
            f"{sampled.input_ids[shown].tolist()}, in the batch {experience.sequences.input_ids[shown].tolist()}",
            how="likely cause: a hook, REWARD or COMPUTE function changed ids after they were generated; texts may be "
            "rewritten in post_process, which bears on what comes next and never on what is trained",
        )

    def _image_breach(self, experience: Experience, step: int, sampled: _Stream) -> BreachError:
        found = experience.sequences.images or ((),) * len(sampled.images)
        turn = next(n for n, (one, other) in enumerate(zip(found, sampled.images)) if one != other)
        where = self._span_text(experience, step, turn, 0, 0)
        return BreachError(
            f"the images that would be trained on are not those shown, at {where}",
            how="likely cause: a hook, REWARD or COMPUTE function changed the images of a turn",
        )

    def _logprob_breach(self, experience: Experience, step: int, expected: Tensor, found: Tensor) -> BreachError:
        token = 0 if expected.shape != found.shape else int((expected != found).nonzero()[0])
        offsets = experience.sequences.response_offsets
        turn = int((offsets[1:] <= token).sum())
        first = token - int(offsets[turn])
        return BreachError(
            f"the sampler's log-probs in the batch are not those it gave, at "
            f"{self._span_text(experience, step, turn, first, first)}: "
            f"sampled {_numbers(expected[token : token + 1])}, in the batch {_numbers(found[token : token + 1])}",
            how="likely cause: a COMPUTE function wrote to rollout_logprobs, or a hook changed a turn",
        )

    def _span_text(self, experience: Experience, step: int, turn: int, first: int, last: int) -> str:
        """Where response tokens `first` to `last` of turn number `turn` stand, and what they say; negative ones are of
        the prompt, counted back from its end."""
        owner, place = _turn_at(experience, turn)
        spoken = owner.turns[place]
        ids, start = spoken.prompt_ids + spoken.response_ids, len(spoken.prompt_ids)
        if spoken.sampled is not None:
            ids, start = spoken.sampled.prompt_ids + spoken.sampled.response_ids, len(spoken.sampled.prompt_ids)
        low, high = start + first, start + last + 1
        parts = ids[max(low - AROUND, 0) : low], ids[low:high], ids[high : high + AROUND]
        before, inside, after = (self._decode(spoken.agent_group, part) if part else "" for part in parts)
        number = int(experience.turns.trajectory[turn])
        return (
            f"step {step + 1}, trajectory {number} (task {owner.task.task_id}, sample {owner.sample}), turn {place} of "
            f"agent '{self._agents[spoken.agent_group]}' (node '{spoken.node_id}', round {spoken.round}), "
            f"{_tokens(first, last)} …{before!r}[{inside!r}]{after!r}…"
        )


def _of_step(experience: Experience, turns: Tensor, step: int) -> Tensor:
    """Those of `turns` that this step's weights gave; the others were carried over from an earlier one."""
    is_own = torch.tensor([one.step == step for one in experience.trajectories], dtype=torch.bool)
    return turns[is_own[experience.turns.trajectory[turns]]]


def _stream(sampled: Sequence[Sampled]) -> _Stream:
    return _Stream(
        agent_group=torch.tensor([one.agent_group for one in sampled], dtype=torch.int64),
        prompt_lens=torch.tensor([len(one.prompt_ids) for one in sampled], dtype=torch.int64),
        response_lens=torch.tensor([len(one.response_ids) for one in sampled], dtype=torch.int64),
        input_ids=torch.tensor(
            [token for one in sampled for token in (*one.prompt_ids, *one.response_ids)], dtype=torch.int64
        ),
        logprobs=torch.tensor([value for one in sampled for value in _logprobs(one)], dtype=torch.float32),
        images=tuple(one.images for one in sampled),
    )


def _logprobs(sampled: Sampled) -> Sequence[float]:
    """Zeros, as the column has them, where the engine told none."""
    return (0.0,) * len(sampled.response_ids) if sampled.logprobs is None else sampled.logprobs


def _turn_at(experience: Experience, number: int) -> tuple[Trajectory, int]:
    """The trajectory of turn `number` of the step, and the turn's place in it."""
    for trajectory in experience.trajectories:
        if number < len(trajectory.turns):
            return trajectory, number
        number -= len(trajectory.turns)
    raise AssertionError("the step has fewer turns")


def _span(marked: Tensor, inside: int) -> tuple[int, int]:
    """First and last of the marked places around `inside` that lie side by side."""
    first = last = inside
    while first > 0 and bool(marked[first - 1]):
        first -= 1
    while last + 1 < len(marked) and bool(marked[last + 1]):
        last += 1
    return first, last


def _tokens(first: int, last: int) -> str:
    what = "response tokens" if first >= 0 else "prompt tokens (counted back from its end)"
    return f"{what} {first}" if first == last else f"{what} {first} to {last}"


def _numbers(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values.tolist()) + "]"


def _drift_cause(share: float, bound: Bound) -> str:
    if share >= MOST:
        return (
            "likely cause: the engine sampled with other weights or another temperature than the trainer scores with; "
            "code that touches the models, or a transfer of weights that was left out"
        )
    if bound is BOUNDS["bfloat16"]:
        return "likely cause: rounding of bfloat16; check attn_implementation, or try dtype float32"
    return "likely cause: positions or attention that differ between engine and trainer; check attn_implementation"
