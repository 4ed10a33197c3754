"""Returns without a critic: what REINFORCE++ weighs its log-probs with."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dagrl.algorithms.gae import gae
from dagrl.algorithms.layout import TurnLayout
from dagrl.algorithms.links import Links


def reinforce_plus_plus(
    rewards_T: Tensor,
    values_T: Tensor,
    layout: TurnLayout,
    bootstrap_N: Tensor,
    links: Links,
    *,
    action_level: bool = False,
) -> tuple[Tensor, Tensor]:
    """Each agent's discounted return from every token on: REINFORCE++ (arXiv 2501.03262), eq. 6.

    The KL belongs in the reward and the whitening over the batch follows (`use_kl_in_reward`, `norm_adv: batch`).
    GAE with λ = 1 and values of 0; `values_T` and `bootstrap_N` are not read.
    """
    whole = replace(links, lam=1.0, lam_agent=1.0, lam_token=1.0)
    nothing_T, nothing_N = torch.zeros_like(rewards_T), torch.zeros_like(bootstrap_N)
    return gae(rewards_T, nothing_T, layout, nothing_N, whole, action_level=action_level)
