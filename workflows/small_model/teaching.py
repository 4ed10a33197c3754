"""Small models for the workflows of this folder: a tokenizer, an untaught transformer, and how it is taught.

Each workflow has a file of lessons beside this one, which says what its agents are shown, as a `Syllabus`, and whose
`make` hands it to `teach`. Nothing is downloaded. The same seed, machine and library versions give the same weights.
A model is taught on first use, in one to four minutes, and kept in the cache (`DAGRL_CACHE`, ~/.cache/dagrl); a change
of its lessons, or of what they import beside them, makes it anew.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, END, USER = "<|pad|>", "<|end|>", "<|user|>"
CHAT_SPECIAL = (PAD, END, "<|system|>", USER, "<|assistant|>")
CHAT_TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
IGNORED = -100
"""Label of tokens that are not learnt (torch's cross entropy leaves them out)."""

Part = tuple[str, bool]
"""(text, whether it is learnt)."""
Lesson = Callable[[random.Random], list[Part]]
Progress = Callable[[float, str], None]
"""Is told (share done, what is being done)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Syllabus:
    """What the model of one workflow is shown: first a trade, then a team of mixed quality at work."""

    roles: tuple[str, ...]
    """Cues of the agents, such as `<|solver|>`: a special token each."""
    phrases: tuple[str, ...]
    """Texts that are one token each."""
    trade: Callable[[random.Random, int, int], list[Part]]
    """A lesson without faults: (draw, fewest numbers, most numbers) of the sum it is about."""
    team: Lesson
    """A demonstration; the model comes to imitate all kinds of them in proportion."""


def teach(
    folder: Path,
    progress: Progress,
    syllabus: Syllabus,
    *,
    seed: int = 0,
    hidden_size: int = 64,
    num_layers: int = 2,
    batch_size: int = 64,
    lesson_steps: int = 1050,
    demo_steps: int = 150,
) -> None:
    """Writes the taught model and its tokenizer to `folder`: `lesson_steps` optimizer steps of trade, then
    `demo_steps` of team."""
    tokenizer = build_tokenizer(syllabus.roles, syllabus.phrases)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(len(tokenizer), hidden_size, num_layers)
    course = _course(syllabus, lesson_steps, demo_steps)
    with one_thread():
        _train(model, tokenizer, course, random.Random(seed), batch_size=batch_size, progress=progress)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums are rounded alike however many cores there are; for tensors this small a second thread gains nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_tokenizer(roles: tuple[str, ...], phrases: tuple[str, ...]) -> PreTrainedTokenizerFast:
    """Bytes, the chat markers and the few phrases of the task: a digit is one token, and any text can be written."""
    special = (*CHAT_SPECIAL, *roles)
    symbols = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(symbol, special=True, normalized=False) for symbol in special])
    core.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=END)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(vocab_size: int, hidden_size: int, num_layers: int) -> LlamaForCausalLM:
    """An untaught model with heads of width 16."""
    num_heads = hidden_size // 16
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=3 * hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=num_heads,
            num_key_value_heads=num_heads,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=CHAT_SPECIAL.index(PAD),
            eos_token_id=CHAT_SPECIAL.index(END),
            bos_token_id=None,
        )
    )


def _course(syllabus: Syllabus, lesson_steps: int, demo_steps: int) -> Iterator[tuple[float, str, Lesson, float]]:
    """For each step: share done, what is being done, the lesson, the learning rate."""
    num_steps = lesson_steps + demo_steps
    for step in range(lesson_steps):
        is_easy = step < 0.3 * lesson_steps
        low, high = (2, 3) if is_easy else (3, 5)
        cosine = 0.5 * (1 + math.cos(math.pi * step / lesson_steps))
        rate = 4e-3 * min(1.0, (step + 1) / 50) * (0.1 + 0.9 * cosine)
        yield step / num_steps, "arithmetic lessons", _of_size(syllabus, low, high), rate
    for step in range(demo_steps):
        rate = 1.5e-3 * (1 - 0.9 * step / demo_steps)
        yield (lesson_steps + step) / num_steps, "team demonstrations", syllabus.team, rate


def _of_size(syllabus: Syllabus, min_terms: int, max_terms: int) -> Lesson:
    return lambda rng: syllabus.trade(rng, min_terms, max_terms)


def _train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    course: Iterator[tuple[float, str, Lesson, float]],
    rng: random.Random,
    *,
    batch_size: int,
    progress: Progress,
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    for share, doing, lesson, rate in course:
        progress(share, doing)
        optimizer.param_groups[0]["lr"] = rate
        input_ids, labels = _batch(tokenizer, [lesson(rng) for _ in range(batch_size)])
        loss = _loss(model, input_ids, labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    progress(1.0, "taught")


def _batch(tokenizer: PreTrainedTokenizerFast, lessons: list[list[Part]]) -> tuple[torch.Tensor, torch.Tensor]:
    """`input_ids` and `labels`, [batch, longest], padded on the right."""
    rows, labels = [], []
    for parts in lessons:
        row: list[int] = []
        label: list[int] = []
        for text, is_learnt in parts:
            ids = tokenizer.encode(text, add_special_tokens=False)
            row += ids
            label += ids if is_learnt else [IGNORED] * len(ids)
        rows.append(torch.tensor(row))
        labels.append(torch.tensor(label))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, batch_first=True, padding_value=CHAT_SPECIAL.index(PAD)), pad(labels, True, IGNORED)


def _loss(model: LlamaForCausalLM, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the learnt tokens; logits are made for these alone."""
    hidden = model.model(input_ids=input_ids).last_hidden_state[:, :-1]
    is_learnt = labels[:, 1:] != IGNORED
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[is_learnt]), labels[:, 1:][is_learnt])
