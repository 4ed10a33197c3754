"""G15: what a model or an environment says stays text, in the report, in the page of a real browser, on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dagrl.plain_text import safe
from dagrl.report import export
from dagrl.report.answers import Answers
from dagrl.report.export import report_page
from dagrl.report.viewer import ViewerServer
from tests.browser import MISSING, browser
from tests.run_builders import make_run, trajectory, write_trajectories

pytestmark = pytest.mark.resilience

DO = "window.caught=1"
BREAKOUTS = (
    "", "</script>", '"}</script>', "--><!-- ", "</pre></div>", "']\">", "<!--<script>", "]]>", "</title></style>",
    "\\u003c/script\\u003e\u2028",
)  # fmt: skip
TAGS = (
    f"<script>{DO}</script>", f"<img src=x onerror='{DO}'>", f"<svg onload='{DO}'><rect/></svg>",
    f"<iframe srcdoc='<script>parent.{DO}</script>'></iframe>", f"<a href='javascript:{DO}'>x</a>",
    f"<details open ontoggle='{DO}'>x</details>", f"<input autofocus onfocus='{DO}'>",
    f"<style>@keyframes x{{}}</style><p style='animation:x 1s' onanimationstart='{DO}'>x</p>",
    "<base href='//evil'><meta http-equiv=refresh content='0;url=//evil'><link rel=stylesheet href=//evil>",
    f"<form action='javascript:{DO}'><button>x</button></form><object data='javascript:{DO}'></object>",
)  # fmt: skip
TEXTS = ["\n".join(begin + tag for tag in TAGS) for begin in BREAKOUTS]
"""A hundred payloads."""
FOREIGN = (
    "main script, main img, main iframe, main object, main form[action], main base, main link, main style, main rect"
)
COMMANDS = (
    "\x1b[2J", "\x1b]0;owned\x07", "\x1b]52;c;aGk=\x07", "\x1b[31m", "\x9b31m", "\x90q\x9c", "\x07", "\x08\x08\x08",
    "\r overwritten", "\x0b", "\x0c", "\x7f", "\x00", "\x1bc", "\u202egnp.exe", "\u2066x\u2069", "\u200e\u200f",
    "\u061c", "\x85", "\x1b[?1049h",
)  # fmt: skip
BIDI = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}


def write_run(folder: Path, texts: list[str]) -> Path:
    run = make_run(folder / "runs", rewards=[0.0])
    talks = [trajectory(f"task:{number}", 0.5, text=text, heard=text) for number, text in enumerate(texts)]
    write_trajectories(run, 1, talks, [0.0] * len(texts))
    run.close()
    return folder / "runs"


class Elements(HTMLParser):
    """Every element with its attributes' names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))


def elements(folder: Path, texts: list[str]) -> list[tuple[str, ...]]:
    answers = Answers([write_run(folder, texts)])
    page = report_page(answers, answers.answer("runs", {})["runs"][0]["name"])
    parser = Elements()
    parser.feed(page)
    return parser.found


def unsafe_reports(folder: Path) -> list[str]:
    """Texts that put an element or an attribute into the report."""
    harmless = elements(folder / "harmless", ["x"])
    return [text for number, text in enumerate(TEXTS) if elements(folder / str(number), [text]) != harmless]


def test_no_payload_adds_an_element_to_the_report(tmp_path: Path) -> None:
    assert len(BREAKOUTS) * len(TAGS) == 100
    assert unsafe_reports(tmp_path) == []


def test_twin_answers_that_are_not_made_inert_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_inert", lambda text: text)
    assert unsafe_reports(tmp_path)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_no_payload_does_anything_in_a_browser(tmp_path: Path) -> None:
    runs = write_run(tmp_path, TEXTS)
    name = next(path.parent.name for path in runs.rglob("status.json"))
    with ViewerServer([runs]) as server, browser(tmp_path / "profile") as page:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        for number in range(len(TEXTS)):
            page.open(f"{server.url}#/run/team%2F{name}/talk?t={number}")
            page.wait("document.querySelector('.conversation .token')", timeout_s=120)
            assert "window.caught" in page.text(), "witness: it is on the page"
            assert foreign(page) == (None, 0), TEXTS[number]
        page.run(f"document.querySelector('main').innerHTML = {TAGS[1]!r}")
        assert foreign(page)[1] > 0, "the twin: text that is taken for HTML is seen"
        server.shutdown()


def foreign(page: Any) -> tuple[Any, int]:
    on = (
        "[...document.querySelectorAll('main *')].filter(one => [...one.attributes].some(a => a.name.startsWith('on')))"
    )
    return (page.run("return window.caught ?? null"),
            page.run(f"return document.querySelectorAll('{FOREIGN}').length + {on}.length"))  # fmt: skip


def commands_left(show: Callable[[str], str]) -> list[str]:
    """Payloads of which a character that commands the terminal is left."""

    def is_command(one: str) -> bool:
        return (ord(one) < 32 and one != "\n") or 0x7F <= ord(one) < 0xA0 or ord(one) in BIDI

    return [text for text in COMMANDS if any(map(is_command, show(f"said {text} and more")))]


def test_no_payload_commands_the_terminal() -> None:
    assert len(COMMANDS) == 20
    assert commands_left(safe) == []
    assert len(commands_left(str)) == len(COMMANDS), "the twin: as they are"
