"""DYNAMIC_SAMPLING: drops prompts whose samples carry no signal, and has more played until the batch is full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from dagrl.experience import Experience, collate
from dagrl.nodes.base import AnyLearnNode, ExtraPlay, by_prompt
from dagrl.nodes.reward import lay_rewards
from dagrl.types import Metrics, Trajectory, Turn
from dagrl.workflow.kinds import Node, RewardPlacement

NO_SIGNAL = "no_signal"
"""Why samples are dropped whose group has equal rewards."""
_OWN_REWARDS = ("team", "team_by_speaker", "per_agent")
"""Where each agent's reward stands in its own turns; elsewhere the trajectory's counts."""

Group = tuple[int | str, ...]
"""A value for each word of `group_by` but the prompt."""


class DynamicSamplingNode:
    """Keeps prompts in which at least one group has unequal rewards: the first ones, in the order of the data."""

    def __init__(self, node: Node, *, batch_size: int, use_all_traj: bool, placement: RewardPlacement) -> None:
        """`batch_size`: prompts of a step."""
        self.node = node
        self._options = node.options.dynamic_sampling
        given = self._options.group_by
        self._group_by = node.algorithm.group_by if given is None else given
        self._batch_size = batch_size
        self._use_all_traj = use_all_traj
        self._placement = placement

    @property
    def oversample(self) -> float:
        return self._options.oversample

    @property
    def aborts(self) -> bool:
        """Whether play ends when the batch is full."""
        return self._options.surplus == "abort"

    def has_signal(self, samples: Sequence[Trajectory]) -> bool:
        """Whether a prompt with these samples, which are scored, would be kept."""
        return bool(self._groups_with_signal(samples))

    async def run_playing(self, experience: Experience, step: int, play: ExtraPlay) -> Metrics:
        kept, dropped = self._sorted_out(experience.trajectories)
        num_extra = 0
        while len(kept) < self._batch_size and num_extra < self._options.max_extra_batches:
            more = await play.more(self._batch_size - len(kept))
            if more is None:
                break
            num_extra += 1
            found, useless = self._sorted_out(more)
            kept, dropped = kept + found, dropped + useless
        batch, surplus = kept[: self._batch_size], kept[self._batch_size :]
        play.leave_out(_flat(dropped), NO_SIGNAL)
        play.carry_over(_flat(surplus))
        self._take(experience, batch)
        missing = self._batch_size - len(batch)
        if missing:
            experience.notes.append(
                f"'{self.node.node_id}' asked {num_extra} times for more prompts and found {len(batch)} of "
                f"{self._batch_size} whose samples differ in reward"
            )
        num_seen = len(kept) + len(dropped)
        return {
            "dropped": len(dropped) / num_seen if num_seen else 0.0,
            "kept": float(len(batch)),
            "missing": float(missing),
            "carried": float(len(surplus)),
            "extra_batches": float(num_extra),
        }

    def _sorted_out(self, trajectories: Sequence[Trajectory]) -> tuple[list[list[Trajectory]], list[list[Trajectory]]]:
        """The prompts with signal and those without."""
        kept: list[list[Trajectory]] = []
        dropped: list[list[Trajectory]] = []
        for samples in by_prompt(trajectories):
            (kept if self.has_signal(samples) else dropped).append(samples)
        return kept, dropped

    def _groups_with_signal(self, samples: Sequence[Trajectory]) -> set[Group]:
        scores: dict[Group, dict[tuple[int | str, ...], float]] = {}
        for number, one in enumerate(samples):
            for turn in one.turns if one.unscored is None else ():
                group = self._group_of(turn)
                row = (number, turn.node_id, turn.branch, *((turn.round,) if "turn" in self._group_by else ()))
                rows = scores.setdefault(group, {})
                if self._placement in _OWN_REWARDS:
                    rows[row] = rows.get(row, 0.0) + turn.reward
                else:
                    rows[row] = one.reward
        return {group for group, rows in scores.items() if max(rows.values()) > min(rows.values())}

    def _group_of(self, turn: Turn) -> Group:
        values: dict[str, int | str] = {"agent": turn.agent_group, "node": turn.node_id, "turn": turn.round}
        return tuple(values[word] for word in self._group_by if word != "prompt")

    def _take(self, experience: Experience, batch: Sequence[Sequence[Trajectory]]) -> None:
        """The step has these trajectories from now on; turns of groups without signal are not trained."""
        informative = [
            self._group_of(turn) in groups
            for samples in batch
            for groups in [self._groups_with_signal(samples)]
            for one in samples
            for turn in one.turns
        ]
        experience.become(collate(_flat(batch), use_all_traj=self._use_all_traj))
        experience.turns.is_trained &= torch.tensor(informative, dtype=torch.bool)
        lay_rewards(experience, self.node.groups)


def sampler_of(nodes: Mapping[str, AnyLearnNode]) -> DynamicSamplingNode | None:
    """The DYNAMIC_SAMPLING node among the learn nodes of a workflow; None where it has none."""
    return next((node for node in nodes.values() if isinstance(node, DynamicSamplingNode)), None)


def _flat(prompts: Iterable[Sequence[Trajectory]]) -> list[Trajectory]:
    return [one for samples in prompts for one in samples]
