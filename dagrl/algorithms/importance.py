"""Importance factor for updating the agents one after another (HAPPO)."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

from dagrl.algorithms.layout import TurnLayout
from dagrl.algorithms.segments import sum_per_turn
from dagrl.errors import DagrlError


def sequential_factor(
    logprobs_new_T: Tensor,
    logprobs_old_T: Tensor,
    layout: TurnLayout,
    updated: Collection[int],
    cap: float,
) -> Tensor:
    """What the advantages of an agent are multiplied with once the groups `updated` have been, `[K]` float32.

    Kuba et al. 2022 (arXiv 2109.11251), the M of HAPPO: the joint action of a team is one round of one
    trajectory, so all turns of a round have the same factor, the product of new / old probability over the
    whole responses of the updated agents in it, kept within 1 / cap .. cap. Exactly 1 where no updated agent
    spoke. `logprobs_new_T` is read only at the tokens of updated agents. Detached, float64 inside.
    """
    if cap < 1.0:
        raise DagrlError(f"cap of the sequential factor is {cap}", how="give a number of at least 1")
    layout.check_stream("new logprobs", logprobs_new_T)
    layout.check_stream("old logprobs", logprobs_old_T)
    log_ratio_T = (logprobs_new_T - logprobs_old_T).detach().double()
    log_ratio_K = sum_per_turn(log_ratio_T, layout.response_lens)
    is_updated_K = torch.isin(layout.agent_group, layout.agent_group.new_tensor(sorted(updated)))
    counted_K = torch.where(is_updated_K, log_ratio_K, 0.0)
    joint_K = _round_of_turn(layout)
    log_factor = torch.zeros_like(counted_K).index_add(0, joint_K, counted_K)
    return log_factor.clamp(-math.log(cap), math.log(cap)).exp().float()[joint_K]


def _round_of_turn(layout: TurnLayout) -> Tensor:
    """Running number of each turn's (trajectory, round), `[K]` int64."""
    is_new = torch.zeros_like(layout.round, dtype=torch.bool)
    is_new[1:] = (layout.trajectory.diff() != 0) | (layout.round.diff() != 0)
    return is_new.cumsum(0)
