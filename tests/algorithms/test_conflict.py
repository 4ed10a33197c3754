"""Norms and cosines of gradients from their dot products, by hand."""

import torch

from dagrl.algorithms import norms_and_cosines


def test_norms_and_cosines_are_those_of_the_vectors_and_no_gradient_has_no_direction():
    vectors = torch.tensor([[3.0, 4.0], [4.0, -3.0], [-6.0, -8.0], [0.0, 0.0]], dtype=torch.float64)
    norms, cosines = norms_and_cosines(vectors @ vectors.T)
    assert norms.tolist() == [5.0, 5.0, 10.0, 0.0]
    assert cosines.tolist() == [[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [-1.0, 0.0, 1.0, 0.0], [0.0] * 4]
