"""Benchmarks of a few hundred mathematical problems at most → test.parquet: AIME 2024 and 2025, AMC 2023, Minerva.

python data_preprocess/math_benchmarks.py --set aime24 --local_dir data/aime24 [--input FILE]

| --set | Hugging Face name | columns |
|---|---|---|
| aime24 | math-ai/aime24 | problem, solution (a box) |
| aime25 | math-ai/aime25 | problem, answer |
| amc23 | math-ai/amc23 | question, answer |
| minerva | math-ai/minervamath | question, answer |

A local copy may also have the columns of HuggingFaceH4/aime_2024, Maxwell-Jia/AIME_2024, opencompass/AIME2025,
AI-MO/aimo-validation-amc (problem or question, answer) or of BytedTsinghua-SIA/AIME-2024 (prompt, reward_model).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from common import open_source, parser, write
from math_forms import boxed_row, integer_answer, plain_answer, read_problem
from overlap import without_disputed

SETS: dict[str, tuple[str, Callable[[str], str]]] = {
    "aime24": ("math-ai/aime24", integer_answer),
    "aime25": ("math-ai/aime25", integer_answer),
    "amc23": ("math-ai/amc23", plain_answer),
    "minerva": ("math-ai/minervamath", plain_answer),
}
"""Where each set comes from, and how its answers are read."""


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser("A mathematical benchmark to parquet", is_seeded=False)
    arguments.add_argument("--set", choices=SETS, required=True, help="which benchmark")
    options = arguments.parse_args(argv)
    source, read_answer = SETS[options.set]
    problems = []
    for number, example in enumerate(open_source(source, None, "test", options.input)):
        try:
            problem = read_problem(example, source)
            problems.append(replace(problem, answer=read_answer(problem.answer)))
        except ValueError as error:
            raise SystemExit(f"{source}, row {number}: {error}") from error
    kept = without_disputed(problems, source)
    write(options.local_dir, "test", [boxed_row(x, source, "test", i) for i, x in enumerate(kept)])


if __name__ == "__main__":
    main()
