"""Resumed runs of what plays more than its samples: every CREDIT rule and remax come out byte for byte."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from dagrl.runtime.console import Console
from dagrl.runtime.resume import find_point
from dagrl.runtime.run_folder import RunFolder
from dagrl.runtime.session import run_workflow
from dagrl.runtime.signals import StopSignals
from tests.small_teams import node, one_process, speaker, team, train

pytestmark = pytest.mark.slow

SCORES = """
def first(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str[:1] == ground_truth)

def judge(trajectory):
    return {turn.agent_group: len(turn.response_text) / 8 for turn in trajectory.turns}
"""
PAIR = (speaker("a"), speaker("b", 1, ["a"]))
CREDIT = {
    "shared": {"team_share": 0.5},
    "difference": {"instead": "initial"},
    "leave_one_out": {"samples": 2},
    "shapley": {},
    "judge": {},
}
"""Options of each rule but `siblings`, which test_dynamic_sampling.py resumes."""
LEAST = {"difference": 8, "leave_one_out": 8, "shapley": 8, "remax": 2}
"""Extra rollouts that a step must have played, or nothing is proved."""


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def made(name):
    estimator = "remax" if name == "remax" else "grpo"
    scores = {"executable_ref": "scores.py:first"}
    whole = team(PAIR, reward=scores, critics=False, algorithm={"adv_estimator": estimator})
    if name == "remax":
        return whole
    nodes = [one | {"dependencies": [*one["dependencies"], "credit"]} if one["node_id"] == "advantages" else one
             for one in whole["nodes"]]  # fmt: skip
    keys = {"executable_ref": "scores.py:judge"} if name == "judge" else {}
    options = {"credit": {"rule": name, **CREDIT[name]}}
    nodes.append(node("credit", "COMPUTE", role="CREDIT", after=["reward"], options=options, **keys))
    return whole | {"nodes": nodes}


@pytest.mark.parametrize(
    "name",
    [
        *("difference", "judge", "remax"),
        *(pytest.param(name, marks=pytest.mark.resilience) for name in ("shared", "leave_one_out", "shapley")),
    ],
)
def test_a_resumed_run_is_byte_for_byte_the_one_never_stopped(tmp_path, name):
    options = ("data.train_batch_size=2", "trainer.total_steps=2", "trainer.save_freq=1")
    ran = train(tmp_path, *options, team=made(name), files={"scores.py": SCORES})
    assert ran.series("ledger/extra")[0] >= LEAST.get(name, 0)
    resumed = tmp_path / "resumed"
    shutil.copytree(ran.folder, resumed)
    shutil.rmtree(resumed / "checkpoints" / "step_000002")
    point = find_point(resumed, steps_back=False)
    assert point.step == 1
    folder = RunFolder(resumed)
    run_workflow(ran.workflow, folder, Console(), stop=StopSignals(), point=point)
    folder.close()
    assert fingerprint(resumed) == fingerprint(ran.folder)


def fingerprint(run):
    files = [run / "metrics.jsonl", run / "ledger.jsonl", *(run / "trajectories").glob("step_*.parquet")]
    files += (run / "checkpoints" / "step_000002").rglob("*.safetensors")
    assert len(files) >= 6
    return {
        file.relative_to(run).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if not file.name.endswith(".timings.parquet")
    }
