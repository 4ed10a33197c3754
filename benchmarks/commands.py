"""CPU time from the start of a command to its end, beside the start of Python and of the libraries that it cannot do
without.

Run `python benchmarks/commands.py` in the repository root. Rounds are interleaved; the figures are medians with minimum
and maximum of user and system time, all threads, without waiting.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
DAGRL = "import sys; from dagrl.cli import main; sys.exit(main())"
COMMANDS = {
    "python": ["-c", "pass"],
    "python, import typer": ["-c", "import typer"],
    "dagrl --help": ["-c", DAGRL, "--help"],
    "python, import pydantic, yaml": ["-c", "import pydantic.main, yaml"],
    "dagrl validate workflows/marft.yaml": ["-c", DAGRL, "validate", "workflows/marft.yaml"],
}


def cpu_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for arguments in COMMANDS.values():
        cpu_seconds(arguments)
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            times[name].append(cpu_seconds(arguments))
    print(Path("/proc/pressure/cpu").read_text().splitlines()[0])
    for name, own in times.items():
        print(f"{name:40s} CPU {statistics.median(own):.2f} [{min(own):.2f}, {max(own):.2f}] s")


if __name__ == "__main__":
    main()
