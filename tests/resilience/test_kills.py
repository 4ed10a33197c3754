"""G1 and G10: `kill -9` at random moments, and the run that goes on ends as one that was never stopped."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from signal import SIGKILL

import pytest

from dagrl.cli import EXIT_BUG
from tests import command
from tests.fork_server import Command, nothing
from tests.resilience import phases, projects
from tests.resilience.killer import Killer
from tests.resilience.projects import SAMPLES, START, STEPS, TASKS, fingerprint

pytestmark = pytest.mark.resilience

KILLS = 50
MOST_KILLS = 3 * KILLS
WITNESSED = ("play", "learn", "evaluate", "save")
LEAST = 5
"""Kills in each of the witnessed phases."""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return projects.write(tmp_path_factory.mktemp("kills"))


@pytest.fixture(scope="module")
def whole(project) -> Path:
    """A run that was never stopped, in a process that was not forked and hashes texts otherwise."""
    done = command.dagrl(*START, "--run-dir", "whole", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "whole"


def test_fifty_kills_and_every_run_ends_as_if_it_had_never_been_stopped(project, whole):
    killer = Killer(project, random.Random(2026), WITNESSED)
    expected, expected_prompts = fingerprint(whole), projects.trained(whole)
    assert set(expected_prompts.values()) == {1} and expected_prompts.total() == STEPS * TASKS * SAMPLES
    num_runs = 0
    while killer.fell.total() < KILLS or any(killer.fell[phase] < LEAST for phase in WITNESSED):
        run = project / f"killed_{num_runs}"
        killer.run(run, stops=killer.random.randint(3, 7))
        num_runs += 1
        assert fingerprint(run) == expected
        assert projects.trained(run) == expected_prompts, "prompts lost or trained on twice"
        shutil.rmtree(run)
        assert killer.fell.total() < MOST_KILLS, f"kills do not fall where they should: {killer.fell}"
    print(f"\n{killer.fell.total()} kills in {num_runs} runs, {num_runs} of them bit-identical: {dict(killer.fell)}")


@pytest.fixture(scope="module")
def killed(project) -> Path:
    """A run killed while it learnt, with steps written down that no checkpoint has."""
    run = project / "killed"
    words = (*START, "trainer.save_freq=2", "--run-dir", str(run))
    assert Command(*words, cwd=project, setup=phases.dying("learn", 4)).wait() == -SIGKILL
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step_000002"]
    assert (run / "trajectories" / "step_000003.parquet").exists()
    return run


PROTECTIONS: dict[str, Callable[[], None] | None] = {
    "all there": None,
    "logs are not cut back": partial(nothing, "dagrl.runtime.session", "cut_back_to"),
    "optimizer and version are not put back": partial(
        nothing, "dagrl.backends.hf_trainer", "HFPolicy", "load_state_dict"
    ),
    "critic's weights are not put back": partial(nothing, "dagrl.backends.hf_critic", "HFCritic", "load"),
    "the place in the data is not put back": partial(nothing, "dagrl.data.loader", "DataLoader", "load_state_dict"),
}


@pytest.mark.parametrize("missing", PROTECTIONS)
def test_without_one_of_the_protections_the_run_ends_otherwise(project, whole, killed, tmp_path, missing):
    run = tmp_path / "run"
    shutil.copytree(killed, run)
    ended = Command("run", "--resume", str(run), cwd=project, setup=PROTECTIONS[missing])
    if "data" in missing:
        assert ended.wait() == EXIT_BUG, "the ledger's count of what was drawn is another one"
        assert max(projects.trained(run).values()) == 2
        return
    assert ended.wait() == 0, ended.output
    assert (fingerprint(run) == fingerprint(whole)) == (missing == "all there")
