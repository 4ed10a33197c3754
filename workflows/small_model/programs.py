"""The problems of workflows/codegen_verifier.yaml: print a linear function of a number.

`python workflows/small_model/programs.py` makes workflows/codegen/train.jsonl and test.jsonl.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

HELD_OUT_SHARE = 5
"""One problem in so many is held out."""
TRIED = (0, 3, 8)


def problems() -> list[tuple[int, str, int]]:
    """Factor, sign and summand of every problem."""
    return [(factor, sign, summand) for factor in range(2, 10) for sign in "+-" for summand in range(1, 10)]


def question(factor: int, sign: str, summand: int) -> str:
    return f"Read a number x and print {factor} times x {'plus' if sign == '+' else 'minus'} {summand}."


def is_held_out(factor: int, sign: str, summand: int) -> bool:
    return zlib.crc32(question(factor, sign, summand).encode()) % HELD_OUT_SHARE == 0


def program(factor: int, sign: str, summand: int) -> str:
    """A right one."""
    return f"x = int(input())\nprint({factor} * x {sign} {summand})\n"


def value(factor: int, sign: str, summand: int, x: int) -> int:
    return factor * x + (summand if sign == "+" else -summand)


def row(problem: tuple[int, str, int]) -> dict[str, object]:
    tests = {"inputs": [f"{x}\n" for x in TRIED], "outputs": [f"{value(*problem, x)}\n" for x in TRIED]}
    return {
        "prompt": [{"role": "user", "content": question(*problem)}],
        "data_source": "linear_programs",
        "ground_truth": json.dumps(tests),
        "extra_info": {"reference": program(*problem)},
    }


def main() -> None:
    for name, wanted in (("train", False), ("test", True)):
        rows = [json.dumps(row(problem)) + "\n" for problem in problems() if is_held_out(*problem) == wanted]
        (Path(__file__).parents[1] / "codegen" / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
