"""The learning math: pure functions of tensors over the flat stream, and the tables of their names.

Suffixes: `_T` one entry per response token of the batch, `_K` per turn, `_N` per trajectory. The names are
known to `workflow/sections.py` too, which must not import torch; a test keeps both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dagrl.algorithms.aggregate import LOSS_AGG_MODES, action_weights, token_weights
from dagrl.algorithms.conflict import norms_and_cosines
from dagrl.algorithms.gae import gae, marft_gae
from dagrl.algorithms.group_relative import (
    RELATIVE_ESTIMATORS,
    RelativeFunction,
    ScoredRows,
    numbered,
    sample_weights,
    signal,
    weighed,
)
from dagrl.algorithms.importance import sequential_factor
from dagrl.algorithms.kl import KL_ALIASES, KL_KINDS, AdaptiveKL, FixedKL, KLController, kl_estimate
from dagrl.algorithms.layout import TurnLayout
from dagrl.algorithms.links import Links
from dagrl.algorithms.m2po import M2_MODES, M2Selection, m2_selection, m2po_loss
from dagrl.algorithms.masked import ADV_NORMS, explained_variance, normalise_advantages, whiten
from dagrl.algorithms.policy_loss import (
    ACTION_NORMALISATIONS,
    Clip,
    PolicyLoss,
    action_ppo_loss,
    ppo_loss,
)
from dagrl.algorithms.reinforce import reinforce_plus_plus
from dagrl.algorithms.remax import remax
from dagrl.algorithms.role_baseline import RoleBaselines
from dagrl.algorithms.rollout_correction import ROLLOUT_CORRECTIONS, correction_weights
from dagrl.algorithms.scan import reverse_linear_scan
from dagrl.algorithms.segments import last_token_of_turn, mean_per_turn, sum_per_turn, token_to_turn
from dagrl.algorithms.simultaneous import Moments
from dagrl.algorithms.token_losses import cispo_loss, cpgd_loss, gspo_loss, sapo_loss
from dagrl.algorithms.value_loss import ValueLoss, value_loss


class AdvantageFunction(Protocol):
    """Advantages and returns of every token; what each argument means is told at `marft_gae`.

    A function of the user's is called once for all agents of its node, whom `layout.agent_group` tells apart; its
    `values_T` are 0 where an agent has no critic.
    """

    def __call__(
        self,
        rewards_T: Tensor,
        values_T: Tensor,
        layout: TurnLayout,
        bootstrap_N: Tensor,
        links: Links,
        *,
        action_level: bool = False,
    ) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """One way to find advantages."""

    fn: AdvantageFunction
    """The computation."""
    needs_critic: bool
    """Does it read values?"""
    is_chained: bool
    """Does the reward of one agent flow back to the others? Then it must be given to the last turn alone."""


PolicyLossFunction = Callable[[Tensor, Tensor, Tensor, Clip], PolicyLoss]
SequenceLossFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Clip], PolicyLoss]

ESTIMATORS: Mapping[str, Estimator] = {
    "gae_marft": Estimator(fn=marft_gae, needs_critic=True, is_chained=True),
    "gae": Estimator(fn=gae, needs_critic=True, is_chained=False),
    "reinforce_plus_plus": Estimator(fn=reinforce_plus_plus, needs_critic=False, is_chained=False),
}
"""Those that go along the stream token by token; `RELATIVE_ESTIMATORS` compare rows, and so do `spiral` and `remax`."""

POLICY_LOSSES: Mapping[str, PolicyLossFunction] = {
    "ppo": ppo_loss,
    "cispo": cispo_loss,
    "cpgd": cpgd_loss,
    "sapo": sapo_loss,
}
"""Losses with a ratio for each token."""

SEQUENCE_LOSSES: Mapping[str, SequenceLossFunction] = {"gspo": gspo_loss}
"""Losses with a ratio for each response."""

__all__ = [
    "ACTION_NORMALISATIONS",
    "ADV_NORMS",
    "ESTIMATORS",
    "KL_ALIASES",
    "KL_KINDS",
    "LOSS_AGG_MODES",
    "M2_MODES",
    "POLICY_LOSSES",
    "RELATIVE_ESTIMATORS",
    "ROLLOUT_CORRECTIONS",
    "SEQUENCE_LOSSES",
    "AdaptiveKL",
    "AdvantageFunction",
    "Clip",
    "Estimator",
    "FixedKL",
    "KLController",
    "Links",
    "M2Selection",
    "Moments",
    "PolicyLoss",
    "PolicyLossFunction",
    "RelativeFunction",
    "RoleBaselines",
    "ScoredRows",
    "SequenceLossFunction",
    "TurnLayout",
    "ValueLoss",
    "action_ppo_loss",
    "action_weights",
    "cispo_loss",
    "correction_weights",
    "cpgd_loss",
    "explained_variance",
    "gae",
    "gspo_loss",
    "kl_estimate",
    "last_token_of_turn",
    "m2_selection",
    "m2po_loss",
    "marft_gae",
    "mean_per_turn",
    "normalise_advantages",
    "norms_and_cosines",
    "numbered",
    "ppo_loss",
    "reinforce_plus_plus",
    "remax",
    "reverse_linear_scan",
    "sample_weights",
    "sapo_loss",
    "sequential_factor",
    "signal",
    "sum_per_turn",
    "token_to_turn",
    "token_weights",
    "value_loss",
    "weighed",
    "whiten",
]
