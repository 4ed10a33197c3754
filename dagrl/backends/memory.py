"""Running out of memory: a pass is made again with smaller micro-batches, down to one sequence at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from dagrl.backends.base import MicroBatch
from dagrl.errors import MachineError
from dagrl.workflow.sections import UpdateSpec

_T = TypeVar("_T")
_CPU_WORDS = ("DefaultCPUAllocator", "not enough memory", "std::bad_alloc")
"""What torch's RuntimeError says where the CPU's memory is at its end; it has no class of its own."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """How much is computed at once; changes nothing but memory and speed. Shrinks where memory runs out."""

    micro_batch_tokens: int
    """Positions of one forward pass, padding included."""
    logprob_chunk_tokens: int
    """Rows of logits that exist at once."""
    num_halved: int = 0
    """How often memory ran out so far."""

    def state_dict(self) -> dict[str, Any]:
        return {"micro_batch_tokens": self.micro_batch_tokens, "num_halved": self.num_halved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What memory has taught is remembered; a checkpoint of a run that had enough changes nothing."""
        self.num_halved = state["num_halved"]
        if self.num_halved:
            self.micro_batch_tokens = min(self.micro_batch_tokens, state["micro_batch_tokens"])


@dataclass(frozen=True, slots=True)
class MicroPlan:
    """The micro-batches of one pass."""

    batches: list[MicroBatch]
    padding: float
    largest: int
    """Positions of the largest micro-batch, padding included."""


def budget_of(spec: UpdateSpec) -> Budget:
    return Budget(micro_batch_tokens=spec.micro_batch_tokens, logprob_chunk_tokens=spec.logprob_chunk_tokens)


def within_memory(budget: Budget, plan: Callable[[], MicroPlan], work: Callable[[MicroPlan], _T]) -> _T:
    """`work` on `plan()`; where memory runs out `budget` is halved and both are done again.

    `work` must leave nothing behind when it fails. Raises MachineError where one sequence at a time is too much.
    """
    while True:
        micro_plan = plan()
        try:
            return work(micro_plan)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if all(len(batch.turns) == 1 for batch in micro_plan.batches):
                raise out_of_memory_error(f"with one sequence of {micro_plan.largest} tokens at a time") from error
        # Outside of `except`: the error holds the frames that hold the tensors.
        budget.micro_batch_tokens = max(micro_plan.largest // 2, 1)
        budget.num_halved += 1
        _free()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the GPU's or the CPU's memory was at its end."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _CPU_WORDS)


def out_of_memory_error(when: str) -> MachineError:
    return MachineError(
        f"memory ran out {when}",
        how="set model.gradient_checkpointing: true or dtype: bfloat16, train an adapter, or lower "
        "rollout.max_context_len, rollout.max_batch_size, rollout.prefix_cache_tokens or logprob_chunk_tokens",
    )


def _free() -> None:
    gc.collect()
    torch.cuda.empty_cache()  # nothing where there is no GPU
