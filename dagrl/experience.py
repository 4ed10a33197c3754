"""One step's trajectories as the flat, time-ordered stream of tokens that the learn graph works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from dagrl.types import FinishReason, Image, PromptKey, Trajectory, Turn
from dagrl.workflow.kinds import WRITER_OF, Column

Updated = Literal["policy", "critic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """A selection of turns for one model: ids without padding.

    n turns, S ids, T response tokens.
    """

    input_ids: Tensor
    """[S] int64: prompt and response of every turn, one after the other."""
    offsets: Tensor
    """[n + 1] int64: where each turn begins in `input_ids`."""
    prompt_lens: Tensor
    """[n] int64."""
    response_lens: Tensor
    """[n] int64; 0 where a response is empty."""
    temperatures: Tensor
    """[n] float32: what the log-probs are to be taken at."""
    images: tuple[tuple[Image, ...], ...] | None = None
    """[n]: what each turn's prompt shows, in the order of the tokens; None where no turn shows anything."""

    def __len__(self) -> int:
        return len(self.prompt_lens)

    @property
    def lengths(self) -> Tensor:
        """[n] int64: prompt and response together."""
        return self.prompt_lens + self.response_lens

    @property
    def response_offsets(self) -> Tensor:
        """[n + 1] int64: where each turn begins among the response tokens."""
        return cumulative(self.response_lens)

    def subset(self, turns: Tensor) -> Sequences:
        """The turns at positions `turns` ([m] int64), in that order."""
        lengths = self.lengths[turns]
        return Sequences(
            input_ids=self.input_ids[ranges(self.offsets[turns], lengths)],
            offsets=cumulative(lengths),
            prompt_lens=self.prompt_lens[turns],
            response_lens=self.response_lens[turns],
            temperatures=self.temperatures[turns],
            images=None if self.images is None else tuple(self.images[turn] for turn in turns.tolist()),
        )

    def tokens_of(self, turns: Tensor) -> Tensor:
        """[M] int64: positions of the response tokens of `turns` among all T response tokens."""
        return ranges(self.response_offsets[turns], self.response_lens[turns])


@dataclass(slots=True, kw_only=True)
class TurnTable:
    """A row per turn, K rows; all int64 unless said otherwise."""

    trajectory: Tensor
    """Index into `Experience.trajectories`; does not decrease."""
    round: Tensor
    position: Tensor
    """Place within the trajectory, from 0."""
    agent_group: Tensor
    branch: Tensor
    task: Tensor
    """Index of the prompt within the step; samples of it that another step asked for are another."""
    sample: Tensor
    prompt_len: Tensor
    response_len: Tensor
    policy_version: Tensor
    is_cut: Tensor
    """bool: the response ended by length (`finish_reason`)."""
    terminated: Tensor
    """bool: its trajectory ended because the environment said done."""
    truncated: Tensor
    """bool: its trajectory was cut off."""
    is_trained: Tensor
    """bool: false where `use_all_traj` leaves it out of the updates."""
    reward: Tensor
    """float32: the reward at the turn's last token, as the environment or the REWARD node gave it."""
    temperature: Tensor
    """float32."""
    last_value: Tensor
    """float32: the critic's value of the state after the turn; 0 until a VALUES node wrote it."""

    def __len__(self) -> int:
        return len(self.trajectory)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """NaN or infinity in one tensor of a step."""

    tensor: str
    """`loss`, `gradient`, or a column such as `values`."""
    turns: Tensor
    """[m] int64: rows of the turn table that it was found in."""


@dataclass(slots=True, kw_only=True)
class Experience:
    """The trajectories of one step and their stream: K turns, S ids, T response tokens.

    Columns are flat float32 tensors over the T response tokens, absent until a node writes them.

    >>> experience = collate([])
    >>> len(experience.turns), experience.num_tokens
    (0, 0)
    """

    trajectories: tuple[Trajectory, ...]
    sequences: Sequences
    turns: TurnTable
    node_ids: tuple[str, ...]
    """[K]: the node that spoke each turn."""
    columns: dict[Column, Tensor] = field(default_factory=dict)
    written: dict[Column, Tensor] = field(default_factory=dict)
    """[K] bool for every column: turns for which it was written."""
    updates: dict[Updated, Tensor] = field(default_factory=dict)
    """[K] int64: optimizer steps that a turn was part of."""
    excuses: dict[int, str] = field(default_factory=dict)
    """Index of a trajectory to why it may go untrained; means nothing where an update had it all the same."""
    nonfinite: list[NonFinite] = field(default_factory=list)
    """Updates that were not made because of their loss or gradient."""
    notes: list[str] = field(default_factory=list)
    """What nodes have to tell of this step besides their metrics."""

    @property
    def num_tokens(self) -> int:
        """T: response tokens of all agents."""
        return int(self.turns.response_len.sum())

    def become(self, other: Experience) -> None:
        """Takes all of `other` but for the notes: the step has other trajectories from now on."""
        for name in Experience.__dataclass_fields__:
            if name != "notes":
                setattr(self, name, getattr(other, name))

    def turns_of(self, groups: Sequence[int], *, only_trained: bool = False) -> Tensor:
        """[m] int64: the turns of `groups` that have a response, in time order."""
        mask = torch.isin(self.turns.agent_group, torch.tensor(list(groups), dtype=torch.int64))
        mask &= self.turns.response_len > 0
        if only_trained:
            mask &= self.turns.is_trained
        return mask.nonzero().flatten()

    def select(self, turns: Tensor) -> Sequences:
        """The ids of `turns` for a model."""
        return self.sequences.subset(turns)

    def read(self, column: Column, turns: Tensor) -> Tensor:
        """[M] float32: `column` at the response tokens of `turns`; asserts that a node wrote it."""
        written = self.written.get(column)
        assert written is not None and bool(written[turns].all()), (
            f"column '{column}' is not written for all of these turns; a {WRITER_OF[column]} node should have"
        )
        return self.columns[column][self.sequences.tokens_of(turns)]

    def note_update(self, model: Updated, turns: Tensor) -> None:
        """Tells that an optimizer step was made on `turns`."""
        counts = self.updates.setdefault(model, torch.zeros(len(self.turns), dtype=torch.int64))
        counts[turns] += 1

    def excuse(self, trajectories: Iterable[int], reason: str) -> None:
        """Says why `trajectories` may go untrained; the first reason that is given stays."""
        for trajectory in trajectories:
            self.excuses.setdefault(trajectory, reason)

    def excuse_turns(self, turns: Tensor, reason: str) -> None:
        """The same for the trajectories of `turns`."""
        self.excuse(torch.unique(self.turns.trajectory[turns]).tolist(), reason)

    @property
    def trained(self) -> frozenset[int]:
        """Trajectories of which at least one turn was part of an optimizer step."""
        found: set[int] = set()
        for counts in self.updates.values():
            found.update(self.turns.trajectory[counts > 0].tolist())
        return frozenset(found)

    def first_nonfinite(self) -> NonFinite | None:
        """The first column, in the order of their writing, that holds NaN or infinity; values after turns count too."""
        for column, values in self.columns.items():
            is_bad, is_bad_after = ~torch.isfinite(values), torch.zeros(len(self.turns), dtype=torch.bool)
            if column is Column.VALUES:
                is_bad_after = ~torch.isfinite(self.turns.last_value)
            if is_bad.any() or is_bad_after.any():
                owner = torch.repeat_interleave(torch.arange(len(self.turns)), self.sequences.response_lens)
                turns = torch.unique(torch.cat([owner[is_bad], is_bad_after.nonzero().flatten()]))
                return NonFinite(tensor=str(column), turns=turns)
        return None

    def write(self, column: Column, turns: Tensor, values: Tensor) -> None:
        """Scatters `values` ([M]) into `column` at the response tokens of `turns`, as float32."""
        tokens = self.sequences.tokens_of(turns)
        assert values.shape == tokens.shape, f"column '{column}': {tuple(values.shape)} values, {len(tokens)} tokens"
        if column not in self.columns:
            self.columns[column] = torch.zeros(self.num_tokens, dtype=torch.float32)
            self.written[column] = torch.zeros(len(self.turns), dtype=torch.bool)
        self.columns[column][tokens] = values.detach().to(torch.float32).cpu()
        self.written[column][turns] = True


def collate(trajectories: Sequence[Trajectory], *, use_all_traj: bool = True) -> Experience:
    """Lays the turns of `trajectories` one after the other, in the order given."""
    placed = [(number, turn) for number, trajectory in enumerate(trajectories) for turn in trajectory.turns]
    turns = [turn for _, turn in placed]
    table = _turn_table(trajectories, placed, use_all_traj)
    experience = Experience(
        trajectories=tuple(trajectories),
        sequences=_sequences(turns, table),
        turns=table,
        node_ids=tuple(turn.node_id for turn in turns),
    )
    known = [number for number, turn in enumerate(turns) if turn.rollout_logprobs is not None]
    logprobs = [value for turn in turns for value in turn.rollout_logprobs or ()]
    experience.write(Column.ROLLOUT_LOGPROBS, _int64(known), _float32(logprobs))
    return experience


def cumulative(lengths: Tensor) -> Tensor:
    """[n + 1] int64: 0 and the running sums of `lengths` ([n])."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """[sum(lengths)] int64: start, start + 1, … of every range, one after the other."""
    ends = lengths.cumsum(0)
    within = torch.arange(int(ends[-1]) if len(ends) else 0) - torch.repeat_interleave(ends - lengths, lengths)
    return torch.repeat_interleave(starts, lengths) + within


def _sequences(turns: Sequence[Turn], table: TurnTable) -> Sequences:
    ids = [token for turn in turns for token in (*turn.prompt_ids, *turn.response_ids)]
    return Sequences(
        input_ids=torch.tensor(ids, dtype=torch.int64),
        offsets=cumulative(table.prompt_len + table.response_len),
        prompt_lens=table.prompt_len,
        response_lens=table.response_len,
        temperatures=table.temperature,
        images=tuple(turn.images for turn in turns) if any(turn.images for turn in turns) else None,
    )


def _turn_table(
    trajectories: Sequence[Trajectory], placed: Sequence[tuple[int, Turn]], use_all_traj: bool
) -> TurnTable:
    task_index: dict[PromptKey, int] = {}
    for trajectory in trajectories:
        task_index.setdefault(trajectory.prompt_key, len(task_index))
    turns = [turn for _, turn in placed]
    owners = [trajectories[number] for number, _ in placed]
    return TurnTable(
        trajectory=_int64([number for number, _ in placed]),
        round=_int64([turn.round for turn in turns]),
        position=_int64([place for trajectory in trajectories for place in range(len(trajectory.turns))]),
        agent_group=_int64([turn.agent_group for turn in turns]),
        branch=_int64([turn.branch for turn in turns]),
        task=_int64([task_index[owner.prompt_key] for owner in owners]),
        sample=_int64([owner.sample for owner in owners]),
        prompt_len=_int64([len(turn.prompt_ids) for turn in turns]),
        response_len=_int64([len(turn.response_ids) for turn in turns]),
        policy_version=_int64([turn.policy_version for turn in turns]),
        is_cut=torch.tensor([turn.finish_reason is FinishReason.LENGTH for turn in turns], dtype=torch.bool),
        terminated=torch.tensor([not owner.truncated for owner in owners], dtype=torch.bool),
        truncated=torch.tensor([owner.truncated for owner in owners], dtype=torch.bool),
        is_trained=torch.tensor(
            [flag for one in trajectories for flag in last_rounds(one, use_all_traj)], dtype=torch.bool
        ),
        reward=_float32([turn.reward for turn in turns]),
        temperature=_float32([turn.temperature for turn in turns]),
        last_value=torch.zeros(len(turns), dtype=torch.float32),
    )


def last_rounds(trajectory: Trajectory, use_all_traj: bool) -> list[bool]:
    """For each turn whether it is to be trained: all, or those of each node's last round only."""
    last_round = {turn.node_id: turn.round for turn in trajectory.turns}
    return [use_all_traj or turn.round == last_round[turn.node_id] for turn in trajectory.turns]


def _int64(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def _float32(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
