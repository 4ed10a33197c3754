"""The pool: who shares what, adapters on one base, critics shared by groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from dagrl.backends.pool import ModelPool, build_pool
from dagrl.errors import DagrlError
from dagrl.experience import Sequences
from dagrl.types import GenerationRequest, SamplingParams
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.sections import ActorSpec, AdapterSpec, CriticSpec, ModelSpec, OptimSpec

ACTOR = ActorSpec(optim=OptimSpec(lr=1e-2), micro_batch_tokens=100)


def _group(index: int, folder: Path, **changes: Any) -> AgentGroup:
    defaults: dict[str, Any] = {
        "name": f"agent{index}",
        "model": ModelSpec(path=str(folder)),
        "adapter": None,
        "actor": ACTOR,
        "is_trained": True,
        "needs_reference": True,
        "critic_owner": None,
        "critic": None,
        "critic_model": None,
    }
    return AgentGroup(index=index, **defaults | changes)


def _pool(folder: Path, *groups: AgentGroup) -> ModelPool:
    file = folder / "workflow.yaml"
    file.write_text("dag_id: test\nnodes:\n- {node_id: a, node_type: MODEL_INFERENCE}\n")
    workflow = replace(load_workflow(file), groups=groups)
    return build_pool(workflow, total_optimizer_steps={}, progress=lambda *_: None)


def _gain(logprobs: torch.Tensor, *_: Any) -> torch.Tensor:
    return -logprobs.sum() / 50


def _size(folder: Path) -> int:
    model = AutoModelForCausalLM.from_pretrained(folder)
    return sum(weight.numel() * weight.element_size() for weight in model.parameters())


def test_fully_trained_agents_have_models_of_their_own_and_one_reference(
    model_folder: Path, sequences_factory: Callable[..., Sequences]
) -> None:
    pool, sequences = _pool(model_folder, _group(0, model_folder), _group(1, model_folder)), sequences_factory()
    assert pool.memory_bytes() == 3 * _size(model_folder)
    first = pool.policy(0).score(sequences).logprobs
    pool.policy(0).update(sequences, _gain)
    assert not torch.equal(pool.policy(0).score(sequences).logprobs, first)
    for unchanged in (pool.policy(1), pool.reference(0), pool.reference(1)):
        assert torch.equal(unchanged.score(sequences).logprobs, first)
    assert (pool.policy(0).version, pool.policy(1).version) == (1, 0)


def test_frozen_agents_share_one_copy_without_an_optimizer(model_folder: Path) -> None:
    frozen = {"is_trained": False, "needs_reference": False}
    pool = _pool(model_folder, _group(0, model_folder, **frozen), _group(1, model_folder, **frozen))
    assert pool.memory_bytes() == _size(model_folder)
    assert pool.policy(0).state_dict() == {}


def test_adapters_share_one_base_which_is_their_reference(
    model_folder: Path, sequences_factory: Callable[..., Sequences]
) -> None:
    lora = AdapterSpec(r=2)
    pool = _pool(model_folder, *(_group(index, model_folder, adapter=lora) for index in (0, 1)))
    sequences = sequences_factory()
    base = pool.reference(0).score(sequences).logprobs
    adapters = pool.memory_bytes() - _size(model_folder)
    assert 0 < adapters < _size(model_folder) / 2
    assert torch.equal(pool.policy(0).score(sequences).logprobs, base)
    for _ in range(3):
        pool.policy(0).update(sequences, _gain)
    trained = pool.policy(0).score(sequences).logprobs
    assert trained.sum() > base.sum() + 0.01
    for unchanged in (pool.policy(1), pool.reference(0), pool.reference(1)):
        assert torch.equal(unchanged.score(sequences).logprobs, base)
    pool.policy(1).update(sequences, _gain)
    assert torch.equal(pool.policy(0).score(sequences).logprobs, trained)
    assert torch.equal(pool.reference(1).score(sequences).logprobs, base)


def test_a_saved_adapter_loads_with_transformers_and_goes_on_after_a_restart(
    tmp_path: Path, model_folder: Path, sequences_factory: Callable[..., Sequences]
) -> None:
    groups = [_group(index, model_folder, adapter=AdapterSpec(r=2)) for index in (0, 1)]
    pool, sequences = _pool(model_folder, *groups), sequences_factory(1)
    policy = pool.policies()[1]
    policy.update(sequences, _gain)
    policy.save(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    logits = AutoModelForCausalLM.from_pretrained(tmp_path).eval()(sequences.input_ids[None]).logits[0]
    prompt = int(sequences.prompt_lens[0])
    logp = torch.log_softmax(logits[prompt - 1 : -1] / sequences.temperatures[0], -1)
    expected = logp.gather(1, sequences.input_ids[prompt:, None])[:, 0]
    torch.testing.assert_close(policy.score(sequences).logprobs, expected.detach(), atol=1e-5, rtol=1e-4)
    other = _pool(model_folder, *groups).policies()[1]
    other.load(tmp_path)
    other.load_state_dict(policy.state_dict())
    for each in (policy, other):
        each.update(sequences, _gain)
    assert torch.equal(policy.score(sequences).logprobs, other.score(sequences).logprobs)


def test_adapters_generate_each_with_its_own_weights(
    model_folder: Path, sequences_factory: Callable[..., Sequences]
) -> None:
    pool = _pool(model_folder, *(_group(index, model_folder, adapter=AdapterSpec(r=2)) for index in (0, 1)))
    params = SamplingParams(temperature=0.0, max_tokens=8)
    requests = [GenerationRequest(agent_group=g, prompt_ids=(5, 6, 7), params=params, seed=0) for g in (0, 1)]

    async def ask() -> list[Any]:
        return list(await asyncio.gather(*map(pool.generator.generate, requests)))

    before = asyncio.run(ask())
    for _ in range(5):
        pool.policy(0).update(sequences_factory(), lambda logprobs, *_: logprobs.sum() / 50)
    after = asyncio.run(ask())
    assert before[0].token_ids == before[1].token_ids == after[1].token_ids
    assert after[0].token_ids != after[1].token_ids
    assert (after[0].policy_version, after[1].policy_version) == (5, 0)


def test_groups_share_a_critic_and_its_frozen_base_is_the_reference(model_folder: Path) -> None:
    critic = {"critic": CriticSpec(kind="value_head", head_hidden=4), "critic_model": ModelSpec(path=str(model_folder))}
    groups = (_group(0, model_folder, critic_owner=0, **critic), _group(1, model_folder, critic_owner=0))
    pool = _pool(model_folder, *groups)
    assert pool.critic(0) is pool.critic(1) and list(pool.critics()) == [0]
    head = (32 + 1) * 4 + (4 + 1) * 512 + 512 + 1
    assert pool.memory_bytes() == 3 * _size(model_folder) + 4 * head


def test_dropout_in_an_adapter_is_refused(model_folder: Path) -> None:
    with pytest.raises(DagrlError, match="dropout"):
        _pool(model_folder, _group(0, model_folder, adapter=AdapterSpec(dropout=0.1)))


def test_an_adapter_for_layers_that_are_not_there_is_refused(model_folder: Path) -> None:
    with pytest.raises(DagrlError, match="adapter"):
        _pool(model_folder, _group(0, model_folder, adapter=AdapterSpec(target_modules=("nonesuch",))))
