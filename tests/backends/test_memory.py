"""Running out of memory: the same step with smaller micro-batches, once, or an error that says what to change."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from dagrl.backends.base import MicroBatch
from dagrl.backends.hf_critic import HFCritic
from dagrl.backends.hf_trainer import HFPolicy
from dagrl.backends.memory import Budget, is_out_of_memory
from dagrl.backends.network import Network
from dagrl.backends.optimizer import Optimizer
from dagrl.errors import MachineError
from dagrl.experience import Sequences
from dagrl.workflow.sections import OptimSpec

OPTIM = OptimSpec(lr=1e-2, weight_decay=0.0)
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory: you tried to allocate 8"),
    MemoryError(),
]


def policy_of(model: Any, tokens: int) -> HFPolicy:
    optimizer = Optimizer(list(model.parameters()), OPTIM, total_steps=None)
    budget = Budget(micro_batch_tokens=tokens, logprob_chunk_tokens=1000)
    return HFPolicy(Network(model, name="m"), tokenizer=None, budget=budget, optimizer=optimizer)


def critic_of(model: Any, tokens: int) -> HFCritic:
    budget = Budget(micro_batch_tokens=tokens, logprob_chunk_tokens=1000)
    return HFCritic.with_backbone(model.model, tokenizer=None, budget=budget, optim=OPTIM, total_steps=None)


@contextmanager
def room_for(module: Any, positions: int, error: BaseException, *, backward: bool = False) -> Iterator[None]:
    """A machine that has memory for `positions` tokens at once and not one more, in the forward or backward pass."""

    def refuse(tensor: Tensor) -> None:
        if tensor.shape[:2].numel() > positions:
            raise error

    def look(layer: Any, given: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if not backward:
            refuse(hidden)
        elif hidden.requires_grad:
            hidden.register_hook(refuse)

    hook = module.layers[-1].register_forward_hook(look)  # type: ignore[union-attr,index]
    try:
        yield
    finally:
        hook.remove()


def policy_loss(seen: list[int]) -> Callable[[Tensor, Tensor, MicroBatch], Tensor]:
    def loss(logprobs: Tensor, entropy: Tensor, micro: MicroBatch) -> Tensor:
        if micro.is_first:
            seen.clear()
        seen.extend(micro.tokens.tolist())
        return (logprobs * torch.linspace(0.1, 1.0, len(logprobs))).sum() / 50

    return loss


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_update_is_made_once_as_if_it_had_begun_with_the_smaller_size(
    error: BaseException, backward: bool, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    sequences = sequences_factory()
    ours, theirs = policy_of(model_factory(), 10_000), None
    seen: list[int] = []
    largest = int(sequences.lengths.max())
    with room_for(ours.network.module.model, 2 * largest, error, backward=backward):
        stats = ours.update(sequences, policy_loss(seen))
    assert ours.budget.num_halved > 0 and ours.budget.micro_batch_tokens < 10_000, "witness: memory did run out"
    assert sorted(seen) == list(range(int(sequences.response_lens.sum()))), "every token counts once"
    theirs = policy_of(model_factory(), ours.budget.micro_batch_tokens)
    expected = theirs.update(sequences, policy_loss([]))
    assert (stats.loss, stats.grad_norm, stats.num_micro_batches) == (
        expected.loss, expected.grad_norm, expected.num_micro_batches)  # fmt: skip
    assert ours.version == theirs.version == 1
    for one, other in zip(ours.network.module.parameters(), theirs.network.module.parameters()):
        assert torch.equal(one, other)
    state = ours.state_dict()
    assert all(int(moments["step"]) == 1 for moments in state["adam"]["state"].values()), "one optimizer step"


def test_scores_and_values_go_on_with_less_too(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    sequences = sequences_factory()
    policy, critic = policy_of(model_factory(), 10_000), critic_of(model_factory(), 10_000)
    torch.nn.init.normal_(critic.head.weight)  # type: ignore[arg-type]
    plenty = policy.score(sequences).logprobs, critic.values(sequences).values
    largest = int(sequences.lengths.max())
    with room_for(policy.network.module.model, largest, ERRORS[0]), room_for(critic.backbone, largest, ERRORS[1]):
        scarce = policy.score(sequences).logprobs, critic.values(sequences).values
        critic.update(sequences, lambda values, micro: values.pow(2).sum())
    assert policy.budget.num_halved and critic.budget.num_halved
    assert critic.version == 1
    for one, other in zip(plenty, scarce):
        torch.testing.assert_close(one, other)


def test_where_one_sequence_is_too_much_the_run_ends_with_exit_code_7_and_nothing_is_changed(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    policy = policy_of(model_factory(), 10_000)
    before = copy.deepcopy(policy.network.module.state_dict())
    with room_for(policy.network.module.model, 1, ERRORS[1]), pytest.raises(MachineError) as caught:
        policy.update(sequences_factory(), policy_loss([]))
    assert caught.value.exit_code == 7
    assert "gradient_checkpointing" in str(caught.value) and "one sequence of" in str(caught.value)
    assert all(torch.equal(before[name], now) for name, now in policy.network.module.state_dict().items())


def test_what_memory_taught_is_remembered(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    sequences = sequences_factory()
    policy = policy_of(model_factory(), 10_000)
    with room_for(policy.network.module.model, 2 * int(sequences.lengths.max()), ERRORS[0]):
        policy.update(sequences, policy_loss([]))
    resumed, healthy = policy_of(model_factory(), 10_000), policy_of(model_factory(), 10_000)
    resumed.load_state_dict(policy.state_dict())
    assert resumed.budget == policy.budget
    larger = policy_of(model_factory(), 20_000)
    larger.load_state_dict(healthy.state_dict())
    assert larger.budget.micro_batch_tokens == 20_000, "a run that had enough leaves the setting alone"


def test_other_errors_are_not_taken_for_it(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    policy = policy_of(model_factory(), 10_000)
    with (
        room_for(policy.network.module.model, 1, RuntimeError("shapes differ")),
        pytest.raises(RuntimeError, match="shap"),
    ):
        policy.update(sequences_factory(), policy_loss([]))
    assert policy.budget.num_halved == 0
    assert not is_out_of_memory(ValueError("not enough memory"))


def test_twin_where_the_first_pass_is_not_forgotten_tokens_count_twice(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    """What `is_first` protects from: a loss that keeps its sums counts what the failed pass had seen."""
    sequences, seen = sequences_factory(), []

    def forgetful(logprobs: Tensor, entropy: Tensor, micro: MicroBatch) -> Tensor:
        seen.extend(micro.tokens.tolist())
        return logprobs.sum()

    policy = policy_of(model_factory(), 10_000)
    with room_for(policy.network.module.model, 2 * int(sequences.lengths.max()), ERRORS[0], backward=True):
        policy.update(sequences, forgetful)
    assert len(seen) > int(sequences.response_lens.sum())
