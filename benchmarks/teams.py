"""Trains the team workflows and prints what they gained on held-out problems, beside one agent at equal tokens.

Run `OMP_NUM_THREADS=1 python benchmarks/teams.py` in the repository root: every workflow, one seed. `--seeds 1 2 3` and
`--only NAME ...` choose; a run that is whole in `--runs` (runs/teams) is read instead of made again. For a team that
generates about k times as many tokens for a problem as `single_agent` of the same seed, the single agent's answer is
the majority of k samples (`dagrl eval --k k`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagrl.data.trajectory_files import read_trajectories
from dagrl.report.reader import RunReader, open_run

ROOT = Path(__file__).resolve().parents[1]

BASELINE = "single_agent"
COMPARED = ("actor_verifier", "actor_verifier_ds", "solver_rewriter_selector", "solver_rewriter_selector_3",
            "thinker_verifier", "parallel_team")  # fmt: skip
"""Teams that solve the same problems with the same knowledge as the single agent."""
TEAMS = (*COMPARED, "frozen_opponent", "adversarial", "adversarial_2", "co_evolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run on held-out problems."""

    before: float
    after: float
    tokens: float
    """Generated for a problem by all agents, after training."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--only", nargs="+", default=[BASELINE, *TEAMS])
    options.add_argument("--runs", type=Path, default=Path("runs/teams"))
    options.add_argument("--problems", type=int, default=300, help="held-out problems")
    given = options.parse_args()
    print("| workflow | seed | before | after | gain | tokens a problem | single agent at equal tokens |")
    print("|---|---|---|---|---|---|---|")
    for name in given.only:
        for seed in given.seeds:
            made = result(given.runs / f"{name}.{seed}", name, seed, given.problems)
            alone = ""
            if name in COMPARED:
                base = given.runs / f"{BASELINE}.{seed}"
                num_samples = max(1, round(made.tokens / result(base, BASELINE, seed, given.problems).tokens))
                alone = f"{majority(base, num_samples):.3f} (k = {num_samples})"
            gain = made.after - made.before
            row = (name, seed, f"{made.before:.3f}", f"{made.after:.3f}", f"{gain:+.3f}", f"{made.tokens:.0f}", alone)
            print(f"| {' | '.join(map(str, row))} |", flush=True)


@cache
def result(folder: Path, name: str, seed: int, num_problems: int) -> Result:
    """The run in `folder`, made now if it is not there."""
    if not (folder / "status.json").is_file() or open_run(str(folder), folder.parent).evaluations()[-1]["step"] == 0:
        _dagrl("run", "--workflow", str(ROOT / f"workflows/{name}.yaml"), "--run-dir", str(folder),
               f"config.trainer.seed={seed}", f"config.data.val_max_prompts={num_problems}",
               "config.trainer.min_improvement=null", "config.trainer.show_sample_freq=0")  # fmt: skip
    reader = open_run(str(folder), folder.parent)
    whole = [row for row in reader.evaluations() if "val/accuracy" in row]
    return Result(
        before=float(whole[0]["val/accuracy"]),
        after=float(whole[-1]["val/accuracy"]),
        tokens=_tokens(reader, int(whole[-1]["step"])),
    )


def majority(folder: Path, num_samples: int) -> float:
    """The share of problems that the majority of so many samples of a run's team solves."""
    told = _dagrl("eval", str(folder), "--k", str(num_samples), "--json", "--allow-changes")
    overall = json.loads(told)["teams"][0]["scores"][0]
    return float(overall["majority"]["mean"])


def _tokens(reader: RunReader, step: int) -> float:
    turns = read_trajectories(reader.path / "trajectories" / f"eval_{step:06d}.parquet")
    by_problem: dict[str, int] = {}
    for turn in turns:
        by_problem[turn["task_id"]] = by_problem.get(turn["task_id"], 0) + len(turn["response_ids"])
    return statistics.mean(by_problem.values())


def _dagrl(*words: str) -> str:
    command = [sys.executable, "-c", "from dagrl.cli import main; main()", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dagrl {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
