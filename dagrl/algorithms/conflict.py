"""Whether the roles that share a policy pull its weights the same way: norms and cosines of their gradients."""

from __future__ import annotations

from torch import Tensor


def norms_and_cosines(products: Tensor) -> tuple[Tensor, Tensor]:
    """([P] norms, [P, P] cosines in [-1, 1]) of P gradients from their dot products [P, P] (float64).

    The loss is a sum over turns, so the gradients of its parts sum to that of the whole, whose squared norm is the sum
    of `products`. A gradient of 0 has cosine 0 with every other. Gradient cosine as a measure of conflict between tasks
    that share weights: Yu et al. 2020 (arXiv 2001.06782), definition 1.
    """
    norms = products.diagonal().clamp_min(0.0).sqrt()
    scale = norms[:, None] * norms[None, :]
    cosines = (products / scale.where(scale > 0, 1.0)).where(scale > 0, 0.0).clamp(-1.0, 1.0)
    return norms, cosines
