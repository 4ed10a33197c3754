"""ReMax: a reward beside that of the greedy answer to the same prompt."""

from __future__ import annotations

from torch import Tensor


def remax(scores: Tensor, greedy_scores: Tensor) -> Tensor:
    """`R - R_greedy`, `[R]` each: Li et al. 2023 (arXiv 2310.10505). All tokens of a row share it.

    The baseline does not depend on the sample, so the gradient stays unbiased, and one sample of a prompt is enough; an
    answer that is as good as the greedy one gives exactly 0.
    """
    return scores.double() - greedy_scores.double()
