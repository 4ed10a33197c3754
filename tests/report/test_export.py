"""report.html: one file, inert whatever a run holds."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from dagrl.errors import DagrlError
from dagrl.report.export import write_report
from tests.run_builders import make_run, trajectory, write_trajectories

HOSTILE = "</script><script>alert(1)</script><!-- & --> <img src=x onerror=alert(2)>"


@pytest.fixture
def report(tmp_path: Path) -> str:
    folder = make_run(tmp_path / "runs", rewards=[0.0, 1.0])
    for step in range(1, 10):
        talks = [trajectory(f"task:{number}", number / 4, text=HOSTILE) for number in range(5)]
        write_trajectories(folder, step, talks, [0.0] * 5)
    folder.close()
    write_report([tmp_path / "runs"], tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def answers(report: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="answers">(.*?)</script>', report, re.DOTALL)
    assert found is not None
    content: dict[str, object] = json.loads(found[1])
    return content


def test_text_of_the_run_cannot_end_the_element_that_holds_it(report: str) -> None:
    assert HOSTILE not in report
    assert "<script>alert" not in report and "<img" not in report
    assert HOSTILE in json.dumps(answers(report), ensure_ascii=False)


def test_nothing_is_loaded_and_only_its_own_script_may_run(report: str) -> None:
    assert re.search(r'(src|href)="(?!#)', report.split('id="answers"')[0].replace('href="/icon', "")) is None
    policy = re.search(r'Security-Policy" content="([^"]+)"', report)
    scripts = re.findall(r"<script>(.*?)</script>", report, re.DOTALL)
    assert policy is not None and len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1] and "default-src 'none'" in policy[1]


def test_first_and_last_step_with_worst_and_best_are_packed(report: str) -> None:
    lists = {key: value for key, value in answers(report).items() if key.startswith('["conversations"')}
    steps = [json.loads(key)[1][1] for key in lists]
    assert steps[0] == "step_000001" and steps[-1] == "step_000009" and len(steps) == 6
    assert [row["trajectory"] for row in lists[next(iter(lists))]["rows"]] == [0, 1, 2, 4, 3]


def test_without_a_run_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(DagrlError, match="no run"):
        write_report([tmp_path], tmp_path / "report.html")
