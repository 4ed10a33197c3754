"""AdamW with masters and schedules, against torch's own and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import Parameter

from dagrl.backends.optimizer import Optimizer, lr_factor
from dagrl.errors import DagrlError, StorageError
from dagrl.workflow.sections import OptimSpec


def test_warm_up_rises_and_the_schedules_end_at_their_ratio() -> None:
    linear = OptimSpec(schedule="linear", warmup_steps=3, total_steps=13, min_lr_ratio=0.2)
    assert [lr_factor(step, linear, None) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert lr_factor(8, linear, None) == pytest.approx(0.6)
    assert lr_factor(13, linear, None) == lr_factor(99, linear, None) == pytest.approx(0.2)
    cosine = OptimSpec(schedule="cosine")
    assert lr_factor(0, cosine, 8) == 1.0
    assert lr_factor(2, cosine, 8) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert lr_factor(5, OptimSpec(), None) == 1.0


def test_a_schedule_without_an_end_is_refused() -> None:
    with pytest.raises(DagrlError, match="total_steps"):
        Optimizer([Parameter(torch.ones(2))], OptimSpec(schedule="cosine"), total_steps=None)


def test_a_step_equals_torchs_adamw_with_clipping() -> None:
    ours, theirs = Parameter(torch.arange(6.0).view(2, 3)), Parameter(torch.arange(6.0).view(2, 3))
    optimizer = Optimizer([ours], OptimSpec(lr=0.1, weight_decay=0.1, grad_clip=0.5), total_steps=None)
    reference = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        for weight in (ours, theirs):
            (weight.sin() * 3).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_([theirs], 0.5)
        reference.step()
        reference.zero_grad()
        stats = optimizer.step()
        assert stats.grad_norm == pytest.approx(float(norm)) and ours.grad is None
    torch.testing.assert_close(ours, theirs)
    assert optimizer.version == 3


def test_small_steps_on_bfloat16_weights_add_up_in_the_masters() -> None:
    """At 1.0 a bfloat16 cannot move by 1e-4; 100 such steps must move it by 1e-2 all the same."""
    weight = Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = Optimizer([weight], OptimSpec(lr=1e-4), total_steps=None)
    for _ in range(100):
        weight.float().sum().backward()
        optimizer.collect()
        optimizer.step()
    assert weight.dtype == torch.bfloat16
    torch.testing.assert_close(weight.float(), torch.full((4,), 0.99), atol=4e-3, rtol=0)


def test_gradients_of_bfloat16_weights_are_summed_in_float32() -> None:
    """256 + 1 is 256 in bfloat16."""
    weight = Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = Optimizer([weight], OptimSpec(grad_clip=None), total_steps=None)
    for share in (256.0, 1.0, 1.0):
        (weight * share).sum().backward()
        optimizer.collect()
    assert optimizer.step().grad_norm == pytest.approx(258.0)


def test_a_gradient_that_is_not_finite_makes_no_step() -> None:
    weight = Parameter(torch.ones(2))
    optimizer = Optimizer([weight], OptimSpec(lr=0.1), total_steps=None)
    (weight * float("inf")).sum().backward()
    stats = optimizer.step()
    assert not stats.is_finite and optimizer.version == 0 and weight.grad is None
    assert weight.tolist() == [1.0, 1.0]


def _step(weight: Parameter, optimizer: Optimizer) -> None:
    (weight.float() ** 3).sum().backward()
    optimizer.collect()
    optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_optimizer_goes_on_as_if_never_stopped(dtype: torch.dtype) -> None:
    spec = OptimSpec(lr=0.01, schedule="linear")
    weight = Parameter(torch.linspace(-1, 1, 5).to(dtype))
    optimizer = Optimizer([weight], spec, total_steps=10)
    _step(weight, optimizer)
    copy = Parameter(weight.detach().clone())
    restored = Optimizer([copy], spec, total_steps=10)
    restored.load_state_dict(optimizer.state_dict())
    for pair in ((weight, optimizer), (copy, restored)):
        _step(*pair)
        _step(*pair)
    assert torch.equal(weight, copy) and restored.version == optimizer.version == 3


def test_the_state_of_another_model_is_refused() -> None:
    state = Optimizer([Parameter(torch.ones(2, dtype=torch.bfloat16))], OptimSpec(), total_steps=None).state_dict()
    with pytest.raises(StorageError, match="another model"):
        Optimizer([Parameter(torch.ones(3, dtype=torch.bfloat16))], OptimSpec(), total_steps=None).load_state_dict(
            state
        )
