"""The model that both agents of workflows/marft.yaml start from: a tiny transformer, taught for about a minute.

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
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from sums import QUESTION, SIGNS, SLIP_RATE, asked, draw_problem, guess, worked_sum
from teaching import END, Part, Progress, Syllabus, teach

REASONER, ACTOR = "<|reasoner|>", "<|actor|>"
WRONG = "The answer is wrong."
PHRASES = (QUESTION, WRONG, "The answer is right.", "The answer is ", "It is the sum of ", "about ", "\\boxed{", *SIGNS)

WORKER, GUESSER, RESTATER = 0.3, 0.4, 0.3
READER, HASTY, UNBOXED = 0.3, 0.4, 0.3
RETRY_SHARE = 0.25
ALONE_SHARE = 0.05


def make(folder: Path, progress: Progress, **options: int) -> None:
    """Writes the taught model to `folder`; `options` as `teach` has them."""
    teach(folder, progress, SYLLABUS, **options)


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


def arithmetic_lesson(rng: random.Random, min_terms: int, max_terms: int) -> list[Part]:
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
    transcript = asked(problem)
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


SYLLABUS = Syllabus(roles=(REASONER, ACTOR), phrases=PHRASES, trade=arithmetic_lesson, team=team_lesson)
