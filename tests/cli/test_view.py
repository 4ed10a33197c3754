"""`dagrl view` as a user calls it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.command import start
from tests.fork_server import completed as dagrl
from tests.run_builders import make_run


def test_it_serves_the_runs_of_a_folder_until_it_is_ended(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", rewards=[0.5]).close()
    process = start("view", "--port", "0", cwd=tmp_path)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{address}api/runs", timeout=20) as reply:
            assert [run["step"] for run in json.load(reply)["runs"]] == [1]
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_export_writes_one_file(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", rewards=[0.5]).close()
    done = dagrl("view", "latest", "--export", "report.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = dagrl("view", "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere" in done.stderr and "Traceback" not in done.stderr
