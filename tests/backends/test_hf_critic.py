"""Critics: where values are read, what is trained, what is saved."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dagrl.backends.base import MicroBatch, ValueModel
from dagrl.backends.hf_critic import HFCritic
from dagrl.backends.memory import Budget
from dagrl.backends.network import Network
from dagrl.experience import Sequences
from dagrl.workflow.sections import OptimSpec

SMALL = Budget(micro_batch_tokens=40, logprob_chunk_tokens=10)
LARGE = Budget(micro_batch_tokens=10**6, logprob_chunk_tokens=10)
KINDS = ["model", "value_head"]


def _critic(kind: str, causal: Any, tokenizer: Any, budget: Budget = SMALL) -> HFCritic:
    common = {"tokenizer": tokenizer, "budget": budget, "optim": OptimSpec(lr=1e-2), "total_steps": None}
    if kind == "model":
        return HFCritic.with_backbone(causal.model, **common)
    causal.requires_grad_(False)
    return HFCritic.on_frozen(Network(causal, name="tiny"), head_hidden=8, seed=3, **common)


def _squared(values: Tensor, batch: MicroBatch) -> Tensor:
    return ((values - torch.sin(batch.tokens.float())) ** 2).sum() / 40


def _naive(critic: HFCritic, causal: Any, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Turn by turn: the value before every response token, and after the last."""
    values, last = [], []
    for turn in range(len(sequences)):
        begin, end = int(sequences.offsets[turn]), int(sequences.offsets[turn + 1])
        states = causal.model(sequences.input_ids[None, begin:end]).last_hidden_state[0]
        read = critic.head(states).squeeze(-1)
        values.append(read[int(sequences.prompt_lens[turn]) - 1 : -1])
        last.append(read[-1])
    return torch.cat(values), torch.stack(last)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_zero_first_and_then_read_before_each_token(
    kind: str, tokenizer: Any, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    causal, sequences = model_factory(), sequences_factory()
    critic = _critic(kind, causal, tokenizer)
    assert isinstance(critic, ValueModel)
    assert not critic.values(sequences).values.any()
    for _ in range(3):
        assert critic.update(sequences, _squared).is_finite
    got = critic.values(sequences)
    with torch.no_grad():
        values, last = _naive(critic, causal, sequences)
    torch.testing.assert_close(got.values, values, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(got.last_values, last, atol=1e-5, rtol=1e-4)
    assert critic.version == 3 and got.values.any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_does_not_depend_on_micro_batches(
    kind: str, tokenizer: Any, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    sequences = sequences_factory()
    critics = [_critic(kind, model_factory(), tokenizer, budget) for budget in (SMALL, LARGE)]
    for critic in critics:
        for _ in range(3):
            critic.update(sequences, _squared)
    torch.testing.assert_close(critics[0].values(sequences).values, critics[1].values(sequences).values)


def test_a_value_head_leaves_its_base_as_it_is(
    tokenizer: Any, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    causal = model_factory()
    before = copy.deepcopy(causal.state_dict())
    _critic("value_head", causal, tokenizer).update(sequences_factory(), _squared)
    assert all(torch.equal(before[name], tensor) for name, tensor in causal.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_critic_goes_on_after_a_restart(
    kind: str,
    tmp_path: Path,
    tokenizer: Any,
    model_factory: Callable[..., Any],
    sequences_factory: Callable[..., Sequences],
) -> None:
    sequences = sequences_factory()
    critic = _critic(kind, model_factory(), tokenizer)
    critic.update(sequences, _squared)
    critic.save(tmp_path)
    other = _critic(kind, model_factory(seed=7 if kind == "model" else 0), tokenizer)
    other.load(tmp_path)
    other.load_state_dict(critic.state_dict())
    for each in (critic, other):
        each.update(sequences, _squared)
    assert other.version == 2
    assert torch.equal(critic.values(sequences).values, other.values(sequences).values)
