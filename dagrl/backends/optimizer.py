"""AdamW with float32 master weights, a learning-rate schedule and clipping by the global norm."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from dagrl.errors import DagrlError, StorageError
from dagrl.workflow.sections import OptimSpec

Gradient = list[Tensor | None]
"""By parameter; None where it has none."""


def lr_factor(step: int, spec: OptimSpec, total_steps: int | None) -> float:
    """What `spec.lr` is multiplied by in optimizer step `step` (from 0).

    Warm-up rises linearly and reaches 1 with step `warmup_steps`; then constant, or linear or cosine down to
    `min_lr_ratio` at the end of `total_steps`, and constant from there. Raises DagrlError where an end is needed and
    not known.
    """
    if step < spec.warmup_steps:
        return (step + 1) / (spec.warmup_steps + 1)
    if spec.schedule == "constant":
        return 1.0
    end = spec.total_steps if spec.total_steps is not None else total_steps
    if end is None:
        raise DagrlError(
            f"the schedule '{spec.schedule}' needs an end and the number of optimizer steps is not known",
            where="optim",
            how="give optim.total_steps or trainer.total_steps",
        )
    progress = min(1.0, (step - spec.warmup_steps) / max(1, end - spec.warmup_steps))
    shape = 1.0 - progress if spec.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return spec.min_lr_ratio + (1.0 - spec.min_lr_ratio) * shape


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one call of `Optimizer.step` did."""

    grad_norm: float
    """Before clipping."""
    lr: float
    is_finite: bool
    """False: no step was made."""


class Optimizer:
    """AdamW over `parameters`; those of less than float32 have a float32 master copy that gradients sum up in.

    Weight decay acts on matrices only, not on biases and norms.
    """

    def __init__(self, parameters: Sequence[Parameter], spec: OptimSpec, *, total_steps: int | None) -> None:
        assert parameters, "an optimizer needs parameters"
        lr_factor(spec.warmup_steps, spec, total_steps)
        self._spec = spec
        self._total_steps = total_steps
        self._parameters = list(parameters)
        self._masters = [_master(parameter) for parameter in parameters]
        decayed = [master for master in self._masters if master.dim() >= 2]
        others = [master for master in self._masters if master.dim() < 2]
        decays = [(decayed, spec.weight_decay), (others, 0.0)]
        self._adam = torch.optim.AdamW(
            [{"params": params, "weight_decay": decay} for params, decay in decays if params],
            lr=spec.lr,
            betas=spec.betas,
            eps=spec.eps,
            fused=True,
        )
        self.version = 0

    def collect(self) -> None:
        """Moves gradients of low precision to the masters; to be called after every backward pass."""
        for parameter, master in self._low_precision():
            if parameter.grad is None:
                continue
            gradient = parameter.grad.to(master.dtype)
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return self._spec.lr * lr_factor(self.version, self._spec, self._total_steps)

    def step(self) -> StepStats:
        """One step on the gradients collected, which are gone afterwards; none where their norm is not finite."""
        gradients = [master.grad for master in self._masters if master.grad is not None]
        total = torch.nn.utils.get_total_norm(gradients)
        lr, norm = self.lr, float(total)
        if not math.isfinite(norm):
            self.discard()
            return StepStats(grad_norm=norm, lr=lr, is_finite=False)
        if self._spec.grad_clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._masters, self._spec.grad_clip, total)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self.discard()
        self._publish()
        self.version += 1
        return StepStats(grad_norm=norm, lr=lr, is_finite=True)

    def take_gradients(self) -> Gradient:
        """The gradients collected, on the CPU, by parameter; they are gone afterwards."""
        taken = [None if master.grad is None else master.grad.detach().cpu().clone() for master in self._masters]
        self.discard()
        return taken

    def discard(self) -> None:
        """Drops all gradients."""
        for parameter, master in zip(self._parameters, self._masters):
            parameter.grad = None
            master.grad = None

    def reread(self) -> None:
        """Takes the masters anew from the parameters, whose values were loaded from elsewhere."""
        for parameter, master in self._low_precision():
            master.data.copy_(parameter.data)

    @property
    def num_bytes(self) -> int:
        """Memory of masters and moments."""
        moments = [value for state in self._adam.state.values() for value in state.values() if torch.is_tensor(value)]
        masters = [master for _, master in self._low_precision()]
        return sum(tensor.numel() * tensor.element_size() for tensor in [*moments, *masters])

    def state_dict(self) -> dict[str, Any]:
        """Holds the very tensors in use: to be written before the next step."""
        masters = [master.detach() for _, master in self._low_precision()]
        return {"version": self.version, "adam": self._adam.state_dict(), "masters": masters}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises StorageError where `state` is of another set of parameters."""
        pairs = self._low_precision()
        shapes = [tuple(master.shape) for _, master in pairs]
        if [tuple(tensor.shape) for tensor in state["masters"]] != shapes:
            raise StorageError("the optimizer state saved is of another model", how="resume with the same workflow")
        try:
            self._adam.load_state_dict(copy.deepcopy(state["adam"]))
        except ValueError as error:
            raise StorageError(f"the optimizer state saved is of another model: {error}") from error
        for (_, master), tensor in zip(pairs, state["masters"]):
            master.data.copy_(tensor)
        if pairs:
            self._publish()
        self.version = int(state["version"])

    def _low_precision(self) -> list[tuple[Parameter, Tensor]]:
        return [(p, m) for p, m in zip(self._parameters, self._masters) if p is not m]

    @torch.no_grad()
    def _publish(self) -> None:
        for parameter, master in self._low_precision():
            parameter.copy_(master)


def _master(parameter: Parameter) -> Parameter:
    if parameter.dtype in (torch.float32, torch.float64):
        return parameter
    return Parameter(parameter.detach().to(torch.float32))


def products_of(gradients: Sequence[Gradient]) -> Tensor:
    """[P, P] float64: dot products of gradients with each other."""
    products = torch.zeros(len(gradients), len(gradients), dtype=torch.float64)
    for row, one in enumerate(gradients):
        for column, other in enumerate(gradients[: row + 1]):
            pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
            product = sum(float((a.double() * b.double()).sum()) for a, b in pairs)
            products[row, column] = products[column, row] = product
    return products
