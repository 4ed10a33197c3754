"""Group-relative advantages: a score beside the scores of its group, with no critic.

A row is what is compared: an agent's part of a trajectory, or one of its turns. All statistics are in float64. A group
of one, and a group whose scores are all equal, give exactly 0, whatever rounding its mean would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.errors import DagrlError

_EPS = 1e-6
"""Added to a group's deviation, as GRPO's implementations have it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredRows:
    """One entry per row, `[R]`.

    Two samples of one prompt, three and four tokens long:

    >>> rows = ScoredRows(
    ...     scores=torch.tensor([1.0, 0.0]), groups=torch.tensor([0, 0]), lens=torch.tensor([3, 4])
    ... )
    >>> mean_baseline(rows).tolist()
    [0.5, -0.5]
    """

    scores: Tensor
    """float64 (made so): sum of rewards of each row."""
    groups: Tensor
    """int64: group of each row, 0..G-1."""
    lens: Tensor
    """int64: response tokens of each row."""
    weights: Tensor | None = None
    """float64, from 1 up: how much each row counts in its group, for `grpo` and `mean_baseline`; None: as any other."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", self.scores.double())
        if not self.scores.shape == self.groups.shape == self.lens.shape or self.scores.dim() != 1:
            shapes = tuple(self.scores.shape), tuple(self.groups.shape), tuple(self.lens.shape)
            raise DagrlError(f"scores, groups and lens have shapes {shapes}", how="give one entry per row in each")
        if not bool(torch.isfinite(self.scores).all()):
            raise DagrlError("a score is not a finite number")


def numbered(*keys: Tensor) -> Tensor:
    """Group of each row, `[R]` int64 from 0: rows are together where all `keys` (`[R]` int64 each) agree."""
    labels: Tensor = torch.unique(torch.stack(keys, dim=1), dim=0, return_inverse=True)[1]
    return labels


def sample_weights(groups: Tensor, samples: Tensor) -> Tensor:
    """Weights with which all samples of a group count the same, `[R]` float64: D / d, where the row's sample has d rows
    in the group and the sample with most has D.

    M-GRPO (arXiv 2511.13288) draws as many calls of an agent from each sample; this is what copying them comes to.
    """
    same = numbered(groups, samples)
    own = torch.bincount(same)[same].double()
    most = torch.zeros(int(groups.max()) + 1 if groups.numel() else 0, dtype=torch.float64)
    return most.scatter_reduce(0, groups, own, "amax")[groups] / own


def weighed(advantages: Tensor, rows: ScoredRows) -> Tensor:
    """What a loss without weights must be given so that rows count by theirs: times the weight over the group's mean
    weight. Clipped losses are linear in the advantage where its sign stays."""
    if rows.weights is None:
        return advantages
    mean = _sum(torch.ones_like(rows.scores), rows) / torch.bincount(rows.groups, minlength=_size(rows)).clamp(min=1)
    return advantages * rows.weights / mean[rows.groups]


def grpo(rows: ScoredRows) -> Tensor:
    """`(R - mean) / (std + 1e-6)` within the group, sample deviation: DeepSeekMath (arXiv 2402.03300), eq. 3.

    Groups of prompt and agent make it Dr. MAS (arXiv 2602.08847), with the turn as well AT-GRPO (arXiv 2510.11062).
    """
    centred = mean_baseline(rows)
    spread = (_sum(centred.square(), rows) / (_count(rows) - 1).clamp(min=1)).sqrt()
    return centred / (spread[rows.groups] + _EPS)


def mean_baseline(rows: ScoredRows) -> Tensor:
    """`R - mean` within the group: Dr. GRPO (arXiv 2503.20783), and MAGRPO (arXiv 2508.04652) with a team's reward."""
    return _without_signal_0(rows.scores - _mean(rows)[rows.groups], rows)


def leave_one_out(rows: ScoredRows) -> Tensor:
    """`R -` mean of the others of the group: RLOO (Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740)."""
    count = _count(rows).double()
    return mean_baseline(rows) * (count / (count - 1).clamp(min=1))[rows.groups]


def length_weighted_baseline(rows: ScoredRows) -> Tensor:
    """`R - Σ|y|R / Σ|y|` within the group, the baseline of least variance: OPO (arXiv 2505.23585), eq. 10."""
    lens = rows.lens.double()
    baseline = _sum(lens * rows.scores, rows) / _sum(lens, rows).clamp(min=1.0)
    return _without_signal_0(rows.scores - baseline[rows.groups], rows)


def mean_relative(rows: ScoredRows) -> Tensor:
    """`(R - mean) / mean` within the group: MaxRL. For rewards from 0 up; a group whose mean is 0 gives 0."""
    mean = _mean(rows)[rows.groups]
    return torch.where(mean == 0.0, 0.0, mean_baseline(rows) / torch.where(mean == 0.0, 1.0, mean))


def informative_mean_baseline(rows: ScoredRows) -> Tensor:
    """`(R - mean) · G / G'`, G' of the G groups having unequal scores: CPGD's weights (arXiv 2505.12504)."""
    has_signal = signal(rows)
    return mean_baseline(rows) * (has_signal.numel() / max(int(has_signal.sum()), 1))


def signal(rows: ScoredRows) -> Tensor:
    """Whether each group, `[G]` bool, holds unequal scores."""
    fresh = torch.zeros(_size(rows), dtype=torch.float64)
    top = fresh.scatter_reduce(0, rows.groups, rows.scores, "amax", include_self=False)
    low = fresh.scatter_reduce(0, rows.groups, rows.scores, "amin", include_self=False)
    return top > low


def _without_signal_0(advantages: Tensor, rows: ScoredRows) -> Tensor:
    return torch.where(signal(rows)[rows.groups], advantages, 0.0)


def _size(rows: ScoredRows) -> int:
    return int(rows.groups.max()) + 1 if rows.groups.numel() else 0


def _count(rows: ScoredRows) -> Tensor:
    """Of each group; where rows have weights, their sum."""
    return _sum(torch.ones_like(rows.scores), rows)


def _sum(values: Tensor, rows: ScoredRows) -> Tensor:
    weighted = values if rows.weights is None else values * rows.weights
    return torch.zeros(_size(rows), dtype=torch.float64).index_add(0, rows.groups, weighted)


def _mean(rows: ScoredRows) -> Tensor:
    return _sum(rows.scores, rows) / _count(rows).clamp(min=1)


RelativeFunction = Callable[[ScoredRows], Tensor]

RELATIVE_ESTIMATORS: Mapping[str, RelativeFunction] = {
    "grpo": grpo,
    "dr_grpo": mean_baseline,
    "rloo": leave_one_out,
    "reinforce_plus_plus_baseline": mean_baseline,
    "opo": length_weighted_baseline,
    "maxrl": mean_relative,
    "cpgd": informative_mean_baseline,
}
"""Advantage of each row, `[R]` float64; all tokens of a row get it. `reinforce_plus_plus_baseline` (arXiv 2501.03262)
is whitened over the batch afterwards, by the default of `norm_adv`."""
