"""Estimates of the KL divergence from a reference, and the coefficient that weighs it.

Estimators: Schulman 2020, "Approximating KL divergence" (joschu.net/blog/kl-approx.html). With
l = logprob - ref_logprob of a token that the policy itself sampled, the mean over samples of
k1 = l and k3 = exp(-l) - 1 + l is KL(policy || ref); k2 = l^2 / 2 is close to it for small l; abs = |l| is a
distance, not an estimate.

As a term of the *reward* all of them are only numbers. As a *loss* their gradients differ from their values:
k1 has a mean gradient of zero (it does nothing but add noise), k2 has exactly the gradient of
KL(policy || ref), k3 that of KL(ref || policy).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from dagrl.errors import DagrlError

MAX_LOG_RATIO = 20.0
"""Largest log of a ratio (nats) that is exponentiated: e^20 is 5e8, far from overflow in float32."""

MAX_KL_ERROR = 0.2
"""Largest relative error that one adaptive update reacts to (Ziegler et al. 2019, section 2.2)."""


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, kind: str) -> Tensor:
    """Per-token estimate of KL(policy || ref), same shape as the inputs; `kind` is a key of `KL_KINDS` or
    of `KL_ALIASES`. Gradients flow into both arguments."""
    name = KL_ALIASES.get(kind, kind)
    if name not in KL_KINDS:
        raise DagrlError(f"KL kind is '{kind}'", how=f"use one of {', '.join([*KL_KINDS, *KL_ALIASES])}")
    return KL_KINDS[name](logprobs - ref_logprobs)


def _k1(log_ratio: Tensor) -> Tensor:
    return log_ratio


def _k2(log_ratio: Tensor) -> Tensor:
    return 0.5 * log_ratio.square()


def _k3(log_ratio: Tensor) -> Tensor:
    """Constant, with a gradient of zero, where the reference is more than e^MAX_LOG_RATIO times likelier."""
    inverse = (-log_ratio).clamp(max=MAX_LOG_RATIO)
    return torch.expm1(inverse) - inverse


KL_KINDS: Mapping[str, Callable[[Tensor], Tensor]] = {"k1": _k1, "k2": _k2, "k3": _k3, "abs": torch.abs}
"""Kind → function of the log-ratio policy / reference."""

KL_ALIASES: Mapping[str, str] = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
"""siiRL's and verl's words for the kinds."""


class KLController(Protocol):
    """Owns the KL coefficient; part of a checkpoint."""

    @property
    def coef(self) -> float:
        """What the KL is multiplied with now."""

    def update(self, current: float, n_steps: int) -> None:
        """Takes notice of the mean KL `current` (nats per token) over `n_steps` samples."""

    def state_dict(self) -> dict[str, float]:
        """What changes during a run."""

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Puts back what `state_dict` gave."""


class FixedKL:
    """A coefficient that never changes."""

    def __init__(self, coef: float) -> None:
        self._coef = coef

    @property
    def coef(self) -> float:
        return self._coef

    def update(self, current: float, n_steps: int) -> None:
        """Nothing to do."""

    def state_dict(self) -> dict[str, float]:
        return {}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Nothing to put back: the coefficient is the workflow's."""


class AdaptiveKL:
    """Proportional controller in log space that steers the KL to a target (Ziegler et al. 2019, section 2.2):

    `e = clip((current - target) / target, -0.2, 0.2)`, `coef *= 1 + e * n_steps / horizon`.
    """

    def __init__(self, coef: float, *, target: float, horizon: float) -> None:
        if target <= 0.0 or horizon <= 0.0:
            raise DagrlError(f"adaptive KL has target {target} and horizon {horizon}", how="give numbers above 0")
        self._coef = coef
        self._target = target
        self._horizon = horizon

    @property
    def coef(self) -> float:
        return self._coef

    def update(self, current: float, n_steps: int) -> None:
        """`current` in nats, like the target; `n_steps` samples, in the unit of the horizon.

        Raises `DagrlError` where the horizon is so short that one update could turn the coefficient's sign.
        """
        if MAX_KL_ERROR * n_steps >= self._horizon:
            raise DagrlError(
                f"adaptive KL has horizon {self._horizon} and was updated with {n_steps} samples at once",
                how=f"give a horizon above {MAX_KL_ERROR * n_steps:g}; tens of updates are usual",
            )
        error = min(max(current / self._target - 1.0, -MAX_KL_ERROR), MAX_KL_ERROR)
        self._coef *= 1.0 + error * n_steps / self._horizon

    def state_dict(self) -> dict[str, float]:
        return {"coef": self._coef}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self._coef = state["coef"]
