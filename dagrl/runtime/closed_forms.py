"""Estimators and losses once more, from their definitions: plain numbers, no tensors, nothing of `algorithms/`.

What `dagrl selftest` compares with. Every function is written as its paper has it, not as the code computes it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

Group = Sequence[float]
"""Scores of the rows of one group."""
Lens = Sequence[int]
"""Response tokens of those rows."""


def _grpo(scores: Group, lens: Lens) -> list[float]:
    spread = statistics.stdev(scores) + 1e-6
    return [(score - statistics.fmean(scores)) / spread for score in scores]


def _centred(scores: Group, lens: Lens) -> list[float]:
    return [score - statistics.fmean(scores) for score in scores]


def _rloo(scores: Group, lens: Lens) -> list[float]:
    return [score - (math.fsum(scores) - score) / (len(scores) - 1) for score in scores]


def _opo(scores: Group, lens: Lens) -> list[float]:
    baseline = math.fsum(length * score for length, score in zip(lens, scores)) / sum(lens)
    return [score - baseline for score in scores]


def _maxrl(scores: Group, lens: Lens) -> list[float]:
    mean = statistics.fmean(scores)
    return [(score - mean) / mean for score in scores]


RELATIVE: Mapping[str, Callable[[Group, Lens], list[float]]] = {
    "grpo": _grpo,
    "dr_grpo": _centred,
    "rloo": _rloo,
    "reinforce_plus_plus_baseline": _centred,
    "opo": _opo,
    "maxrl": _maxrl,
    "cpgd": _centred,
}
"""Of a group of two rows or more with unequal scores; all other groups give 0. `cpgd` is multiplied, over the batch, by
the number of groups over that of groups with unequal scores."""


def gae(rewards: Sequence[float], values: Sequence[float], decay: float, gamma: float) -> list[float]:
    """`Σ_k decay^k δ_(t+k)` with `δ_t = r_t + γ V_(t+1) - V_t`, terminal at the end; `decay` is γ λ."""
    deltas = [
        reward + gamma * after - value for reward, value, after in zip(rewards, values, [*values[1:], 0.0], strict=True)
    ]
    return [math.fsum(decay**k * delta for k, delta in enumerate(deltas[start:])) for start in range(len(deltas))]


def spiral(scores: Sequence[float]) -> list[float]:
    """`R - b`, where b is the sum of `0.05 · 0.95^(age - 1) R` over the scores before."""
    return [
        score - math.fsum(0.05 * 0.95 ** (at - 1 - before) * scores[before] for before in range(at))
        for at, score in enumerate(scores)
    ]


# Losses of a token with log-prob `old + log ratio` and advantage `a`


def ppo(ratio: float, a: float, low: float, high: float, dual: float, old: float) -> float:
    clipped = min(max(ratio, 1.0 - low), 1.0 + high)
    loss = max(-a * ratio, -a * clipped)
    return min(loss, -dual * a) if a < 0 else loss


def cispo(ratio: float, a: float, low: float, high: float, dual: float, old: float) -> float:
    return -min(max(ratio, 1.0 - low), 1.0 + high) * a * (old + math.log(ratio))


def cpgd(ratio: float, a: float, low: float, high: float, dual: float, old: float) -> float:
    logprob = old + math.log(ratio)
    bounded = min(logprob, old + math.log(1.0 + high)) if a > 0 else max(logprob, old + math.log(1.0 - low))
    return -a * bounded


def sapo(ratio: float, a: float, low: float, high: float, dual: float, old: float) -> float:
    tau = 1.0 if a > 0 else 1.05
    return -a * 4.0 / tau / (1.0 + math.exp(-tau * (ratio - 1.0)))


TOKEN_LOSSES: Mapping[str, Callable[[float, float, float, float, float, float], float]] = {
    "ppo": ppo,
    "cispo": cispo,
    "cpgd": cpgd,
    "sapo": sapo,
}


def gspo(ratios: Sequence[float], a: float, low: float, high: float, dual: float) -> float:
    """Of a whole response: PPO's loss of the geometric mean."""
    return ppo(math.prod(ratios) ** (1.0 / len(ratios)), a, low, high, dual, 0.0)


def m2po(log_ratios: Sequence[float], advantages: Sequence[float], threshold: float, mode: str) -> list[float]:
    """Losses of the tokens of a batch; `mode` as in `m2_mode`."""
    region = [at for at, (ell, a) in enumerate(zip(log_ratios, advantages)) if ell * a > 0]
    moments = sorted(log_ratios[at] ** 2 for at in region)
    bound = _M2_BOUNDS[mode](moments, threshold)
    out = [at for at in region if not bound[0] <= log_ratios[at] <= bound[1]]
    masked = {"paper": 0.0}.get(mode)
    losses = []
    for at, (ell, a) in enumerate(zip(log_ratios, advantages)):
        stand_in = math.exp(min(max(ell, bound[0]), bound[1])) if masked is None else masked
        losses.append(-a * (stand_in if at in out else math.exp(ell)))
    return losses


def _kept(moments: Sequence[float], threshold: float) -> list[float]:
    """The smallest moments, as many as have a mean of at most the threshold."""
    sums = list(accumulate(moments))
    return [one for count, one in enumerate(moments, start=1) if sums[count - 1] / count <= threshold]


def _paper_bound(moments: Sequence[float], threshold: float) -> tuple[float, float]:
    largest = math.sqrt(max(_kept(moments, threshold), default=-0.0))
    return -largest, largest


def _astraflow_bound(moments: Sequence[float], threshold: float) -> tuple[float, float]:
    largest = math.sqrt(max(_kept(moments, threshold), default=moments[0]))
    return max(-largest, math.log(0.05)), min(largest, math.log(21.0))


def _authors_bound(moments: Sequence[float], threshold: float) -> tuple[float, float]:
    allowed = [one for one in moments if math.fsum(min(m, one) for m in moments) <= len(moments) * threshold]
    largest = math.sqrt(max(allowed, default=0.0))
    return min(-largest, math.log(0.7)), max(largest, math.log(1.5))


_M2_BOUNDS = {"paper": _paper_bound, "astraflow": _astraflow_bound, "authors": _authors_bound}


def corrections(weight: float, cap: float) -> dict[str, float]:
    """By the name of the rollout correction."""
    is_inside = 1.0 / cap <= weight <= cap
    return {"tis": min(weight, cap), "mis": weight if is_inside else 0.0, "decoupled": weight}


def kl(log_ratio: float) -> dict[str, float]:
    """By the name of the estimate."""
    inverse = math.exp(-log_ratio)
    return {"k1": log_ratio, "k2": log_ratio**2 / 2.0, "k3": inverse - 1.0 + log_ratio, "abs": abs(log_ratio)}
