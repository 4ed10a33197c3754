"""A vision-language model through every path, beside the plain forward pass of transformers on one turn at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from dagrl.backends.base import encode_foreign
from dagrl.backends.forward import plan_scoring, response_logprobs
from dagrl.backends.hf_critic import HFCritic
from dagrl.backends.hf_generator import HFGenerator
from dagrl.backends.hf_trainer import HFPolicy
from dagrl.backends.loading import load_backbone, load_causal_lm, load_tokenizer
from dagrl.backends.memory import Budget
from dagrl.backends.network import Network
from dagrl.errors import DagrlError, UserCodeError
from dagrl.experience import Sequences, collate
from dagrl.images import mark, open_image, read_image, shown
from dagrl.nodes.transcript import PROMPT, Scribe
from dagrl.types import FinishReason, GenerationRequest, Image, SamplingParams, Task, Trajectory, Turn
from dagrl.workflow.sections import ModelSpec, OptimSpec
from tests.workflows.files import shipped

BUDGET = Budget(micro_batch_tokens=10_000, logprob_chunk_tokens=64)
PLACEHOLDER = "<|image_pad|>"
TASK = Task(task_id="1", prompt=[{"role": "user", "content": "Look."}])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    shipped("small_model/pictures.py").make(folder, lambda share, what: None, lesson_steps=1, hidden_size=32)
    return folder


def network_of(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[Network, Any]:
    spec = ModelSpec(path=str(folder), device="cpu")
    tokenizer = load_tokenizer(spec, str(folder), folder)
    model = load_causal_lm(spec, str(folder)).to(dtype)
    return Network(model, name="viewer", vision=tokenizer.image_tokens), tokenizer


@pytest.fixture(scope="module")
def viewer(folder: Path) -> tuple[Network, Any]:
    return network_of(folder)


def picture(seed: int, height: int = 28, width: int = 28) -> Image:
    return read_image(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def prompt(
    tokenizer: Any, *observations: str, album: Sequence[Image] = ()
) -> tuple[tuple[int, ...], tuple[Image, ...]]:
    scribe, transcript = Scribe(lambda group: tokenizer), PROMPT
    for number, text in enumerate(observations):
        transcript = scribe.add_observation(transcript, ("env", number, text), 0, TASK)
    ids = scribe.translate(transcript, 0, TASK).ids
    expanded: tuple[tuple[int, ...], tuple[Image, ...]] = tokenizer.image_tokens.expand(
        ids, {image.handle: image for image in album}
    )
    return expanded


def turn(prompt_ids: tuple[int, ...], images: tuple[Image, ...], response: tuple[int, ...]) -> Turn:
    return Turn(
        node_id="viewer", agent_group=0, round=0, prompt_ids=prompt_ids, images=images, response_ids=response,
        rollout_logprobs=(0.0,) * len(response), temperature=0.5, finish_reason=FinishReason.STOP, policy_version=0,
        response_text="",
    )  # fmt: skip


@pytest.fixture(scope="module")
def turns(viewer: tuple[Network, Any]) -> list[Turn]:
    """Text alone, one image, two images of other sizes at different turns, and an image whose ids are another's."""
    tokenizer = viewer[1]
    one, wide, tall = picture(1), picture(2, 28, 84), picture(3, 56, 28)
    return [
        turn(*prompt(tokenizer, "nothing"), (40, 41, 42)),
        turn(*prompt(tokenizer, mark(one), album=[one]), (50, 51)),
        turn(*prompt(tokenizer, f"a {mark(wide)} b", f"then {mark(tall)}", album=[wide, tall]), (60, 61, 62, 63)),
        turn(*prompt(tokenizer, mark(picture(4)), album=[picture(4)]), (50, 51)),
    ]


def sequences_of(turns: Sequence[Turn]) -> Sequences:
    return collate([Trajectory(task=TASK, sample=0, step=0, turns=list(turns))]).sequences


def plain_states(base: Any, image_id: int, one: Turn) -> torch.Tensor:
    """[1, L, d] of one turn by itself: transformers' own processing, positions and forward pass."""
    ids = torch.tensor([one.prompt_ids + one.response_ids])
    inputs: dict[str, Any] = {"input_ids": ids}
    if one.images:
        processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 112 * 112})
        inputs |= processor(images=[open_image(image) for image in one.images], return_tensors="pt")
        inputs["mm_token_type_ids"] = (ids == image_id).int()
    states: torch.Tensor = base(**inputs, use_cache=False).last_hidden_state
    return states


def plain_logprobs(network: Network, one: Turn) -> torch.Tensor:
    states = plain_states(network.module.model, network.config.image_token_id, one)
    logits = network.module.lm_head(states)[0, len(one.prompt_ids) - 1 : -1] / one.temperature
    return torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(one.response_ids)[:, None])[:, 0]


def batched_logprobs(network: Network, turns: Sequence[Turn], micro_batch_tokens: int) -> list[torch.Tensor]:
    """Of every turn, as scoring and updates compute them."""
    sequences = sequences_of(turns)
    budget = Budget(micro_batch_tokens=micro_batch_tokens, logprob_chunk_tokens=3)
    found: dict[int, torch.Tensor] = {}
    for batch in plan_scoring(sequences, budget).batches:
        logprobs, _ = response_logprobs(network, sequences, batch, budget)
        parts = logprobs.split(sequences.response_lens[batch.turns].tolist())
        found |= dict(zip(batch.turns.tolist(), parts))
    return [found[number] for number in range(len(turns))]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("micro_batch_tokens", [1, 10_000])
def test_logprobs_are_those_of_the_plain_forward_pass(folder, turns, dtype, tolerance, micro_batch_tokens):
    network, _ = network_of(folder, dtype)
    found = batched_logprobs(network, turns, micro_batch_tokens)
    for one, own in zip(turns, found, strict=True):
        torch.testing.assert_close(own, plain_logprobs(network, one), atol=tolerance, rtol=0)
    assert not torch.allclose(found[1], found[3]), "the same ids with another image say something else"


@pytest.mark.slow
def test_the_gradient_of_a_batch_is_the_sum_of_those_of_its_turns(folder, turns):
    """Of what the model sees by, too."""
    network, _ = network_of(folder, torch.float64)
    weights = dict(network.module.named_parameters())
    torch.cat([plain_logprobs(network, one) for one in turns]).sum().backward()
    expected = {name: weight.grad.clone() for name, weight in weights.items()}
    network.module.zero_grad()
    torch.cat(batched_logprobs(network, turns, 10_000)).sum().backward()
    assert any("visual" in name for name in expected)
    for name, weight in weights.items():
        torch.testing.assert_close(weight.grad, expected[name], atol=1e-9, rtol=1e-7, msg=name)


@pytest.mark.slow
def test_what_is_sampled_in_one_batch_has_the_logprobs_that_are_trained(viewer, turns):
    """Prompts with and without images, twice each, among them two of equal ids and other images."""
    network, tokenizer = viewer
    policy = HFPolicy(network, tokenizer=tokenizer, budget=BUDGET, optimizer=None)
    engine = HFGenerator({0: policy}, {0: "viewer"}, max_rows=5, cache_tokens=4096)
    requests = [
        GenerationRequest(agent_group=0, prompt_ids=one.prompt_ids, images=one.images, seed=seed,
                          params=SamplingParams(temperature=0.5, max_tokens=5 + seed))
        for seed, one in enumerate([*turns, *turns])
    ]  # fmt: skip

    async def ask() -> list[Any]:
        answers = await asyncio.gather(*map(engine.generate, requests))
        await engine.close()
        return answers

    answers = asyncio.run(ask())
    played = [turn(one.prompt_ids, one.images, answer.token_ids) for one, answer in zip(requests, answers)]
    for own, answer in zip(batched_logprobs(network, played, 10_000), answers, strict=True):
        torch.testing.assert_close(torch.tensor(answer.logprobs), own.detach(), atol=2e-5, rtol=0)
    assert len({answer.token_ids for answer in answers}) > 4


@pytest.mark.parametrize("kind", ["backbone", "frozen"])
def test_values_are_those_of_the_plain_forward_pass(folder, turns, kind):
    network, tokenizer = network_of(folder)
    common: dict[str, Any] = {"tokenizer": tokenizer, "budget": BUDGET, "optim": OptimSpec(), "total_steps": None}
    if kind == "backbone":
        base = load_backbone(ModelSpec(path=str(folder), device="cpu"), str(folder))
        critic = HFCritic.with_backbone(base, vision=network.vision, **common)
        torch.nn.init.normal_(critic.head.weight)
    else:
        critic = HFCritic.on_frozen(network, head_hidden=8, seed=3, **common)
        torch.nn.init.normal_(critic.head[-1].weight)
    values = critic.values(sequences_of(turns)).values.split([len(one.response_ids) for one in turns])
    for one, own in zip(turns, values, strict=True):
        states = plain_states(network.module.model, network.config.image_token_id, one)[0, len(one.prompt_ids) - 1 : -1]
        torch.testing.assert_close(own, critic.head(states).squeeze(-1).detach(), atol=2e-5, rtol=0)


def test_a_placeholder_that_the_agent_says_shows_nothing(viewer):
    network, tokenizer = viewer
    placeholder, image = tokenizer.convert_tokens_to_ids(PLACEHOLDER), picture(1)
    ids, images = prompt(tokenizer, mark(image), album=[image])
    said, padded = turn(ids, images, (40, placeholder, 41)), turn(ids, images, (40, tokenizer.pad_token_id, 41))
    own, other = batched_logprobs(network, [said], 1)[0], plain_logprobs(network, padded)
    torch.testing.assert_close(own[[0, 2]], other[[0, 2]], atol=2e-5, rtol=0)
    again, _ = tokenizer.image_tokens.expand((5, placeholder, 6), {})
    assert again == (5, tokenizer.pad_token_id, 6)


def test_the_placeholders_name_in_a_text_shows_nothing(viewer):
    tokenizer, image = viewer[1], picture(1)
    placeholder = tokenizer.convert_tokens_to_ids(PLACEHOLDER)
    ids, images = prompt(tokenizer, f"{PLACEHOLDER} {mark(image)} {PLACEHOLDER}", album=[image])
    assert ids.count(placeholder) == len(images) == 1
    assert tokenizer.decode(ids).count(PLACEHOLDER) == 3, "it stays there as a text"
    task = Task(
        task_id="2", prompt=[{"role": "user", "content": f"{PLACEHOLDER}{mark(image)}{PLACEHOLDER}"}], images=(image,)
    )
    written = Scribe(lambda group: tokenizer).translate(PROMPT, 0, task).ids
    assert written.count(image.handle) == 1 and placeholder not in written
    assert tokenizer.decode(written).count(PLACEHOLDER) == 2
    forged = encode_foreign(tokenizer, shown(mark(image)))
    assert image.handle not in forged


def test_images_and_their_tokens_must_fit(viewer):
    network, tokenizer = viewer
    image = picture(1)
    ids, images = prompt(tokenizer, mark(image), album=[image])
    with pytest.raises(DagrlError, match="2 images need 2 image tokens, the prompt has 1"):
        network.sight(ids, (*images, picture(2)))
    with pytest.raises(UserCodeError, match="two images stand side by side"):
        tokenizer.image_tokens.expand((5, image.handle, image.handle), {image.handle: image})


def test_a_template_that_drops_images_is_refused(viewer, folder):
    _, tokenizer = network_of(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}{% endfor %}"
    task = Task(task_id="3", prompt=[{"role": "user", "content": mark(picture(1))}], images=(picture(1),))
    with pytest.raises(DagrlError, match="writes 0 image tokens for 1 images"):
        Scribe(lambda group: tokenizer).translate(PROMPT, 0, task)


def test_what_is_saved_loads_in_transformers_with_its_processor(viewer, turns, tmp_path):
    network, tokenizer = viewer
    HFPolicy(network, tokenizer=tokenizer, budget=BUDGET, optimizer=None).save(tmp_path)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    made = processor(images=[open_image(turns[1].images[0])], return_tensors="pt")
    ids = torch.tensor([turns[1].prompt_ids + turns[1].response_ids])
    kinds = (ids == model.config.image_token_id).int()
    logits = model(input_ids=ids, mm_token_type_ids=kinds, **made).logits[0, -3:-1] / turns[1].temperature
    found = torch.log_softmax(logits, -1).gather(1, torch.tensor(turns[1].response_ids)[:, None])[:, 0]
    torch.testing.assert_close(found, plain_logprobs(network, turns[1]), atol=1e-6, rtol=0)
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == tokenizer.chat_template
