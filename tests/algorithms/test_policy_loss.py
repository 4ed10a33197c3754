"""PPO losses per token and per action, against golden numbers and naive padded code."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dagrl.algorithms.aggregate import action_weights, token_weights
from dagrl.algorithms.policy_loss import ACTION_NORMALISATIONS, Clip, action_ppo_loss, ppo_loss
from dagrl.errors import DagrlError

GOLDEN_CLIP = Clip(low=0.2, high=0.28, dual=3.0)
LENS = torch.tensor([3, 0, 5, 1, 2])


def make_tokens(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(11, generator=generator) * 3
    new = old + torch.randn(11, generator=generator) * 0.7
    return new, old, torch.randn(11, generator=generator)


def pad(values_T: Tensor, lens_K: Tensor) -> Tensor:
    """`[K, longest]`, zeros behind each turn's tokens; one slice at a time."""
    rows, start = [], 0
    for length in lens_K.tolist():
        row = values_T[start : start + length]
        rows.append(torch.cat([row, torch.zeros(int(lens_K.max()) - length)]))
        start += length
    return torch.stack(rows)


def naive_surrogate(ratio: Tensor, advantage: Tensor, clip: Clip) -> Tensor:
    """The smaller of the two surrogates, written with min as in the paper, and the dual bound by cases."""
    low, high = 1 - clip.low, 1 + clip.high
    clipped = torch.where(ratio < low, low, torch.where(ratio > high, high, ratio))
    objective = torch.min(ratio * advantage, clipped * advantage)
    if clip.dual is not None:
        bounded = torch.max(objective, clip.dual * advantage)
        objective = torch.where(advantage < 0, bounded, objective)
    return -objective


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1.0, -1.28), (1.5, -1.0, 1.5), (0.6, 1.0, -0.6), (0.6, -1.0, 0.8), (5.0, -1.0, 3.0), (5.0, 0.0, 0.0)],
)
def test_golden_g7(ratio: float, advantage: float, expected: float) -> None:
    new = torch.tensor([-1.0 + math.log(ratio)])
    found = ppo_loss(new, torch.tensor([-1.0]), torch.tensor([advantage]), GOLDEN_CLIP)
    assert float(found.loss_T) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dual", [None, 1.5])
def test_token_loss_and_gradient_equal_naive_padded_code(dual: float | None) -> None:
    new, old, advantages = make_tokens()
    clip = Clip(low=0.2, high=0.3, dual=dual)
    flat = new.clone().requires_grad_()
    loss = (token_weights("seq-mean-token-mean", LENS) * ppo_loss(flat, old, advantages, clip).loss_T).sum()
    loss.backward()

    naive = new.clone().requires_grad_()
    ratio = (pad(naive, LENS) - pad(old, LENS)).exp()
    mask = pad(torch.ones(11), LENS)
    per_token = naive_surrogate(ratio, pad(advantages, LENS), clip) * mask
    spoken = mask.sum(1) > 0
    expected = (per_token.sum(1)[spoken] / mask.sum(1)[spoken]).mean()
    expected.backward()

    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert flat.grad is not None and naive.grad is not None
    assert flat.grad.tolist() == pytest.approx(naive.grad.tolist(), abs=1e-6)


@pytest.mark.parametrize("normalisation", ["sum", "mean"])
def test_action_loss_and_gradient_equal_naive_padded_code(normalisation: str) -> None:
    new, old, _ = make_tokens(1)
    of_turn = torch.tensor([0.5, 9.0, -1.0, 2.0, -0.3])
    advantages = of_turn.repeat_interleave(LENS)
    clip = Clip(low=0.2, high=0.3, dual=3.0)
    flat = new.clone().requires_grad_()
    found = action_ppo_loss(flat, old, advantages, LENS, clip, normalisation)
    loss = (action_weights(LENS) * found.loss_T).sum()
    loss.backward()

    naive = new.clone().requires_grad_()
    log_ratio = (pad(naive, LENS) - pad(old, LENS)).sum(1)
    if normalisation == "mean":
        log_ratio = log_ratio / torch.tensor([3.0, 1.0, 5.0, 1.0, 2.0])
    expected = naive_surrogate(log_ratio.exp(), of_turn, clip)[LENS > 0].mean()
    expected.backward()

    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert flat.grad is not None and naive.grad is not None
    assert flat.grad.tolist() == pytest.approx(naive.grad.tolist(), abs=1e-6)
    assert [i for i, value in enumerate(found.loss_T.tolist()) if value != 0] == [2, 7, 8, 10]
    assert float(found.metrics["num_ratios"]) == 4


def test_action_loss_without_normalisation_is_the_token_loss() -> None:
    new, old, advantages = make_tokens(2)
    tokens = ppo_loss(new, old, advantages, GOLDEN_CLIP)
    actions = action_ppo_loss(new, old, advantages, LENS, GOLDEN_CLIP, "none")
    assert torch.equal(tokens.loss_T, actions.loss_T)
    assert tokens.metrics == actions.metrics


def test_gradient_at_ratio_one_is_minus_the_advantage() -> None:
    _, old, advantages = make_tokens(3)
    new = old.clone().requires_grad_()
    ppo_loss(new, old, advantages, GOLDEN_CLIP).loss_T.sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == pytest.approx((-advantages).tolist(), abs=1e-6)


def test_metrics_count_each_kind_of_clip() -> None:
    ratios = torch.tensor([1.5, 1.1, 0.5, 0.5, 4.0, 4.0, 1.5])
    advantages = torch.tensor([1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    metrics = ppo_loss(ratios.log(), torch.zeros(7), advantages, GOLDEN_CLIP).metrics
    counts = {name: float(value) for name, value in metrics.items() if name.startswith("num_")}
    assert counts == {"num_ratios": 7, "num_clipped_low": 1, "num_clipped_high": 2, "num_clipped_dual": 1}
    assert float(metrics["sum_ratio"]) == pytest.approx(float(ratios.sum()), rel=1e-6)
    logs = [math.log(ratio) for ratio in ratios.tolist()]
    assert float(metrics["sum_kl_k1"]) == pytest.approx(-sum(logs), abs=1e-5)
    assert float(metrics["sum_kl_k3"]) == pytest.approx(sum(math.exp(x) - 1 - x for x in logs), abs=1e-5)


@pytest.mark.parametrize("normalisation", ACTION_NORMALISATIONS)
def test_loss_gradient_and_metrics_do_not_depend_on_micro_batches(normalisation: str) -> None:
    new, old, advantages = make_tokens(4)
    weights = token_weights("token-mean", LENS) if normalisation == "none" else action_weights(LENS)

    def run(turn_splits: list[int]) -> tuple[float, list[float], dict[str, float]]:
        leaf = new.clone().requires_grad_()
        total, sums, start = 0.0, dict.fromkeys(("num_clipped_high", "sum_kl_k3", "num_ratios"), 0.0), 0
        for lens in LENS.split(turn_splits):
            part = slice(start, start + int(lens.sum()))
            found = action_ppo_loss(leaf[part], old[part], advantages[part], lens, GOLDEN_CLIP, normalisation)
            loss = (weights[part] * found.loss_T).sum()
            loss.backward()
            total += loss.item()
            sums = {name: value + float(found.metrics[name]) for name, value in sums.items()}
            start = part.stop
        assert leaf.grad is not None
        return total, leaf.grad.tolist(), sums

    whole = run([5])
    for turn_splits in ([1, 1, 1, 1, 1], [2, 3], [4, 1]):
        split = run(turn_splits)
        assert split[0] == pytest.approx(whole[0], abs=1e-6)
        assert split[1] == pytest.approx(whole[1], abs=1e-7)
        assert split[2] == pytest.approx(whole[2])


def test_absurd_ratios_stay_finite() -> None:
    new = torch.tensor([500.0, -500.0], requires_grad=True)
    found = ppo_loss(new, torch.zeros(2), torch.tensor([-1.0, -1.0]), Clip(low=0.2, high=0.2))
    found.loss_T.sum().backward()
    assert new.grad is not None
    assert torch.isfinite(found.loss_T).all() and torch.isfinite(new.grad).all()
    assert all(math.isfinite(float(value)) for value in found.metrics.values())


def test_batch_without_tokens_gives_no_loss() -> None:
    nothing = torch.zeros(0)
    for normalisation in ACTION_NORMALISATIONS:
        found = action_ppo_loss(nothing, nothing, nothing, torch.tensor([0, 0]), GOLDEN_CLIP, normalisation)
        assert found.loss_T.shape == (0,) and float(found.metrics["num_ratios"]) == 0


@pytest.mark.parametrize("bad", [{"low": -0.1, "high": 0.2}, {"low": 0.2, "high": 0.2, "dual": 1.0}])
def test_clip_without_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(DagrlError, match="clip"):
        Clip(**bad)


def test_unknown_normalisation_is_refused() -> None:
    new, old, advantages = make_tokens()
    with pytest.raises(DagrlError, match="'word'"):
        action_ppo_loss(new, old, advantages, LENS, GOLDEN_CLIP, "word")
