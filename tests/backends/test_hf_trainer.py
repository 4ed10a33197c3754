"""Scores and updates of policies against transformers' own logits and naive padded code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from dagrl.backends.base import MicroBatch, PolicyModel, ReferenceModel
from dagrl.backends.hf_trainer import HFPolicy, HFReference
from dagrl.backends.memory import Budget
from dagrl.backends.network import Network
from dagrl.backends.optimizer import Optimizer
from dagrl.errors import DagrlError
from dagrl.experience import Sequences
from dagrl.workflow.sections import OptimSpec

SMALL = Budget(micro_batch_tokens=40, logprob_chunk_tokens=5)
LARGE = Budget(micro_batch_tokens=100000, logprob_chunk_tokens=100000)


def _policy(model: Any, budget: Budget = SMALL, lr: float = 1e-2, **options: Any) -> HFPolicy:
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = Optimizer(trained, OptimSpec(lr=lr), total_steps=None)
    return HFPolicy(Network(model, name="tiny"), budget=budget, optimizer=optimizer, **{"tokenizer": None} | options)


def _naive(model: Any, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Turn by turn, from all logits of the model."""
    logprobs, entropies = [], []
    for turn in range(len(sequences)):
        begin, prompt, response = (
            int(x[turn]) for x in (sequences.offsets, sequences.prompt_lens, sequences.response_lens)
        )
        ids = sequences.input_ids[begin : begin + prompt + response]
        logits = model(ids[None]).logits[0, prompt - 1 : prompt + response - 1] / sequences.temperatures[turn]
        logp = torch.log_softmax(logits, dim=-1)
        logprobs.append(logp.gather(1, ids[prompt:, None])[:, 0])
        entropies.append(-(logp.exp() * logp).sum(-1))
    return torch.cat(logprobs), torch.cat(entropies)


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize("budget", [SMALL, LARGE])
def test_scores_equal_transformers_full_logits(
    kind: str, budget: Budget, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    model, sequences = model_factory(kind).double(), sequences_factory()
    scores = _policy(model, budget).score(sequences)
    with torch.no_grad():
        logprobs, entropy = _naive(model, sequences)
    torch.testing.assert_close(scores.logprobs, logprobs.float(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(scores.entropy, entropy.float(), atol=1e-6, rtol=1e-5)
    assert 0.0 <= scores.padding <= 0.1


def _loss(logprobs: Tensor, entropy: Tensor, batch: MicroBatch) -> Tensor:
    weights = torch.cos(batch.tokens.to(logprobs.dtype)) / 50
    return (weights * logprobs).sum() + 0.3 * (weights * entropy).sum()


@pytest.mark.parametrize("budget", [SMALL, LARGE])
@pytest.mark.parametrize("has_checkpointing", [False, True])
def test_an_update_equals_one_step_on_naive_code_whatever_the_micro_batches(
    budget: Budget,
    has_checkpointing: bool,
    model_factory: Callable[..., Any],
    sequences_factory: Callable[..., Sequences],
) -> None:
    model, sequences = model_factory(tie_word_embeddings=True).double(), sequences_factory()
    naive = copy.deepcopy(model)
    policy = _policy(model, budget, has_checkpointing=has_checkpointing)
    stats = policy.update(sequences, _loss, entropy_gradient=True)

    logprobs, entropy = _naive(naive, sequences)
    every = MicroBatch(turns=torch.arange(len(sequences)), tokens=torch.arange(len(logprobs)))
    loss = _loss(logprobs, entropy, every)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(naive.parameters(), 1.0)
    torch.optim.AdamW(naive.parameters(), lr=1e-2, weight_decay=0.0).step()

    assert stats.loss == pytest.approx(loss.item()) and stats.grad_norm == pytest.approx(norm.item())
    assert policy.version == 1 and stats.is_finite and stats.lr == 1e-2
    for ours, theirs in zip(model.parameters(), naive.parameters()):
        torch.testing.assert_close(ours, theirs)


def test_a_loss_that_is_not_finite_changes_nothing(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    model = model_factory()
    before = copy.deepcopy(model.state_dict())
    policy = _policy(model)
    stats = policy.update(sequences_factory(), lambda logprobs, *_: logprobs.sum() * float("nan"))
    assert not stats.is_finite and policy.version == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_saved_policy_loads_with_transformers_and_goes_on_after_a_restart(
    tmp_path: Path, tokenizer: Any, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    sequences = sequences_factory()
    policy = _policy(model_factory(tie_word_embeddings=True), tokenizer=tokenizer)
    policy.update(sequences, _loss)
    policy.save(tmp_path)
    state = policy.state_dict()

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert AutoTokenizer.from_pretrained(tmp_path).decode([2, 3]) == "ab"
    torch.testing.assert_close(_policy(loaded).score(sequences).logprobs, policy.score(sequences).logprobs)

    other = _policy(model_factory(seed=9, tie_word_embeddings=True), tokenizer=tokenizer)
    other.load(tmp_path)
    other.load_state_dict(state)
    assert other.version == 1
    policy.update(sequences, _loss)
    other.update(sequences, _loss)
    assert torch.equal(policy.score(sequences).logprobs, other.score(sequences).logprobs)


def test_bfloat16_weights_are_trained_through_float32_masters(
    model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    policy = _policy(model_factory().bfloat16(), lr=1e-5)
    before = policy.score(sequences_factory())
    for _ in range(3):
        assert policy.update(sequences_factory(), _loss).is_finite
    masters = policy.state_dict()["masters"]
    assert masters and all(master.dtype == torch.float32 for master in masters)
    assert before.logprobs.dtype == torch.float32
    for weight, master in zip(policy.network.module.parameters(), masters):
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, master.bfloat16())


def test_policies_and_references_have_the_shape_that_nodes_expect(model_factory: Callable[..., Any]) -> None:
    policy = _policy(model_factory())
    assert isinstance(policy, PolicyModel)
    assert isinstance(HFReference(policy.network, budget=SMALL), ReferenceModel)


def test_a_head_that_is_not_understood_is_refused(model_factory: Callable[..., Any]) -> None:
    model = model_factory()
    inner = model.forward

    def shifted(*args: Any, **kwargs: Any) -> Any:
        output = inner(*args, **kwargs)
        output.logits = output.logits * 3 + 1
        return output

    model.forward = shifted
    with pytest.raises(DagrlError, match="computes its logits"):
        Network(model, name="odd")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Gemma2", {"final_logit_softcapping": 1.0, "head_dim": 8}),
        ("Cohere", {"logit_scale": 0.25}),
        ("Granite", {"logits_scaling": 4.0}),
    ],
)
def test_heads_that_scale_or_cap_their_logits_are_scored_right(
    kind: str, changes: dict[str, Any], sequences_factory: Callable[..., Sequences]
) -> None:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        **{"pad_token_id": 0} | changes,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    sequences = sequences_factory()
    with torch.no_grad():
        logprobs, _ = _naive(model, sequences)
    torch.testing.assert_close(_policy(model).score(sequences).logprobs, logprobs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("budget", [SMALL, LARGE])
def test_the_parts_of_a_gradient_are_those_of_autograd_and_sum_to_the_whole(
    budget: Budget, model_factory: Callable[..., Any], sequences_factory: Callable[..., Sequences]
) -> None:
    model, sequences = model_factory().double(), sequences_factory()
    weights = torch.randn(int(sequences.response_lens.sum()), generator=torch.Generator().manual_seed(3)).double()

    def loss(logprobs: Tensor, entropy: Tensor, micro: MicroBatch) -> Tensor:
        return (weights[micro.tokens] * logprobs).sum() - 0.1 * entropy.sum()

    parts = [torch.tensor([0, 3, 5]), torch.tensor([1, 2]), torch.tensor([4, 6])]
    policy, untouched = _policy(model, copy.copy(budget)), _policy(copy.deepcopy(model), copy.copy(budget))
    products = policy.gradient_products(sequences, loss, parts, entropy_gradient=True)

    naive = copy.deepcopy(model)
    rows = []
    for part in [*parts, torch.arange(len(sequences))]:
        logprobs, entropy = _naive(naive, sequences.subset(part))
        share = (weights[sequences.tokens_of(part)] * logprobs).sum() - 0.1 * entropy.sum()
        found = torch.autograd.grad(share, list(naive.parameters()), allow_unused=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found if gradient is not None]))
    expected = torch.stack(rows[:3]) @ torch.stack(rows[:3]).T
    torch.testing.assert_close(products, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(sum(rows[:3]), rows[3], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(products.sum().sqrt(), rows[3].norm(), rtol=1e-6, atol=1e-9)

    told = [one.update(sequences, loss, entropy_gradient=True) for one in (policy, untouched)]
    assert told[0] == told[1] and policy.budget == untouched.budget
    assert told[0].grad_norm == pytest.approx(float(rows[3].norm()), rel=1e-6)
    pairs = zip(policy.network.module.parameters(), untouched.network.module.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs), "measuring changed the update"
