"""Generalised advantage estimation, chained through all agents (MARFT) or for each agent by itself.

GAE: Schulman et al. 2016 (arXiv 1506.02438), eq. 16. The chain through agents: MARFT (arXiv 2504.16129).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.algorithms.layout import TurnLayout
from dagrl.algorithms.links import Links
from dagrl.algorithms.scan import reverse_linear_scan
from dagrl.algorithms.segments import last_token_of_turn, sum_per_turn
from dagrl.algorithms.simultaneous import Moments, gae_of_moments, with_rewards_of_others
from dagrl.errors import DagrlError


def marft_gae(
    rewards_T: Tensor,
    values_T: Tensor,
    layout: TurnLayout,
    bootstrap_N: Tensor,
    links: Links,
    *,
    action_level: bool = False,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns (advantage + value), `[T]` float32, over each whole trajectory.

    `values_T[t]` is the value of the state before token t. After a turn's last token comes the first token of
    the next turn that is not empty, whoever speaks; `bootstrap_N[i]` is the value after the last token of
    trajectory i, 0 where it terminated. Where agents speak at the same time (`layout.stage`), all turns of the
    next moment come after each of theirs (`gae_of_moments`), and a reward of one counts for all, as the team's. With
    `action_level` a response is one action: its value is the one at its first token, its reward the sum of its tokens',
    the result the same at all of them. A trajectory of empty turns alone has no tokens and gives nothing. The
    arithmetic is in float64.
    """
    _check_inputs(rewards_T, values_T, layout, bootstrap_N)
    course = _Course(links=links, moments=_moments(layout))
    if course.moments is not None:
        rewards_T = with_rewards_of_others(rewards_T, layout, course.moments)
    estimate = _per_action if action_level else _chain
    return estimate(rewards_T, values_T, layout, bootstrap_N, course)


def gae(
    rewards_T: Tensor,
    values_T: Tensor,
    layout: TurnLayout,
    bootstrap_N: Tensor,
    links: Links,
    *,
    action_level: bool = False,
) -> tuple[Tensor, Tensor]:
    """As `marft_gae`, but each agent's turns of a trajectory are a stream of their own.

    After an agent's turn comes the next turn of the same agent: an agent link if it is in the same round, a
    round link if it is in a later one. Every agent's stream ends in the trajectory's bootstrap value. What an agent
    says at the same time (branches, nodes without a path between them) is no part of each other's past or future:
    each such turn has its own rewards alone, then those of the agent's later moments.
    """
    _check_inputs(rewards_T, values_T, layout, bootstrap_N)
    order_K = _agent_by_agent(layout)
    order_T = _token_order(layout.response_lens, order_K)
    streams, trajectory_of_stream = _streams_of_agents(layout, order_K)
    estimate = _per_action if action_level else _chain
    advantages, returns = estimate(
        rewards_T[order_T],
        values_T[order_T],
        streams,
        bootstrap_N[trajectory_of_stream],
        _Course(links=links, moments=_moments(streams)),
    )
    back_T = order_T.argsort()
    return advantages[back_T], returns[back_T]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """How the turns of a stream follow each other."""

    links: Links
    moments: Moments | None
    """None where one turn follows another."""


def _moments(layout: TurnLayout) -> Moments | None:
    if layout.stage is None:
        return None
    moments = Moments.of(layout, layout.stage)
    return None if moments.is_chain else moments


def _chain(
    rewards_T: Tensor, values_T: Tensor, layout: TurnLayout, bootstrap_N: Tensor, course: _Course
) -> tuple[Tensor, Tensor]:
    links = course.links
    if course.moments is not None:
        advantages = gae_of_moments(rewards_T, values_T, layout, course.moments, bootstrap_N, links)
        return advantages.float(), (advantages + values_T.double()).float()
    spoken = layout.response_lens > 0
    last = last_token_of_turn(layout.response_lens)
    is_end, is_agent_link = _what_follows(layout.trajectory[spoken], layout.round[spoken])
    ends, ended = last[is_end], layout.trajectory[spoken][is_end]
    values = values_T.double()
    next_values = values.roll(-1)
    next_values[ends] = bootstrap_N[ended].double()
    gamma = torch.full_like(values, links.gamma_token)
    lam = torch.full_like(values, links.lam_token)
    gamma[last] = _choose(is_agent_link, links.gamma_agent, links.gamma)
    lam[last] = _choose(is_agent_link, links.lam_agent, links.lam)
    lam[ends] = 0.0
    deltas = rewards_T.double() + gamma * next_values - values
    advantages = reverse_linear_scan(deltas, gamma * lam)
    return advantages.float(), (advantages + values).float()


def _what_follows(trajectory: Tensor, round_: Tensor) -> tuple[Tensor, Tensor]:
    """For each turn that is not empty, bool: does its trajectory end there, is the next turn of its round."""
    is_end = torch.ones_like(trajectory, dtype=torch.bool)
    is_end[:-1] = trajectory[1:] != trajectory[:-1]
    is_same_round = torch.zeros_like(is_end)
    is_same_round[:-1] = ~is_end[:-1] & (round_[1:] == round_[:-1])
    return is_end, is_same_round


def _choose(condition: Tensor, if_true: float, if_false: float) -> Tensor:
    options = torch.tensor([if_false, if_true], dtype=torch.float64, device=condition.device)
    return options[condition.long()]


def _per_action(
    rewards_T: Tensor, values_T: Tensor, layout: TurnLayout, bootstrap_N: Tensor, course: _Course
) -> tuple[Tensor, Tensor]:
    """The chain over a stream with one token for each response, spread over the response's tokens."""
    lens = layout.response_lens
    spoken = lens > 0
    first = lens.cumsum(0)[spoken] - lens[spoken]
    actions = TurnLayout(
        response_lens=spoken.long(),
        trajectory=layout.trajectory,
        round=layout.round,
        agent_group=layout.agent_group,
        stage=layout.stage,
    )
    rewards = sum_per_turn(rewards_T.double(), lens)[spoken]
    advantages, returns = _chain(rewards, values_T[first], actions, bootstrap_N, course)
    return advantages.repeat_interleave(lens[spoken]), returns.repeat_interleave(lens[spoken])


def _agent_by_agent(layout: TurnLayout) -> Tensor:
    """Turn indices sorted by trajectory, then agent, then time."""
    if layout.agent_group.numel() == 0:
        return layout.agent_group
    num_groups = int(layout.agent_group.max()) + 1
    return torch.argsort(layout.trajectory * num_groups + layout.agent_group, stable=True)


def _token_order(response_lens_K: Tensor, order_K: Tensor) -> Tensor:
    """Token positions `[T]` in the order that puts the turns in `order_K`."""
    starts = response_lens_K.cumsum(0) - response_lens_K
    new_lens = response_lens_K[order_K]
    new_starts = new_lens.cumsum(0) - new_lens
    shift = (starts[order_K] - new_starts).repeat_interleave(new_lens)
    return torch.arange(shift.numel(), device=shift.device) + shift


def _streams_of_agents(layout: TurnLayout, order_K: Tensor) -> tuple[TurnLayout, Tensor]:
    """The turns in `order_K` with each (trajectory, agent) as a trajectory, and the trajectory of each."""
    trajectory, agent_group = layout.trajectory[order_K], layout.agent_group[order_K]
    is_first = torch.ones_like(trajectory, dtype=torch.bool)
    is_first[1:] = (trajectory[1:] != trajectory[:-1]) | (agent_group[1:] != agent_group[:-1])
    streams = TurnLayout(
        response_lens=layout.response_lens[order_K],
        trajectory=is_first.cumsum(0) - 1,
        round=layout.round[order_K],
        agent_group=agent_group,
        stage=None if layout.stage is None else layout.stage[order_K],
    )
    return streams, trajectory[is_first]


def _check_inputs(rewards_T: Tensor, values_T: Tensor, layout: TurnLayout, bootstrap_N: Tensor) -> None:
    layout.check_stream("rewards", rewards_T)
    layout.check_stream("values", values_T)
    if bootstrap_N.shape != (layout.num_trajectories,):
        raise DagrlError(
            f"bootstrap has shape {tuple(bootstrap_N.shape)} for {layout.num_trajectories} trajectories",
            how="give one value per trajectory, 0 where it terminated",
        )
