"""The page in a real browser: every place draws, hostile text stays text, nothing overflows a phone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagrl.report.export import write_report
from dagrl.report.reader import find_runs
from dagrl.report.viewer import ViewerServer
from dagrl.runtime.run_folder import RunFolder
from tests.browser import MISSING, browser
from tests.run_builders import make_run, trajectory, write_trajectories

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

HOSTILE = "<img src=x onerror='window.caught=1'><script>window.caught=2</script></pre>"
ROOT = Path(__file__).resolve().parents[2]
PLACES = {"curves": ".chart svg path", "graph": ".graph .box", "talk": ".conversation .turn", "config": "table code"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (1, 2):
        folder = make_run(tmp_path / "runs", seed=seed, rewards=[0.0, 0.5, 1.0])
        text = (ROOT / "workflows" / "marft.yaml").read_text()
        (folder.path / "workflow.original.yaml").write_text(text)
        (folder.path / "workflow.yaml").write_text(text.replace("seed: 1", f"seed: {seed}"))
        (folder.path / "overrides.txt").write_text(f"config.trainer.seed={seed}\n")
        for step in (1, 2, 3):
            talks = [trajectory(f"task:{number}", number - 1, text=HOSTILE, heard=HOSTILE) for number in range(3)]
            write_trajectories(folder, step, talks, [-1.0, 0.0, 1.0])
        folder.close()
    return tmp_path / "runs"


@pytest.fixture
def url(runs: Path) -> Iterator[str]:
    with ViewerServer([runs]) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.url
        server.shutdown()


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_every_place_draws_and_fits(url: str, runs: Path, tmp_path: Path, width: int, height: int) -> None:
    name, *_ = names = [run.name for run in find_runs(runs)]
    others = ",".join(f"team/{one}" for one in names)
    addresses = {f"#/run/team%2F{name}/{tab}": drawn for tab, drawn in PLACES.items()}
    addresses[f"#/run/team%2F{name}/talk?t=1"] = ".conversation .token"
    addresses[f"#/run/team%2F{name}/task?task=task:1"] = ".side-by-side .turn"
    addresses |= {"#/": ".run-card", f"#/compare?runs={others}": ".group-card"}
    if width < 600:
        addresses.pop(f"#/run/team%2F{name}/talk")
    with browser(tmp_path / "profile", width=width, height=height) as page:
        for address, drawn in addresses.items():
            page.open(url + address)
            page.wait(f"document.querySelector({drawn!r})")
            assert page.run("return document.documentElement.scrollWidth") <= width, address
            assert page.run("return [...document.querySelectorAll('.fault')].map(one => one.textContent)") == []
        assert page.run("return window.caught ?? null") is None
        assert page.run("return document.querySelectorAll('main img, main script').length") == 0
        assert page.complaints() == []


def test_new_steps_appear_by_themselves(url: str, runs: Path, tmp_path: Path) -> None:
    run = find_runs(runs)[0]
    with browser(tmp_path / "profile") as page:
        page.open(f"{url}#/run/team%2F{run.name}/curves")
        page.wait("document.body.innerText.includes('step 3 of')")
        (run / "status.json").write_text((run / "status.json").read_text().replace('"step": 3', '"step": 4'))
        page.wait("document.body.innerText.includes('step 4 of')")


def test_the_node_at_work_is_highlighted_and_the_next_one_follows_by_itself(runs: Path, tmp_path: Path) -> None:
    run = find_runs(runs)[0]
    folder = RunFolder(run)
    folder.write_status("running", 3)
    folder.write_doing("play", 1e9, {"rollout_reasoner": 1e9}, heartbeat=1e9)
    at_work = "[...document.querySelectorAll('.graph .box.running .name')].map(one => one.textContent).join()"
    with ViewerServer([runs]) as server, browser(tmp_path / "profile") as page:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        page.open(f"{server.url}#/run/team%2F{run.name}/graph")
        page.wait(f"{at_work} === 'rollout_reasoner'")
        assert "play: rollout_reasoner" in page.text()
        folder.write_doing("play", 1e9, {"rollout_actor@env": 1e9}, heartbeat=1e9)
        page.wait(f"{at_work} === 'rollout_actor'", timeout_s=60)
        folder.write_doing("learn", 1e9, {"actor_train": 1e9}, heartbeat=1e9)
        page.wait(f"{at_work} === 'actor_train'", timeout_s=60)
        folder.write_status("done", 3)
        page.wait(f"{at_work} === ''", timeout_s=60)
        assert page.complaints() == []
        server.shutdown()
    folder.close()


def test_the_report_works_from_a_file(runs: Path, tmp_path: Path) -> None:
    write_report([runs], tmp_path / "report.html")
    with browser(tmp_path / "profile") as page:
        page.open((tmp_path / "report.html").as_uri())
        page.wait("document.querySelector('.chart svg path')")
        start = page.run("return location.hash.replace(/[?].*/, '')").rstrip("/")
        for tab, drawn in PLACES.items():
            page.run(f"location.hash = {start + '/' + tab!r}")
            page.wait(f"document.querySelector({drawn!r})")
        assert page.run("return window.caught ?? null") is None
        assert page.complaints() == []
