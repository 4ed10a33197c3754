"""The task of the small models: reasoning-gym's chain sums of single digits, and ways to go about them, good and bad.

The problems are made here, by the rule of `chain_sum`; none is a held-out one: `is_held_out` is the rule by which
data_preprocess/reasoning_gym.py splits train from test.
"""

from __future__ import annotations

import random
import zlib

from teaching import END, USER

QUESTION = "State the final answer to the following arithmetic problem: "
SIGNS = (" = ", " + ", " - ", " =")

HELD_OUT_SHARE = 10
"""One question in so many is held out."""
SLIP_RATE = 0.03
"""How often a worker's running total is off by 1, 2 or 10."""
GUESS_DEVIATION = 4.0


def is_held_out(question: str) -> bool:
    """Whether a question belongs to the test set, told by its text alone."""
    return zlib.crc32(question.encode()) % HELD_OUT_SHARE == 0


def asked(problem: str) -> str:
    """The problem as the chat template writes it."""
    return f"{USER}{QUESTION}{problem} ={END}"


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
