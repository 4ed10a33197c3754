"""What a policy is updated by: a loss with a ratio for each token, or one with a ratio for each response.

Columns are over the tokens of some turns, by name: `old` and `advantages` are always there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from torch import Tensor

from dagrl.algorithms import (
    POLICY_LOSSES,
    SEQUENCE_LOSSES,
    Clip,
    PolicyLoss,
    PolicyLossFunction,
    SequenceLossFunction,
    action_ppo_loss,
    action_weights,
    m2_selection,
    m2po_loss,
    mean_per_turn,
    token_to_turn,
)
from dagrl.workflow.algorithm_section import BATCH_LOSSES, AlgorithmSpec

Columns = Mapping[str, Tensor]


class PolicyObjective(Protocol):
    """`lens` are the lengths of the responses of the turns at hand."""

    def over_batch(self, columns: Columns, current: Callable[[], Tensor]) -> tuple[Columns, Mapping[str, float]]:
        """Further columns that need the whole optimizer batch, and sums to report; `current` gives log-probs now."""
        ...

    def of(self, logprobs: Tensor, columns: Columns, lens: Tensor, clip: Clip) -> PolicyLoss:
        """The loss of each token of a micro-batch, not yet weighted."""
        ...

    def weights(self, lens: Tensor, token_weights: Tensor) -> Tensor:
        """[T] weights whose sum with the losses is the loss; `token_weights` are those of `loss_agg_mode`."""
        ...

    def gap(self, log_weight: Tensor, lens: Tensor) -> Tensor:
        """[T] log of the weight that corrects for the sampler, from that of each token."""
        ...


class PerToken:
    """A ratio for each token."""

    def __init__(self, function: PolicyLossFunction) -> None:
        self._function = function

    def over_batch(self, columns: Columns, current: Callable[[], Tensor]) -> tuple[Columns, Mapping[str, float]]:
        return {}, {}

    def of(self, logprobs: Tensor, columns: Columns, lens: Tensor, clip: Clip) -> PolicyLoss:
        return self._function(logprobs, columns["old"], columns["advantages"], clip)

    def weights(self, lens: Tensor, token_weights: Tensor) -> Tensor:
        return token_weights

    def gap(self, log_weight: Tensor, lens: Tensor) -> Tensor:
        return log_weight


class PerResponse:
    """A ratio for each response: its loss lies on its last token, and all responses weigh the same."""

    def __init__(self, function: SequenceLossFunction) -> None:
        self._function = function

    def over_batch(self, columns: Columns, current: Callable[[], Tensor]) -> tuple[Columns, Mapping[str, float]]:
        return {}, {}

    def of(self, logprobs: Tensor, columns: Columns, lens: Tensor, clip: Clip) -> PolicyLoss:
        return self._function(logprobs, columns["old"], columns["advantages"], lens, clip)

    def weights(self, lens: Tensor, token_weights: Tensor) -> Tensor:
        return action_weights(lens)

    def gap(self, log_weight: Tensor, lens: Tensor) -> Tensor:
        """The geometric mean over the response's tokens."""
        return mean_per_turn(log_weight, lens)[token_to_turn(lens)]


class SecondMoment:
    """M2PO: a ratio for each token to the sampler's, of which the batch says which keep their gradient."""

    def __init__(self, mode: str, threshold: float) -> None:
        self._mode = mode
        self._threshold = threshold

    def over_batch(self, columns: Columns, current: Callable[[], Tensor]) -> tuple[Columns, Mapping[str, float]]:
        selection = m2_selection(current() - columns["old"], columns["advantages"], self._mode, self._threshold)
        return {"kept": selection.kept_T, "stand_in": selection.stand_in_T}, selection.metrics

    def of(self, logprobs: Tensor, columns: Columns, lens: Tensor, clip: Clip) -> PolicyLoss:
        return m2po_loss(logprobs, columns["old"], columns["advantages"], columns["kept"], columns["stand_in"])

    def weights(self, lens: Tensor, token_weights: Tensor) -> Tensor:
        return token_weights

    def gap(self, log_weight: Tensor, lens: Tensor) -> Tensor:
        return log_weight


def objective_of(algorithm: AlgorithmSpec, own: PolicyLossFunction | None = None) -> PolicyObjective:
    """The objective that `policy_loss`, `action_level` and `action_logprob` ask for; `own` is the user's function."""
    if own is not None:
        return PerToken(own)
    if algorithm.policy_loss in BATCH_LOSSES:
        return SecondMoment(algorithm.m2_mode, algorithm.m2_threshold)
    if algorithm.policy_loss in SEQUENCE_LOSSES:
        return PerResponse(SEQUENCE_LOSSES[algorithm.policy_loss])
    if algorithm.action_level and algorithm.action_logprob != "none":
        return PerResponse(partial(action_ppo_loss, normalisation=algorithm.action_logprob))
    return PerToken(POLICY_LOSSES[algorithm.policy_loss])
