"""The user's own estimators and policy losses, called across the boundary, with a check of what they give."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dagrl.algorithms import AdvantageFunction, Clip, Links, PolicyLoss, PolicyLossFunction, TurnLayout
from dagrl.errors import UserCodeError, boundary


def own_estimator(function: Any, ref: str) -> AdvantageFunction:
    """`function` as an estimator; raises `UserCodeError` where it fails or gives what is not two [T]."""

    def estimate(
        rewards_T: Tensor,
        values_T: Tensor,
        layout: TurnLayout,
        bootstrap_N: Tensor,
        links: Links,
        *,
        action_level: bool = False,
    ) -> tuple[Tensor, Tensor]:
        with boundary(f"advantage estimator {ref}"):
            given = function(rewards_T, values_T, layout, bootstrap_N, links, action_level=action_level)
        if not isinstance(given, tuple) or len(given) != 2:
            raise _bad(ref, f"gave {type(given).__name__}", "return (advantages_T, returns_T)")
        for name, column in zip(("advantages", "returns"), given):
            _check_column(ref, name, column, rewards_T)
        return given

    return estimate


def own_policy_loss(function: Any, ref: str) -> PolicyLossFunction:
    """`function` as a policy loss; raises `UserCodeError` where it fails or gives no `PolicyLoss` over the tokens."""

    def loss(logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, clip: Clip) -> PolicyLoss:
        with boundary(f"policy loss {ref}"):
            given = function(logprobs_T, old_logprobs_T, advantages_T, clip)
        if not isinstance(given, PolicyLoss) or given.loss_T.shape != logprobs_T.shape:
            raise _bad(ref, f"gave {type(given).__name__}", "return a PolicyLoss with one loss per token")
        return given

    return loss


def _check_column(ref: str, name: str, column: Any, like: Tensor) -> None:
    if not isinstance(column, Tensor) or column.shape != like.shape:
        shape = tuple(column.shape) if isinstance(column, Tensor) else type(column).__name__
        raise _bad(ref, f"gave {name} of {shape} for {len(like)} tokens", "return one number per token")


def _bad(ref: str, what: str, how: str) -> UserCodeError:
    return UserCodeError(f"{ref} {what}", how=how, kind="bad_return")
