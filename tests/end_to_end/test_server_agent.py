"""An agent behind a server in a run: the others learn against it, it is neither trained nor saved."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dagrl.runtime import checkpoint
from tests.fork_server import completed as dagrl
from tests.openai_server import chat, serving
from tests.tiny_project import write_project

pytestmark = pytest.mark.slow

_OF_THE_CALLER = r"  - node_id: (old_1|train_1)\n(    .*\n)+|  - {node_id: ref_1,.*\n"
"""What would need the caller's weights here."""


def write_frozen(folder: Path, url: str) -> None:
    workflow = write_project(folder, total_steps=2)
    text = re.sub(_OF_THE_CALLER, "", workflow.read_text())
    workflow.write_text(text.replace("1: {name: caller}", f"1: {{name: caller, server: {{url: '{url}'}}}}"))


def test_a_team_learns_with_an_agent_that_a_server_speaks_for(tmp_path):
    with serving(chat(lambda text: text[-2:-1])) as server:
        write_frozen(tmp_path, server.url)
        done = dagrl("run", "--workflow", "calling.yaml", "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "run"
    rows = pq.read_table(run / "trajectories" / "step_000002.parquet").to_pylist()
    heard = {row["trajectory"]: row["response"] for row in rows if row["agent"] == "scout"}
    for row in rows:
        if row["agent"] == "caller":
            assert row["rollout_logprobs"] is None and row["advantages"] is not None
            said = heard[row["trajectory"]].strip()
            assert not said or row["response"] == said
    clocks = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    assert any(row.get("perf/server/caller/as_text") == 1.0 for row in clocks)
    saved = checkpoint.newest(run / "checkpoints").path
    assert (saved / "agent_scout").is_dir() and not (saved / "agent_caller").exists()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("agent_scout/actor/policy_loss" in row for row in metrics)
    assert not any(name.startswith("agent_caller/actor") for row in metrics for name in row)


def test_what_a_server_refuses_fails_those_trajectories_and_is_told(tmp_path):
    with serving(lambda path, question: (400, {"error": {"message": "too long for me"}})) as server:
        write_frozen(tmp_path, server.url)
        changed = "agent_groups.1.server.model=tiny"
        done = dagrl("run", "--workflow", "calling.yaml", "--run-dir", "run", changed, cwd=tmp_path)
    assert done.returncode == 6, done.stdout + done.stderr
    assert "generate_refused" in done.stderr and "status 400: too long for me" in done.stderr
