"""Part of G1: what draws from the process's own random states goes on where it was: Python's, numpy's, torch's."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest
import torch

from tests.fork_server import Command, dagrl, nothing
from tests.resilience import phases, projects
from tests.resilience.projects import START, fingerprint

pytestmark = pytest.mark.resilience

LUCK = """
import random

import numpy as np
import torch


def score(data_source, solution_str, ground_truth, extra_info):
    return 0.1 * (random.random() + np.random.rand() + torch.rand(()).item())
"""
OWN = "node_type: REWARD, executable_ref: luck.py:score, agent_options: {combine: add}, agent_group: 1"
SEEDS: dict[str, Callable[[], Any]] = {
    "python": partial(random.seed, 1), "numpy": partial(np.random.seed, 1), "torch": partial(torch.manual_seed, 1),
}  # fmt: skip


def forget(library: str) -> None:
    """A `setup`: all is put back but the state of `library`."""
    from dagrl.runtime import resume

    original = resume.set_random_state

    def partly(state: Any) -> None:
        original(state)
        SEEDS[library]()

    resume.set_random_state = partly


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its reward draws from all three."""
    folder = projects.write(tmp_path_factory.mktemp("luck"))
    (folder / "luck.py").write_text(LUCK)
    workflow = folder / "calling.yaml"
    text = workflow.read_text()
    assert "node_type: REWARD, agent_group: 1" in text
    workflow.write_text(text.replace("node_type: REWARD, agent_group: 1", OWN))
    return folder


@pytest.fixture(scope="module")
def whole(project: Path) -> Path:
    dagrl(*START, "--run-dir", "whole", cwd=project)
    return project / "whole"


@pytest.fixture(scope="module")
def killed(project: Path) -> Path:
    words = (*START, "trainer.save_freq=2", "--run-dir", "killed")
    assert Command(*words, cwd=project, setup=phases.dying("learn", 4)).wait() == -SIGKILL
    return project / "killed"


SETUPS: dict[str, Callable[[], None] | None] = {
    "nothing": None,
    "any": partial(nothing, "dagrl.runtime.resume", "set_random_state"),
    **{name: partial(forget, name) for name in SEEDS},
}


@pytest.mark.parametrize("forgotten", SETUPS)
def test_a_resumed_run_draws_what_it_would_have_drawn_unless_a_state_is_forgotten(
    project: Path, whole: Path, killed: Path, tmp_path: Path, forgotten: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(killed, run)
    dagrl("run", "--resume", str(run), cwd=project, setup=SETUPS[forgotten])
    same = {name: value == fingerprint(whole)[name] for name, value in fingerprint(run).items()}
    assert all(same.values()) == (forgotten == "nothing"), same
    assert same["metrics.jsonl"] == (forgotten == "nothing")
