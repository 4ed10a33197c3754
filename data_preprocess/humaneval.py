"""HumanEval's functions to complete → test.parquet. Runs the reference solutions in dagrl's sandbox.

python data_preprocess/humaneval.py --local_dir data/humaneval [--input FILE]

The tests of openai/openai_humaneval (task_id, prompt, canonical_solution, test, entry_point) are programs that check
what a function returns. dagrl's judge compares values outside the sandbox, where no program can forge them: so the
reference solution is run on the test, each call is written down with what it returned, and the reference solution
must then pass what was written down. Problems for which that is impossible are left out, and the first ten named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from code_tests import code_row
from common import CODE_INSTRUCTION, column, open_source, parser, readable, write
from overlap import Problem

from dagrl.rewards.code import judge, read_tests
from dagrl.rewards.sandbox import Ending, run_program

SOURCE = "openai/openai_humaneval"
MANY_ANSWERS = ("HumanEval/32",)
"""Problems whose test takes more than one value: any root of a polynomial, within 1e-4 of zero."""

_RECORDER = """

def _dagrl_record(solution, check):
    import json, random
    calls = []
    def candidate(*arguments):
        given = json.loads(json.dumps(arguments))
        answer = solution(*arguments)
        calls.append((given, json.loads(json.dumps(answer))))
        return answer
    random.seed(0)
    check(candidate)
    print("\\n" + json.dumps(calls))

_dagrl_record({entry_point}, check)
"""


def read(example: Mapping[str, Any]) -> Problem:
    """One problem with the calls of its test. Raises ValueError where its test cannot be written as such calls."""
    names = ("task_id", "prompt", "canonical_solution", "test", "entry_point")
    task_id, prompt, solution, test, entry_point = (column(example, (name,), SOURCE) for name in names)
    if task_id in MANY_ANSWERS:
        raise ValueError(f"{task_id}: its test takes more than one answer")
    calls = recorded_calls(f"{prompt}{solution}\n{test}", entry_point, task_id)
    truth = {
        "fn_name": entry_point,
        "inputs": [arguments for arguments, _ in calls],
        "outputs": [answer for _, answer in calls],
    }
    failure = judge(f"{prompt}{solution}", read_tests(truth)).failure if calls else "its test makes no call"
    if failure is not None:
        raise ValueError(f"{task_id}: its own solution does not pass: {failure}")
    return Problem(
        question=f"```python\n{prompt.strip()}\n```\n\n{CODE_INSTRUCTION} It completes the code above.",
        answer=json.dumps(truth),
        extra_info={"task_id": task_id, "num_tests": len(calls)},
    )


def recorded_calls(program: str, entry_point: str, task_id: str) -> list[tuple[list[Any], Any]]:
    """(arguments, returned value) of each call that `check` of `program` makes, in JSON's types."""
    (outcome,) = run_program(program + _RECORDER.format(entry_point=entry_point), [""])
    if outcome.ending is not Ending.FINISHED:
        raise ValueError(f"{task_id}: its test ended as {outcome.ending}: {outcome.stderr[-200:]}")
    return [(arguments, answer) for arguments, answer in json.loads(outcome.stdout.splitlines()[-1])]


def main(argv: Sequence[str] | None = None) -> None:
    options = parser("HumanEval to parquet", is_seeded=False).parse_args(argv)
    problems = list(readable(open_source(SOURCE, None, "test", options.input), read, SOURCE))
    write(options.local_dir, "test", [code_row(x, SOURCE, "test", i) for i, x in enumerate(problems)])


if __name__ == "__main__":
    main()
