"""Tiny random models, a tokenizer and ragged sequences for the tests of backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from dagrl.experience import Sequences, cumulative

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789+-*/=.,:?! "


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per character, `<pad>` 0, `<end>` 1."""
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<end>", *ALPHABET])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")


def make_model(kind: str = "qwen2", *, seed: int = 0, scale: float = 1.0, **changes: Any) -> Any:
    """A random causal language model of two layers; `scale` multiplies its weights, for peaked distributions."""
    common = {
        "vocab_size": 2 + len(ALPHABET),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    config = {"qwen2": Qwen2Config, "llama": LlamaConfig}[kind](**common | changes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            weight.data.add_(torch.randn_like(weight), alpha=0.1 * scale)
    return model.eval()


@pytest.fixture(scope="session")
def model_factory() -> Callable[..., Any]:
    return make_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A tiny Qwen2 with tied embeddings and its tokenizer on disk."""
    folder = tmp_path_factory.mktemp("model")
    make_model(tie_word_embeddings=True).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_sequences(
    num_turns: int = 7, *, seed: int = 0, longest: int = 30, temperature: float | None = None
) -> Sequences:
    """Random ragged turns; the third has an empty response."""
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(1, longest // 2, (num_turns,), generator=generator)
    responses = torch.randint(1, longest // 2, (num_turns,), generator=generator)
    if num_turns > 2:
        responses[2] = 0
    lengths = prompts + responses
    if temperature is None:
        temperatures = 0.5 + torch.rand(num_turns, generator=generator)
    else:
        temperatures = torch.full((num_turns,), temperature)
    return Sequences(
        input_ids=torch.randint(2, 2 + len(ALPHABET), (int(lengths.sum()),), generator=generator),
        offsets=cumulative(lengths),
        prompt_lens=prompts,
        response_lens=responses,
        temperatures=temperatures,
    )


@pytest.fixture(scope="session")
def sequences_factory() -> Callable[..., Sequences]:
    return make_sequences
