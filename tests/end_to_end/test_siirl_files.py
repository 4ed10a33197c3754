"""Files in the form that siiRL publishes run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fork_server import completed as dagrl
from tests.tiny_project import write_project


@pytest.mark.slow
def test_reference_nodes_that_nothing_uses_do_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    workflow = write_project(tmp_path, total_steps=1)
    options = ["config.actor.use_kl_loss=false", "config.actor.kl_loss_coef=0"]
    done = dagrl("run", "--workflow", str(workflow), "--run-dir", "out", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing uses the ref_logprobs" in done.stdout + done.stderr
