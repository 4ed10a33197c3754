"""The critic's loss against naive code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dagrl.algorithms.value_loss import value_loss
from dagrl.errors import DagrlError


def make_tokens() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    old, change, returns = torch.randn(3, 40, generator=generator)
    return old + change, old, returns


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("huber_delta", [None, 0.4])
def test_loss_and_gradient_equal_naive_code(clip: float | None, huber_delta: float | None) -> None:
    values, old, returns = make_tokens()
    leaf = values.clone().requires_grad_()
    found = value_loss(leaf, old, returns, clip=clip, huber_delta=huber_delta)
    found.loss_T.mean().backward()

    def term(prediction: Tensor, target: Tensor) -> Tensor:
        if huber_delta is None:
            return functional.mse_loss(prediction, target) / 2
        return functional.huber_loss(prediction, target, delta=huber_delta)

    naive = values.clone().requires_grad_()
    terms, num_clipped = [], 0
    for value, old_value, target in zip(naive, old, returns):
        choices = [term(value, target)]
        if clip is not None:
            choices.append(term(torch.clip(value, old_value - clip, old_value + clip), target))
        terms.append(max(choices, key=Tensor.item))
        num_clipped += choices[-1].item() > choices[0].item()
    expected = torch.stack(terms).mean()
    expected.backward()

    assert found.loss_T.tolist() == pytest.approx([each.item() for each in terms], abs=1e-6)
    assert leaf.grad is not None and naive.grad is not None
    assert leaf.grad.tolist() == pytest.approx(naive.grad.tolist(), abs=1e-7)
    assert float(found.metrics["num_clipped"]) == num_clipped


def test_clipping_by_hand() -> None:
    values, old, returns = torch.tensor([2.0, 2.0]), torch.zeros(2), torch.tensor([3.0, 0.0])
    found = value_loss(values, old, returns, clip=0.5)
    # 0.5 (0.5 - 3)^2 beats 0.5 (2 - 3)^2; 0.5 (2 - 0)^2 beats 0.5 (0.5 - 0)^2
    assert found.loss_T.tolist() == [3.125, 2.0]
    metrics = {name: float(value) for name, value in found.metrics.items()}
    assert metrics == {"num_tokens": 2, "num_clipped": 1, "sum_squared_error": 5.0}


def test_unclipped_loss_does_not_read_the_old_values() -> None:
    values, _, returns = make_tokens()
    nan = torch.full_like(values, float("nan"))
    assert torch.equal(value_loss(values, nan, returns).loss_T, 0.5 * (values - returns) ** 2)


def test_metrics_of_micro_batches_add_up() -> None:
    tokens = make_tokens()
    whole = value_loss(*tokens, clip=0.3).metrics
    parts = [value_loss(*part, clip=0.3).metrics for part in zip(*(column.split([7, 0, 33]) for column in tokens))]
    for name, value in whole.items():
        assert float(sum(part[name] for part in parts)) == pytest.approx(float(value))


@pytest.mark.parametrize("options", [{"clip": 0.0}, {"huber_delta": -1.0}])
def test_options_without_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(DagrlError, match="above 0"):
        value_loss(*make_tokens(), **options)
