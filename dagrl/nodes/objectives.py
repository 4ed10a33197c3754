"""What a policy is updated by: a loss with a ratio for each token, or one with a ratio for each response."""

from __future__ import annotations

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
    mean_per_turn,
    token_to_turn,
)
from dagrl.workflow.algorithm_section import AlgorithmSpec


class PolicyObjective(Protocol):
    """Columns are over the tokens of some turns, `lens` are the lengths of these turns' responses."""

    def of(self, logprobs: Tensor, old: Tensor, advantages: Tensor, lens: Tensor, clip: Clip) -> PolicyLoss:
        """The loss of each token, not yet weighted."""
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

    def of(self, logprobs: Tensor, old: Tensor, advantages: Tensor, lens: Tensor, clip: Clip) -> PolicyLoss:
        return self._function(logprobs, old, advantages, clip)

    def weights(self, lens: Tensor, token_weights: Tensor) -> Tensor:
        return token_weights

    def gap(self, log_weight: Tensor, lens: Tensor) -> Tensor:
        return log_weight


class PerResponse:
    """A ratio for each response: its loss lies on its last token, and all responses weigh the same."""

    def __init__(self, function: SequenceLossFunction) -> None:
        self._function = function

    def of(self, logprobs: Tensor, old: Tensor, advantages: Tensor, lens: Tensor, clip: Clip) -> PolicyLoss:
        return self._function(logprobs, old, advantages, lens, clip)

    def weights(self, lens: Tensor, token_weights: Tensor) -> Tensor:
        return action_weights(lens)

    def gap(self, log_weight: Tensor, lens: Tensor) -> Tensor:
        """The geometric mean over the response's tokens."""
        return mean_per_turn(log_weight, lens)[token_to_turn(lens)]


def objective_of(algorithm: AlgorithmSpec, own: PolicyLossFunction | None = None) -> PolicyObjective:
    """The objective that `policy_loss`, `action_level` and `action_logprob` ask for; `own` is the user's function."""
    if own is not None:
        return PerToken(own)
    if algorithm.policy_loss in SEQUENCE_LOSSES:
        return PerResponse(SEQUENCE_LOSSES[algorithm.policy_loss])
    if algorithm.action_level and algorithm.action_logprob != "none":
        return PerResponse(partial(action_ppo_loss, normalisation=algorithm.action_logprob))
    return PerToken(POLICY_LOSSES[algorithm.policy_loss])
