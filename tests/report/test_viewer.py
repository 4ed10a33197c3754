"""The local web page's server: who may ask, what it gives, what text of a run can and cannot do."""

from __future__ import annotations

import http.client
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from dagrl.report.answers import OF_A_RUN, Answers
from dagrl.report.reader import find_runs
from dagrl.report.viewer import STATIC, ViewerServer, to_json
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.load import dump
from dagrl.workflow.origins import origins
from tests.run_builders import make_run, trajectory, write_evaluation, write_trajectories

HOSTILE = '</script><script>alert(1)</script>\x1b[31m<img src=x onerror=alert(2)>\u2028"\ud800'


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "runs", rewards=[0.0, 0.5, 1.0])
    first = [trajectory(f"task:{number % 3}", number / 10, text=f"answer {number}") for number in range(7)]
    write_trajectories(folder, 1, first, [0.1 * number for number in range(7)])
    write_trajectories(folder, 2, [trajectory("task:1", 1.0, text=HOSTILE, heard=HOSTILE)], [1.0])
    folder.close()
    return tmp_path / "runs"


@pytest.fixture
def server(runs: Path) -> Iterator[ViewerServer]:
    with ViewerServer([runs]) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made
        made.shutdown()


def get(server: ViewerServer, path: str, *, host: str | None = None, method: str = "GET") -> tuple[Any, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    reply = connection.getresponse()
    return reply, reply.read()


def ask(server: ViewerServer, question: str, **params: object) -> Any:
    reply, content = get(server, f"/api/{question}?{urlencode(params)}")
    assert reply.status == 200, content
    return json.loads(content)


def name_of(server: ViewerServer) -> str:
    return str(ask(server, "runs")["runs"][0]["name"])


def test_it_listens_on_loopback_alone(server: ViewerServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:7070", "LOCALHOST", "[::1]:8", "127.0.0.1:9999"])
def test_loopback_names_are_answered_with_any_port(server: ViewerServer, host: str) -> None:
    assert get(server, "/", host=host)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "127.0.0.1:x", "a:b"]
)
def test_other_hosts_are_refused(server: ViewerServer, host: str) -> None:
    for path in ("/", "/api/runs"):
        reply, content = get(server, path, host=host)
        assert reply.status == 403
        assert b"marft" not in content and b"team" not in content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_but_get_is_done(server: ViewerServer, method: str) -> None:
    assert get(server, "/api/runs", method=method)[0].status == 501


@pytest.mark.parametrize("path", [*STATIC, "/api/runs", "/nothing"])
def test_every_reply_forbids_the_page_to_load_or_run_anything_else(server: ViewerServer, path: str) -> None:
    headers = get(server, path)[0].headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "*" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/../setup.py",
        "/..%2f..%2fsetup.py",
        "//etc/passwd",
        "/page/../viewer.py",
        "/app.js/../../viewer.py",
        "/api/../x",
    ],
)
def test_paths_lead_nowhere_else(server: ViewerServer, path: str) -> None:
    assert get(server, path)[0].status == 404


@pytest.mark.parametrize("name", ["../../..", "/etc", "team/../..", "", "team/nothing"])
def test_runs_are_known_by_name_alone(server: ViewerServer, name: str) -> None:
    assert get(server, f"/api/run?{urlencode({'run': name})}")[0].status == 404


@pytest.mark.parametrize("file", ["../metrics.jsonl", "step_000001.parquet", "/etc/passwd", "step_000009"])
def test_files_are_known_by_name_alone(server: ViewerServer, file: str) -> None:
    query = urlencode({"run": name_of(server), "file": file})
    assert get(server, f"/api/conversations?{query}")[0].status == 404


def test_hostile_text_comes_back_as_json_that_says_the_same(server: ViewerServer) -> None:
    asked = {"run": name_of(server), "file": "step_000002", "trajectory": 0}
    reply, content = get(server, f"/api/conversation?{urlencode(asked)}")
    assert reply.headers["Content-Type"] == "application/json"
    turn = json.loads(content)["turns"][0]
    told = HOSTILE.replace("\ud800", "?")
    assert turn["response"] == told and turn["observation"] == told
    assert b"\x1b" not in content


def test_no_script_of_the_page_makes_html_or_code_from_text() -> None:
    page = Path(__file__).resolve().parents[2] / "dagrl" / "report" / "page"
    for script in page.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        for door in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
            assert door not in text, f"{script.name}: {door}"


def test_the_page_names_no_other_host() -> None:
    page = Path(__file__).resolve().parents[2] / "dagrl" / "report" / "page"
    for file in page.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "@import" not in text, file.name


def test_conversations_come_by_page(server: ViewerServer) -> None:
    run = name_of(server)
    pages = [ask(server, "conversations", run=run, file="step_000001", offset=at, limit=3) for at in (0, 3, 6, 9)]
    assert [[row["trajectory"] for row in page["rows"]] for page in pages] == [[0, 1, 2], [3, 4, 5], [6], []]
    assert {page["total"] for page in pages} == {7}


@pytest.mark.parametrize(("order", "first"), [("worst", 0), ("best", 6), ("longest", 0), ("order", 0)])
def test_conversations_are_sorted(server: ViewerServer, order: str, first: int) -> None:
    found = ask(server, "conversations", run=name_of(server), file="step_000001", order=order)
    assert found["rows"][0]["trajectory"] == first


def test_conversations_are_found_by_task_and_by_text(server: ViewerServer) -> None:
    run = name_of(server)
    of_task = ask(server, "conversations", run=run, file="step_000001", task="task:1")
    assert [row["trajectory"] for row in of_task["rows"]] == [1, 4]
    assert of_task["total"] == 2 and of_task["of"] == 7
    with_text = ask(server, "conversations", run=run, file="step_000001", text="ANSWER 5")
    assert [row["trajectory"] for row in with_text["rows"]] == [5]


def test_a_task_is_found_at_all_its_steps(server: ViewerServer) -> None:
    found = ask(server, "task", run=name_of(server), task="task:1")
    assert [(file["title"], [row["trajectory"] for row in file["rows"]]) for file in found["files"]] == [
        ("step 1", [1, 4]),
        ("step 2", [0]),
    ]


def test_evaluations_and_what_dagrl_eval_kept_are_among_the_files_each_under_a_name_of_its_own(
    server: ViewerServer, runs: Path
) -> None:
    [run] = find_runs(runs)
    write_evaluation(run / "trajectories", 2, [trajectory("val:0", 0.0, text="left alone")], "think")
    write_evaluation(run / "evaluations" / "20260102-130000", 2, [trajectory("val:0", 1.0, text="kept")], "think")
    name = name_of(server)
    files = ask(server, "run", run=name)["files"]
    assert [(file["kind"], file["title"]) for file in files] == [
        ("judged", "dagrl eval of 20260102-130000, after step 2, without think"),
        ("step", "step 1"),
        ("eval", "held out after step 2, without think"),
        ("step", "step 2"),
    ]
    answers = [ask(server, "conversations", run=name, file=file["name"])["rows"][-1]["answer"] for file in files]
    assert (answers[0], answers[2]) == ("kept", "left alone")
    of_task = ask(server, "task", run=name, task="val:0")["files"]
    assert [file["title"] for file in of_task] == ["held out after step 2, without think"]


def test_a_conversation_has_its_turns_in_order_with_a_number_per_token(server: ViewerServer) -> None:
    one = ask(server, "conversation", run=name_of(server), file="step_000001", trajectory=3)
    assert [turn["agent"] for turn in one["turns"]] == ["thinker", "writer"]
    for turn in one["turns"]:
        assert turn["columns"]["advantages"] == pytest.approx([0.3] * len(turn["ids"]))
    assert one["turns"][1]["reward_parts"] == {"format": 0.5}


def test_a_torn_last_line_of_metrics_waits_for_its_rest(server: ViewerServer, runs: Path) -> None:
    run = name_of(server)
    metrics = runs / run / "metrics.jsonl"
    with metrics.open("a") as lines:
        lines.write('{"step": 4, "reward/me')
    assert ask(server, "curves", run=run)["series"]["reward/mean"]["x"] == [1, 2, 3]
    with metrics.open("a") as lines:
        lines.write('an": 0.25}\n')
    assert ask(server, "curves", run=run)["series"]["reward/mean"] == {"x": [1, 2, 3, 4], "y": [0, 0.5, 1, 0.25]}


def test_a_broken_file_is_named_and_the_list_of_runs_still_comes(server: ViewerServer, runs: Path) -> None:
    run = name_of(server)
    (runs / run / "status.json").write_text("{")
    assert ask(server, "runs")["runs"][0]["state"] == "broken"
    (runs / run / "trajectories" / "step_000001.parquet").write_bytes(b"PAR1 not really")
    reply, content = get(server, f"/api/conversations?{urlencode({'run': run, 'file': 'step_000001'})}")
    assert reply.status == 409
    assert "step_000001.parquet" in json.loads(content)["fault"]


def test_a_run_that_starts_later_appears(server: ViewerServer, runs: Path) -> None:
    make_run(runs, rewards=[0.1], state="running").close()
    assert len(ask(server, "runs")["runs"]) == 2


def test_runs_of_one_name_in_two_folders_are_both_there(tmp_path: Path) -> None:
    for folder, reward in (("here", 0.0), ("there", 1.0)):
        make_run(tmp_path / folder / "runs", rewards=[reward]).close()
    with ViewerServer([tmp_path / "here" / "runs", tmp_path / "there" / "runs"]) as server:
        names = [run["name"] for run in server.answers.answer("runs", {})["runs"]]
        rewards = [server.answers.answer("curves", {"run": name})["series"]["reward/mean"]["y"] for name in names]
    assert len(set(names)) == 2 and sorted(rewards) == [[0.0], [1.0]]


def test_the_configuration_names_where_each_value_comes_from(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", rewards=[0.0])
    shipped = Path(__file__).resolve().parents[2] / "workflows" / "marft.yaml"
    (tmp_path / "common").mkdir()
    for file in (shipped, *(shipped.parent / "marft").glob("*.py")):
        target = tmp_path / "common" / file.relative_to(shipped.parent)
        target.parent.mkdir(exist_ok=True)
        target.write_text(file.read_text(encoding="utf-8"))
    own = tmp_path / "own.yaml"
    own.write_text("extends: common/marft.yaml\nconfig:\n  trainer:\n    total_steps: 3\n")
    overrides = ["config.trainer.seed=7"]
    workflow = load_workflow(own, overrides)
    folder.record_workflow(
        own,
        resolved=dump(workflow.resolved),
        overrides=overrides,
        origins=origins(workflow.facts.outline.tree, tmp_path),
    )
    folder.close()
    with ViewerServer([tmp_path / "runs"]) as server:
        told = server.answers.answer("config", {"run": f"team/{folder.path.name}"})["values"]
    found = {one["path"]: (one["kind"], one["origin"]) for one in told}
    lines = shipped.read_text(encoding="utf-8").split("\n")
    place = {text: f"common/marft.yaml:{1 + lines.index(text)}" for text in lines}
    assert found["config.trainer.total_steps"] == ("file", "own.yaml:4")
    assert found["config.data.train_batch_size"] == ("file", place["    train_batch_size: 128"])
    assert found["nodes.rollout_reasoner.node_role"] == ("file", place["    node_role: ROLLOUT"])
    assert found["config.trainer.seed"] == ("override", "command line")
    assert found["config.actor.clip_ratio_c"] == ("default", "default")


def test_values_that_are_not_finite_become_null() -> None:
    assert json.loads(to_json({"a": [1.0, float("nan"), (float("inf"),)]})) == {"a": [1.0, None, [None]]}


def test_a_long_curve_is_thinned_to_means_that_keep_its_last_step(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", rewards=[float(step % 2) for step in range(2000)])
    folder.close()
    with ViewerServer([tmp_path / "runs"]) as server:
        curve = server.answers.answer("curves", {"run": f"team/{folder.path.name}"})["series"]["reward/mean"]
    assert len(curve["x"]) == 500 and curve["x"][-1] == 2000
    assert set(curve["y"]) == {0.5}


SLOW_TO_LOAD = ("torch", "pandas", "pyarrow", "numpy", "pydantic", "networkx")


@pytest.mark.parametrize(
    ("questions", "needed"),
    [
        ([("runs", {}), ("run", {}), ("curves", {})], set()),
        ([("conversations", {"file": "step_000001", "text": "x", "task": "task:1", "order": "best"}),
          ("conversation", {"file": "step_000001"}), ("task", {"task": "task:1"})], {"pyarrow", "numpy"}),
        ([("graph", {}), ("config", {})], {"pydantic", "networkx"}),
        ([("times", {"step": "1"})], {"pyarrow", "numpy"}),
    ],
)  # fmt: skip
def test_a_page_loads_only_the_libraries_that_it_needs(runs: Path, questions: list[Any], needed: set[str]) -> None:
    name = Answers([runs]).answer("runs", {})["runs"][0]["name"]
    asked = [(question, params | {"run": name}) for question, params in questions]
    code = (
        "import sys; from pathlib import Path; import dagrl.cli.view; from dagrl.report.viewer import ViewerServer\n"
        f"with ViewerServer([Path({str(runs)!r})]) as server:\n"
        f"    for question, params in {asked!r}: server.answers.answer(question, params)\n"
        f"print(*[name for name in {SLOW_TO_LOAD!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert set(done.stdout.split()) == needed


@pytest.mark.parametrize("target", OF_A_RUN.values())
def test_functions_that_are_loaded_late_are_there(target: str) -> None:
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
