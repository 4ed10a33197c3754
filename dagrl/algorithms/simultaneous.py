"""GAE where turns are spoken at the same time: chained from one moment to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.algorithms.layout import TurnLayout
from dagrl.algorithms.links import Links
from dagrl.algorithms.scan import reverse_linear_scan
from dagrl.algorithms.segments import last_token_of_turn, sum_per_turn, token_to_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The k turns that are not empty, gathered into the m moments that they spoke at."""

    of_turn: Tensor
    """[k] int64: moment of each turn; moments are in order of trajectory, round and stage."""
    trajectory: Tensor
    """[m] int64."""
    round: Tensor
    """[m] int64."""
    is_chain: bool
    """True if every turn spoke after the one before it in the stream."""

    @classmethod
    def of(cls, layout: TurnLayout, stage_K: Tensor) -> Moments:
        spoken = layout.response_lens > 0
        keys = torch.stack([layout.trajectory, layout.round, stage_K], dim=1)[spoken]
        moments, of_turn = torch.unique(keys, dim=0, return_inverse=True)
        is_chain = bool((of_turn.diff() > 0).all())
        return cls(of_turn=of_turn, trajectory=moments[:, 0], round=moments[:, 1], is_chain=is_chain)

    @property
    def is_last(self) -> Tensor:
        """[m] bool: no moment of the same trajectory follows."""
        return torch.cat([self.trajectory.diff() != 0, torch.ones(1, dtype=torch.bool)])[: len(self.trajectory)]

    def sum(self, values_k: Tensor) -> Tensor:
        """[m]: over the turns of each moment."""
        return torch.zeros(len(self.round), dtype=torch.float64).index_add(0, self.of_turn, values_k)

    def mean(self, values_k: Tensor) -> Tensor:
        """[m]: over the turns of each moment."""
        return self.sum(values_k) / torch.bincount(self.of_turn, minlength=len(self.round))

    def backwards(self) -> Iterator[Tensor]:
        """Turns by how many moments follow theirs in the trajectory: those of all last moments first."""
        ends = self.is_last.nonzero().flatten()
        own_end = ends[torch.searchsorted(ends, torch.arange(len(self.round)))]
        num_after = (own_end - torch.arange(len(self.round)))[self.of_turn]
        for number in range(int(num_after.max()) + 1 if len(num_after) else 0):
            yield (num_after == number).nonzero().flatten()


def with_rewards_of_others(rewards_T: Tensor, layout: TurnLayout, moments: Moments) -> Tensor:
    """Rewards that are the team's, `[T]` float64: what the others of its moment are rewarded with counts at a turn's
    last token like its own."""
    rewards, spoken = rewards_T.double().clone(), layout.response_lens > 0
    own = sum_per_turn(rewards, layout.response_lens)[spoken]
    rewards[last_token_of_turn(layout.response_lens)] += moments.sum(own)[moments.of_turn] - own
    return rewards


def gae_of_moments(
    rewards_T: Tensor, values_T: Tensor, layout: TurnLayout, moments: Moments, bootstrap_N: Tensor, links: Links
) -> Tensor:
    """Advantages, `[T]` float64.

    After a turn's last token come the first tokens of all turns of the next moment: the mean of their values is the
    next value, the mean of their advantages is what is carried back. Turns of one moment know nothing of each other.
    With one turn a moment this is the chain of `marft_gae`.
    """
    lens = layout.response_lens[layout.response_lens > 0]
    last = last_token_of_turn(layout.response_lens)
    values, rewards = values_T.double(), rewards_T.double()
    gamma, lam = _links_behind(moments, links)
    next_value = moments.mean(values[last + 1 - lens]).roll(-1)
    next_value[moments.is_last] = bootstrap_N[moments.trajectory[moments.is_last]].double()

    deltas = rewards + links.gamma_token * values.roll(-1) - values
    deltas[last] = rewards[last] + (gamma * next_value)[moments.of_turn] - values[last]
    decay = torch.full_like(values, links.gamma_token * links.lam_token)
    decay[last] = 0.0
    turn_of_token = token_to_turn(lens)
    first_advantage = torch.zeros(len(lens), dtype=torch.float64)
    advantages = torch.zeros_like(values)
    for turns in moments.backwards():
        carried = gamma * lam * moments.mean(first_advantage).roll(-1)
        tokens = torch.isin(turn_of_token, turns).nonzero().flatten()
        deltas[last[turns]] += carried[moments.of_turn[turns]]
        advantages[tokens] = reverse_linear_scan(deltas[tokens], decay[tokens])
        first_advantage[turns] = advantages[last[turns] + 1 - lens[turns]]
    return advantages


def _links_behind(moments: Moments, links: Links) -> tuple[Tensor, Tensor]:
    """Discount and lambda, each [m], from each moment to the next; lambda is 0 behind the last one."""
    is_agent_link = torch.cat([moments.round.diff() == 0, torch.zeros(1, dtype=torch.bool)])[: len(moments.round)]
    is_agent_link &= ~moments.is_last
    gamma = torch.where(is_agent_link, links.gamma_agent, links.gamma).double()
    lam = torch.where(is_agent_link, links.lam_agent, links.lam).double()
    return gamma, torch.where(moments.is_last, 0.0, lam)
