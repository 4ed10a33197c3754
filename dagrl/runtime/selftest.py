"""Every estimator and loss on one small fixed example, beside its closed form: for `dagrl selftest`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl import algorithms
from dagrl.algorithms import Clip, Links, RoleBaselines, ScoredRows, TurnLayout
from dagrl.runtime import closed_forms

TOLERANCE = 2e-6
"""Largest difference: what float32 leaves of numbers of this size."""

SCORES = ((1.0, 0.0, 1.0), (0.2, 0.4, 0.9), (0.5,))
"""Three groups; the last has one member."""
LENS = ((2, 3, 4), (1, 2, 3), (5,))
VALUES = (0.2, 0.3, 0.5, 0.4, 0.6, 0.7)
"""Three agents, two rounds, a token each; the order is that of time."""
REWARDS = (0.0, 0.0, 0.1, 0.0, 0.0, 1.0)
GAMMA, LAM = 0.99, 0.95
NUM_AGENTS = 3
OLD, LOW, HIGH, DUAL = -1.0, 0.2, 0.28, 3.0
RATIOS, ADVANTAGES = (1.5, 1.5, 0.6, 0.6, 4.0), (1.0, -1.0, 1.0, -1.0, -0.5)
RESPONSES = ((1.5, 0.6), (0.9, 1.2, 1.1))
M2_LOG_RATIOS, M2_ADVANTAGES = (-0.5, 0.45, -0.1, 0.05, 0.9, -0.9), (-1.0, 1.0, -1.0, 1.0, -1.0, 1.0)
M2_THRESHOLD = 0.04
WEIGHTS, CAP = (0.3, 0.9, 1.5, 4.0), 2.0
KL_LOG_RATIOS = (0.3, -0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One name: what the code gives, and what its closed form says."""

    kind: str
    name: str
    got: tuple[float, ...]
    expected: tuple[float, ...]

    @property
    def is_same(self) -> bool:
        """Two that are not numbers are never the same."""
        pairs = zip(self.got, self.expected)
        return len(self.got) == len(self.expected) and all(abs(a - b) <= TOLERANCE for a, b in pairs)


def checks() -> Iterator[Check]:
    """All of them, kind by kind; a name of the tables without a closed form gets NaN, which is never the same."""
    yield from _relative()
    yield from _along_the_stream()
    yield from _token_losses()
    yield from _batch_losses()
    yield from _corrections_and_kl()


def _check(kind: str, name: str, got: Tensor, expected: Sequence[float]) -> Check:
    return Check(kind=kind, name=name, got=tuple(got.double().tolist()), expected=tuple(expected))


def _relative() -> Iterator[Check]:
    rows = ScoredRows(
        scores=torch.tensor([score for group in SCORES for score in group], dtype=torch.float64),
        groups=torch.tensor([number for number, group in enumerate(SCORES) for _ in group]),
        lens=torch.tensor([length for group in LENS for length in group]),
    )
    for name, function in algorithms.RELATIVE_ESTIMATORS.items():
        told = [_by_group(name, scores, lens) for scores, lens in zip(SCORES, LENS)]
        scale = len(SCORES) / sum(len(set(scores)) > 1 for scores in SCORES) if name == "cpgd" else 1.0
        yield _check("estimator", name, function(rows), [scale * one for group in told for one in group])
    scores = (1.0, -1.0, 1.0)
    found = RoleBaselines().advantages(["seat"] * 3, torch.tensor(scores))
    yield _check("estimator", "spiral", found, closed_forms.spiral(scores))
    greedy = torch.tensor([0.5, 0.5, 0.0])
    yield _check("estimator", "remax", algorithms.remax(torch.tensor(scores), greedy), [0.5, -1.5, 1.0])


def _by_group(name: str, scores: Sequence[float], lens: Sequence[int]) -> list[float]:
    if name not in closed_forms.RELATIVE:
        return [math.nan] * len(scores)
    return closed_forms.RELATIVE[name](scores, lens) if len(set(scores)) > 1 else [0.0] * len(scores)


def _along_the_stream() -> Iterator[Check]:
    turns = torch.arange(len(VALUES))
    layout = TurnLayout(
        response_lens=torch.ones_like(turns),
        trajectory=torch.zeros_like(turns),
        round=turns // NUM_AGENTS,
        agent_group=turns % NUM_AGENTS,
    )
    for name, estimator in algorithms.ESTIMATORS.items():
        found, _ = estimator.fn(
            torch.tensor(REWARDS), torch.tensor(VALUES), layout, torch.zeros(1), Links.uniform(GAMMA, LAM)
        )
        yield _check("estimator", name, found, _STREAMS.get(name, _unknown)())


def _unknown() -> list[float]:
    return [math.nan] * len(VALUES)


def _chained() -> list[float]:
    return closed_forms.gae(REWARDS, VALUES, GAMMA * LAM, GAMMA)


def _by_agent(values: Sequence[float], decay: float) -> list[float]:
    found = [0.0] * len(REWARDS)
    for agent in range(NUM_AGENTS):
        found[agent::NUM_AGENTS] = closed_forms.gae(REWARDS[agent::NUM_AGENTS], values[agent::NUM_AGENTS], decay, GAMMA)
    return found


_STREAMS: dict[str, Callable[[], list[float]]] = {
    "gae_marft": _chained,
    "gae": lambda: _by_agent(VALUES, GAMMA * LAM),
    "reinforce_plus_plus": lambda: _by_agent([0.0] * len(VALUES), GAMMA),
}


def _token_losses() -> Iterator[Check]:
    old, advantages = torch.full((len(RATIOS),), OLD), torch.tensor(ADVANTAGES)
    logprobs = old + torch.tensor(RATIOS).log()
    clip = Clip(low=LOW, high=HIGH, dual=DUAL)
    for name, function in algorithms.POLICY_LOSSES.items():
        form = closed_forms.TOKEN_LOSSES.get(name)
        expected = [
            math.nan if form is None else form(ratio, a, LOW, HIGH, DUAL, OLD) for ratio, a in zip(RATIOS, ADVANTAGES)
        ]
        yield _check("loss", name, function(logprobs, old, advantages, clip).loss_T, expected)


def _batch_losses() -> Iterator[Check]:
    lens = torch.tensor([len(ratios) for ratios in RESPONSES])
    log_ratio = torch.tensor([ratio for ratios in RESPONSES for ratio in ratios]).log()
    signs = (1.0, -1.0)
    advantages = torch.tensor(signs).repeat_interleave(lens)
    clip = Clip(low=LOW, high=HIGH, dual=DUAL)
    for name, function in algorithms.SEQUENCE_LOSSES.items():
        form = closed_forms.gspo if name == "gspo" else None
        loss = function(log_ratio, torch.zeros_like(log_ratio), advantages, lens, clip).loss_T
        expected = [math.nan if form is None else form(r, a, LOW, HIGH, DUAL) for r, a in zip(RESPONSES, signs)]
        yield _check("loss", name, loss[lens.cumsum(0) - 1], expected)
    log_ratio, advantages = torch.tensor(M2_LOG_RATIOS, dtype=torch.float64), torch.tensor(M2_ADVANTAGES)
    for mode in algorithms.M2_MODES:
        chosen = algorithms.m2_selection(log_ratio, advantages, mode, M2_THRESHOLD)
        nothing = torch.zeros_like(log_ratio)
        loss = algorithms.m2po_loss(log_ratio, nothing, advantages, chosen.kept_T, chosen.stand_in_T).loss_T
        expected = closed_forms.m2po(M2_LOG_RATIOS, M2_ADVANTAGES, M2_THRESHOLD, mode)
        yield _check("loss", f"m2po {mode}", loss, expected)


def _corrections_and_kl() -> Iterator[Check]:
    log_weight = torch.tensor(WEIGHTS).log()
    for name in algorithms.ROLLOUT_CORRECTIONS:
        expected = [closed_forms.corrections(weight, CAP).get(name, math.nan) for weight in WEIGHTS]
        found = algorithms.correction_weights(name, log_weight, CAP)
        yield _check("correction", name, found, expected)
    log_ratio = torch.tensor(KL_LOG_RATIOS)
    for name in algorithms.KL_KINDS:
        found = algorithms.kl_estimate(log_ratio, torch.zeros_like(log_ratio), name)
        yield _check("kl", name, found, [closed_forms.kl(one).get(name, math.nan) for one in KL_LOG_RATIOS])
