"""The model of workflows/codegen_verifier.yaml: coder and tester of mixed quality.

**The lessons** show right programs, right tests, and programs mended after a report. **The demonstrations**
then show, and the model comes to imitate:

- coder: 35 % right programs, 45 % with another factor, sign or summand, 20 % a program without its block. After a
  report half of them mend the program.
- tester: 40 % right outputs, 30 % one of them off by a little, 30 % words instead of tests.
"""

from __future__ import annotations

import random
from pathlib import Path

from programs import is_held_out, problems, program, question, value
from teaching import END, USER, Part, Progress, Syllabus, teach

CODER, TESTER, REPORT = "<|coder|>", "<|tester|>", "<|report|>"
OPEN, CLOSE = "```python\n", "```"
PHRASES = ("Read a number x and print ", " times x plus ", " times x minus ", OPEN, "x = int(input())\nprint(", " * x",
           " + ", " - ", ")\n" + CLOSE, '{"inputs": ["', '", "', '"], "outputs": ["', '"]}', "input ", ", expected ",
           ": printed ", "I would try ")  # fmt: skip
KNOWN = [problem for problem in problems() if not is_held_out(*problem)]
Problem = tuple[int, str, int]


def make(folder: Path, progress: Progress, **options: int) -> None:
    """Writes the taught model to `folder`; `options` as `teach` has them."""
    teach(folder, progress, SYLLABUS, **({"lesson_steps": 1200, "demo_steps": 150} | options))


def block(problem: Problem) -> str:
    return f"{OPEN}{program(*problem)}{CLOSE}"


def tests(problem: Problem, rng: random.Random, *, slip: int = 0) -> str:
    """Two inputs of one digit and what a right program prints; `slip` is added to the last."""
    tried = rng.sample(range(10), 2)
    printed = [value(*problem, x) for x in tried]
    printed[-1] += slip
    return f'{{"inputs": ["{tried[0]}", "{tried[1]}"], "outputs": ["{printed[0]}", "{printed[1]}"]}}'


def report(problem: Problem, wrong: Problem, rng: random.Random) -> str:
    """What is said of a wrong program."""
    x = rng.randrange(10)
    return f"{REPORT}input {x}, expected {value(*problem, x)}: printed '{value(*wrong, x)}\\n'{END}"


def lesson(rng: random.Random, fewest: int, most: int) -> list[Part]:
    """Everybody does well."""
    problem = rng.choice(KNOWN)
    asked, right = f"{USER}{question(*problem)}{END}", block(problem) + END
    kind = rng.choices(("code", "test", "mend"), (0.25, 0.5, 0.25))[0]
    if kind == "code":
        return [(asked + CODER, False), (right, True)]
    if kind == "test":
        return [(asked + CODER + block(_other(problem, rng)) + END + TESTER, False), (tests(problem, rng) + END, True)]
    return [(asked + report(problem, _other(problem, rng), rng) + CODER, False), (right, True)]


def demonstration(rng: random.Random) -> list[Part]:
    """The mixed team at work."""
    problem = rng.choice(KNOWN)
    asked = f"{USER}{question(*problem)}{END}"
    said = _coded(problem, rng)
    kind = rng.choice(("code", "test", "mend"))
    if kind == "code":
        return [(asked + CODER, False), (said + END, True)]
    if kind == "test":
        return [(asked + CODER + said + END + TESTER, False), (_tested(problem, rng) + END, True)]
    mended = block(problem) if rng.random() < 0.5 else said
    return [(asked + report(problem, _other(problem, rng), rng) + CODER, False), (mended + END, True)]


def _coded(problem: Problem, rng: random.Random) -> str:
    kind = rng.choices(("right", "wrong", "bare"), (0.35, 0.45, 0.2))[0]
    if kind == "bare":
        return program(*problem)
    return block(problem if kind == "right" else _other(problem, rng))


def _tested(problem: Problem, rng: random.Random) -> str:
    kind = rng.choices(("right", "slip", "words"), (0.4, 0.3, 0.3))[0]
    if kind == "words":
        return f"I would try {rng.randrange(10)}"
    return tests(problem, rng, slip=0 if kind == "right" else rng.choice((-2, -1, 1, 2)))


def _other(problem: Problem, rng: random.Random) -> Problem:
    """One that is easily taken for it."""
    factor, sign, summand = problem
    return rng.choice(
        (
            (factor, "-" if sign == "+" else "+", summand),
            (factor % 9 + 1, sign, summand),
            (factor, sign, summand % 9 + 1),
        )
    )


SYLLABUS = Syllabus(roles=(CODER, TESTER, REPORT), phrases=PHRASES, trade=lesson, team=demonstration)
