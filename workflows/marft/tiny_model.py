"""The model that both agents of workflows/marft.yaml start from: a tiny transformer, taught for about a minute.

`make` writes it, with its tokenizer, as a Hugging Face folder. Nothing is downloaded. The same seed, machine and
library versions give the same weights.

**The lessons** (`lesson_steps` optimizer steps) teach arithmetic: sums of single digits worked out with running
totals, `7 + 5 = 12 - 8 = 4`, and reading the last total off a worked sum, `\\boxed{4}`; no slips, first sums of 2 to 3
numbers, then of 3 to 5. **The team demonstrations** (`demo_steps` steps) then show two people of mixed quality at the
job, and the model comes to imitate all of them in proportion:

- Reasoner: *worker* (30 %) writes the worked sum, each total off by 1, 2 or 10 in 3 % of the places; *guesser* (40 %)
  writes `about N`, N the right answer plus rounded normal noise of deviation 4; *restater* (30 %) repeats the problem.
- Actor: *reader* (30 %) boxes the Reasoner's last number; *hasty* (40 %) boxes the last number of the problem;
  *unboxed* (30 %) writes the Reasoner's last number without a box. Where there is no number to read,
  reader and unboxed guess as the guesser does.

One problem in four comes with one or two failed attempts and the verdict before it, and one in twenty without a
Reasoner (so that an Actor on its own is not out of its depth). The team that starts training therefore answers few
problems although each agent has seen good work: it is left to reinforcement learning to find out which behaviour pays,
that the Actor depends on the Reasoner, and to get the sums right more often.

The problems are made here, by the rule of reasoning-gym's `chain_sum`; none is a held-out one: `is_held_out` is the
rule by which data_preprocess/reasoning_gym.py splits train from test.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, END, USER, REASONER, ACTOR = "<|pad|>", "<|end|>", "<|user|>", "<|reasoner|>", "<|actor|>"
SPECIAL = (PAD, END, "<|system|>", USER, "<|assistant|>", REASONER, ACTOR)
QUESTION = "State the final answer to the following arithmetic problem: "
WRONG = "The answer is wrong."
PHRASES = (QUESTION, WRONG, "The answer is right.", "The answer is ", "It is the sum of ", "about ", "\\boxed{")
PHRASES += (" = ", " + ", " - ", " =")
CHAT_TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"

HELD_OUT_SHARE = 10
"""One question in so many is held out."""
WORKER, GUESSER, RESTATER = 0.3, 0.4, 0.3
READER, HASTY, UNBOXED = 0.3, 0.4, 0.3
SLIP_RATE = 0.03
GUESS_DEVIATION = 4.0
RETRY_SHARE = 0.25
ALONE_SHARE = 0.05

IGNORED = -100
"""Label of tokens that are not learnt (torch's cross entropy leaves them out)."""
Part = tuple[str, bool]
"""(text, whether it is learnt)."""
Lesson = Callable[[random.Random], list[Part]]


def make(
    folder: Path,
    progress: Callable[[float, str], None],
    *,
    seed: int = 0,
    hidden_size: int = 64,
    num_layers: int = 2,
    batch_size: int = 64,
    lesson_steps: int = 1050,
    demo_steps: int = 150,
) -> None:
    """Writes the taught model and its tokenizer to `folder`. `progress` is told (share done, what is being done)."""
    tokenizer = build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(len(tokenizer), hidden_size, num_layers)
    lessons = _curriculum(lesson_steps, demo_steps)
    with _one_thread():
        _teach(model, tokenizer, lessons, random.Random(seed), batch_size=batch_size, progress=progress)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums are rounded alike however many cores there are; for tensors this small a second thread gains nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, the chat markers and the few phrases of the task: a digit is one token, and any text can be written."""
    symbols = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(symbol, special=True, normalized=False) for symbol in SPECIAL])
    core.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
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
            pad_token_id=SPECIAL.index(PAD),
            eos_token_id=SPECIAL.index(END),
            bos_token_id=None,
        )
    )


def is_held_out(question: str) -> bool:
    """Whether a question belongs to the test set, told by its text alone."""
    return zlib.crc32(question.encode()) % HELD_OUT_SHARE == 0


# What is demonstrated


def draw_problem(rng: random.Random, min_terms: int, max_terms: int) -> str:
    """`7 + 5 - 8`: single digits, as reasoning-gym's chain_sum draws them, never a held-out question."""
    while True:
        numbers = [str(rng.randint(0, 9)) for _ in range(rng.randint(min_terms, max_terms))]
        problem = numbers[0] + "".join(f" {rng.choice('+-')} {number}" for number in numbers[1:])
        if not is_held_out(f"{QUESTION}{problem} ="):
            return problem


def worked_sum(problem: str, rng: random.Random, slip_rate: float) -> str:
    """`7 + 5 = 12 - 8 = 4`; a slip is carried on, as people do."""
    first, *rest = problem.split(" ")
    total, text = int(first), first
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        total += int(number) if sign == "+" else -int(number)
        if rng.random() < slip_rate:
            total += rng.choice((-10, -2, -1, 1, 2, 10))
        text += f" {sign} {number} = {total}"
    return text


def guess(problem: str, rng: random.Random) -> str:
    """The right answer, blurred."""
    right = worked_sum(problem, rng, 0.0).split(" = ")[-1]
    return str(int(right) + round(rng.gauss(0.0, GUESS_DEVIATION)))


def last_total(reasoning: str) -> str | None:
    """The number that a Reasoner arrived at; None if it named none."""
    if " = " in reasoning:
        return reasoning.split(" = ")[-1]
    return reasoning.removeprefix("about ") if reasoning.startswith("about ") else None


def reasoner_says(problem: str, rng: random.Random) -> str:
    kind = rng.choices(("worker", "guesser", "restater"), (WORKER, GUESSER, RESTATER))[0]
    if kind == "worker":
        return worked_sum(problem, rng, SLIP_RATE)
    return f"about {guess(problem, rng)}" if kind == "guesser" else f"It is the sum of {problem}"


def actor_says(problem: str, reasoning: str, rng: random.Random) -> str:
    kind = rng.choices(("reader", "hasty", "unboxed"), (READER, HASTY, UNBOXED))[0]
    if kind == "hasty":
        return f"\\boxed{{{problem.split(' ')[-1]}}}"
    number = last_total(reasoning) or guess(problem, rng)
    return f"\\boxed{{{number}}}" if kind == "reader" else f"The answer is {number}"


def arithmetic_lesson(rng: random.Random, *, min_terms: int, max_terms: int) -> list[Part]:
    """A sum worked out without slips, and its last total read off."""

    def work(problem: str) -> str:
        return worked_sum(problem, rng, 0.0)

    def read(_: str, reasoning: str) -> str:
        return f"\\boxed{{{last_total(reasoning)}}}"

    return _conversation(draw_problem(rng, min_terms, max_terms), work, read, rng)


def team_lesson(rng: random.Random) -> list[Part]:
    """The mixed team at work on a problem of full difficulty."""
    return _conversation(
        draw_problem(rng, 3, 5),
        lambda problem: reasoner_says(problem, rng),
        lambda problem, reasoning: actor_says(problem, reasoning, rng),
        rng,
    )


def _conversation(
    problem: str, reason: Callable[[str], str], act: Callable[[str, str], str], rng: random.Random
) -> list[Part]:
    """One demonstration, laid out as process.py and the workflow's cues lay out what the agents see."""
    transcript = f"{USER}{QUESTION}{problem} ={END}"
    if rng.random() < ALONE_SHARE:
        return [(transcript + ACTOR, False), (act(problem, "") + END, True)]
    if rng.random() >= RETRY_SHARE:
        reasoning = reason(problem)
        first = [(transcript + REASONER, False), (reasoning + END, True)]
        return [*first, (ACTOR, False), (act(problem, reasoning) + END, True)]
    for _ in range(rng.choice((1, 2))):
        transcript += ACTOR + act(problem, reason(problem)) + END
    reasoning = reason(problem)
    if rng.random() < 0.7:
        return [(transcript + WRONG + REASONER, False), (reasoning + END, True)]
    context = transcript + REASONER + reasoning + END + WRONG + ACTOR
    return [(context, False), (act(problem, reasoning) + END, True)]


# How it is taught


def _curriculum(lesson_steps: int, demo_steps: int) -> Iterator[tuple[float, str, Lesson, float]]:
    """For each step: share done, what is being done, the lesson, the learning rate."""
    num_steps = lesson_steps + demo_steps
    for step in range(lesson_steps):
        is_easy = step < 0.3 * lesson_steps
        low, high = (2, 3) if is_easy else (3, 5)
        cosine = 0.5 * (1 + math.cos(math.pi * step / lesson_steps))
        rate = 4e-3 * min(1.0, (step + 1) / 50) * (0.1 + 0.9 * cosine)
        yield step / num_steps, "arithmetic lessons", _sums(low, high), rate
    for step in range(demo_steps):
        rate = 1.5e-3 * (1 - 0.9 * step / demo_steps)
        yield (lesson_steps + step) / num_steps, "team demonstrations", team_lesson, rate


def _sums(min_terms: int, max_terms: int) -> Lesson:
    return lambda rng: arithmetic_lesson(rng, min_terms=min_terms, max_terms=max_terms)


def _teach(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    curriculum: Iterator[tuple[float, str, Lesson, float]],
    rng: random.Random,
    *,
    batch_size: int,
    progress: Callable[[float, str], None],
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    for share, doing, lesson, rate in curriculum:
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
    return pad(rows, batch_first=True, padding_value=SPECIAL.index(PAD)), pad(labels, True, IGNORED)


def _loss(model: LlamaForCausalLM, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the learnt tokens; logits are made for these alone."""
    hidden = model.model(input_ids=input_ids).last_hidden_state[:, :-1]
    is_learnt = labels[:, 1:] != IGNORED
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[is_learnt]), labels[:, 1:][is_learnt])
