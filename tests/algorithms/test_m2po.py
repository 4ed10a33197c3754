"""M2PO and its two published variants against numbers worked by hand, a loop that follows the paper, and autograd."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from torch import Tensor

from dagrl.algorithms import Clip, m2_selection, m2po, m2po_loss, ppo_loss
from dagrl.errors import DagrlError

A = ([0.4, 0.2, 0.1, 0.05, -0.3], [1, 1, 1, 1, 1])
B = ([-0.5, 0.45, -0.1, 0.05, 0.9, -0.9], [-1, 1, -1, 1, -1, 1])
C = ([0.5, 0.6], [1, 1])
SMALL = ([0.1, -0.1, 0.05], [1, -1, 1])


def selected(batch, mode: str, threshold: float):
    ratios, advantages = batch
    return m2_selection(torch.tensor(ratios), torch.tensor(advantages, dtype=torch.float32), mode, threshold)


@pytest.mark.parametrize(
    ("batch", "threshold", "kept", "after"),
    [
        (A, 0.04, [0, 1, 1, 1, 1], 0.0175),
        (A, 0.01, [0, 0, 1, 1, 1], 0.00625),
        (B, 0.04, [0, 0, 1, 1, 1, 1], 0.00625),
        (B, 0.01, [0, 0, 1, 1, 1, 1], 0.00625),
        (C, 0.04, [0, 0], None),
        (SMALL, 0.04, [1, 1, 1], 0.0075),
    ],
)
def test_the_paper_leaves_out_the_largest_until_the_mean_of_the_rest_fits(batch, threshold, kept, after) -> None:
    selection = selected(batch, "paper", threshold)
    assert selection.kept_T.tolist() == [bool(one) for one in kept]
    sums = selection.metrics
    if after is None:
        assert sums["num_m2_kept"] == 0
    else:
        assert sums["sum_m2_after"] / sums["num_m2_kept"] == pytest.approx(after)


def test_the_second_moment_before_is_that_of_the_trust_region() -> None:
    for batch, size, before in ((A, 4, 0.053125), (B, 4, 0.11625)):
        sums = selected(batch, "paper", 0.04).metrics
        assert (sums["num_m2_region"], sums["num_m2_tokens"]) == (size, len(batch[0]))
        assert sums["sum_m2_before"] / size == pytest.approx(before)


@pytest.mark.parametrize(
    ("threshold", "kept", "above"), [(0.04, [0, 1, 1, 1, 1], 1.2214), (0.01, [0, 0, 1, 1, 1], 1.1052)]
)
def test_astraflow_clips_at_the_largest_ratio_that_the_paper_keeps(threshold, kept, above) -> None:
    selection = selected(A, "astraflow", threshold)
    assert selection.kept_T.tolist() == [bool(one) for one in kept]
    assert selection.stand_in_T[0].item() == pytest.approx(above, abs=5e-5)


def test_astraflow_clips_below_by_the_same_log_ratio() -> None:
    mirrored = ([-one for one in A[0]], [-1] * 5)
    assert selected(mirrored, "astraflow", 0.04).stand_in_T[0].item() == pytest.approx(1 - 0.1813, abs=5e-5)


def test_astraflow_keeps_the_smallest_of_all_where_the_paper_keeps_none() -> None:
    assert selected(C, "astraflow", 0.04).kept_T.tolist() == [True, False]


def test_astraflow_clips_at_its_widest_where_the_second_moment_is_small() -> None:
    many = ([4.0] + [0.01] * 999, [1] * 1000)
    selection = selected(many, "astraflow", 0.04)
    assert not selection.kept_T[0] and selection.stand_in_T[0].item() == pytest.approx(21.0)
    assert selected(many, "paper", 0.04).kept_T.all()


@pytest.mark.parametrize("threshold", [0.04, 0.01])
def test_the_authors_program_never_clips_narrower_than_its_floor(threshold: float) -> None:
    assert selected(A, "authors", threshold).kept_T.all()


def test_the_authors_program_bounds_the_mean_with_all_larger_ones_at_the_bound() -> None:
    batch = ([1.0, 0.6, 0.5, 0.1], [1, 1, 1, 1])
    # 0.01 + 3 · 0.25 = 0.76 ≤ 4 · 0.2 < 0.01 + 0.25 + 2 · 0.36: the bound is 0.5.
    selection = selected(batch, "authors", 0.2)
    assert selection.kept_T.tolist() == [False, False, True, True]
    assert selection.stand_in_T[0].item() == pytest.approx(math.exp(0.5))


def by_the_letter(ratios: Tensor, advantages: Tensor, threshold: float) -> list[bool]:
    """Algorithm 1 as a loop."""
    kept = [True] * len(ratios)
    region = [i for i, (ratio, better) in enumerate(zip(ratios.tolist(), advantages.tolist())) if ratio * better > 0]
    while region and math.fsum(ratios[i].double().item() ** 2 for i in region) / len(region) > threshold:
        largest = max(region, key=lambda i: abs(ratios[i].item()))
        region.remove(largest)
        kept[largest] = False
    return kept


@pytest.mark.parametrize("seed", range(20))
def test_a_large_batch_is_masked_as_the_loop_of_the_paper_masks_it(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ratios = torch.randn(300, generator=generator) * torch.rand(300, generator=generator).square()
    advantages = torch.randn(300, generator=generator)
    advantages[::7] = 0.0
    for threshold in (0.0, 0.004, 0.04, 1.0):
        assert m2_selection(ratios, advantages, "paper", threshold).kept_T.tolist() == by_the_letter(
            ratios, advantages, threshold
        )


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_of_astraflows_clip_is_that_of_ppo_with_its_range_and_of_the_papers_mask(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(200, generator=generator, dtype=torch.float64) - 0.5
    new = old + 0.4 * torch.randn(200, generator=generator, dtype=torch.float64)
    advantages = torch.randn(200, generator=generator, dtype=torch.float64)
    gradients = []
    for mode in ("paper", "astraflow"):
        selection = m2_selection(new - old, advantages, mode, 0.02)
        logprobs = new.clone().requires_grad_()
        loss = m2po_loss(logprobs, old, advantages, selection.kept_T, selection.stand_in_T)
        loss.loss_T.sum().backward()
        gradients.append(logprobs.grad)
        assert loss.metrics["num_clipped_low"] + loss.metrics["num_clipped_high"] == (~selection.kept_T).sum()
    assert torch.equal(*gradients)
    cut = (new - old)[selection.kept_T & ((new - old) * advantages > 0)].abs().max().item() + 1e-9
    clipped = new.clone().requires_grad_()
    ppo = ppo_loss(clipped, old, advantages, Clip(low=1 - math.exp(-cut), high=math.exp(cut) - 1)).loss_T
    ppo.sum().backward()
    assert torch.allclose(clipped.grad, gradients[0])
    assert torch.allclose(ppo.detach(), loss.loss_T.detach(), atol=1e-7)


def test_a_masked_token_counts_as_nothing_in_the_papers_loss() -> None:
    ratios, advantages = torch.tensor(A[0]), torch.ones(5)
    selection = m2_selection(ratios, advantages, "paper", 0.04)
    loss = m2po_loss(ratios, torch.zeros(5), advantages, selection.kept_T, selection.stand_in_T).loss_T
    assert loss.tolist() == pytest.approx([0.0, *(-math.exp(one) for one in A[0][1:])])


@pytest.mark.parametrize("mode", m2po.M2_MODES)
def test_nothing_is_left_out_of_an_empty_trust_region(mode: str) -> None:
    selection = selected(([0.9, -0.9, 0.0], [-1, 1, 1]), mode, 0.0)
    assert selection.kept_T.all() and selection.metrics["num_m2_region"] == 0
    assert selected(([], []), mode, 0.04).kept_T.numel() == 0


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DagrlError, match="astraflow"):
        selected(A, "adaptive", 0.04)


def test_the_worked_example_runs() -> None:
    assert doctest.testmod(m2po).failed == 0 and doctest.testmod(m2po).attempted > 0
