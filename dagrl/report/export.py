"""`report.html`: one run in one file, the page with its style, scripts and answers inside; loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError, StorageError
from dagrl.report.answers import Answers
from dagrl.report.conversation_files import JUDGED
from dagrl.report.conversation_index import MAX_PAGE
from dagrl.report.viewer import PAGE, STATIC, to_json

MAX_FILES = 6
"""Steps and evaluations whose conversations are packed, spread evenly with the first and the last."""
WORST = BEST = 3
"""Conversations of each of them, by reward."""

Question = tuple[str, tuple[str, ...]]
"""What the page asks by, as `packed` in build.js spells it: the question, the values of its parameters by name."""


def write_report(roots: Sequence[Path], target: Path) -> int:
    """Writes the newest run of `roots` to `target`; gives the size in bytes. Raises DagrlError where there is none."""
    answers = Answers(roots)
    runs = answers.answer("runs", {})["runs"]
    if not runs:
        raise DagrlError("no run to report on", where=", ".join(map(str, roots)), how="give a run folder")
    page = report_page(answers, runs[0]["name"]).encode(errors="replace")
    try:
        target.write_bytes(page)
    except OSError as error:
        raise StorageError(f"cannot write: {error.strerror}", where=str(target)) from error
    return len(page)


def report_page(answers: Answers, run: str) -> str:
    """The whole page about one run."""
    content: dict[str, Any] = {json.dumps(key, separators=(",", ":"), ensure_ascii=False): value
                               for key, value in _packed(answers, run)}  # fmt: skip
    script = "\n".join((PAGE / name).read_text(encoding="utf-8") for name, kind in STATIC.values() if "script" in kind)
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run)} · dagrl</title>\n<style>{style}</style></head>\n"
        '<body><header id="top"></header><main id="main" tabindex="-1"></main>\n'
        f'<script type="application/json" id="answers">{_inert(to_json({"run": run, **content}))}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _packed(answers: Answers, run: str) -> Iterator[tuple[Question, Any]]:
    told = answers.answer("run", {"run": run})
    curves = answers.answer("curves", {"run": run})
    files = _spread([file for file in told["files"] if file["kind"] != JUDGED], MAX_FILES)
    yield ("runs", ()), {"runs": [_only(answers, run)], "roots": ["this report"], "now": told["now"]}
    yield ("run", (run,)), {**told, "files": files}
    yield ("curves", (run,)), curves
    yield ("graph", (run,)), answers.answer("graph", {"run": run})
    yield ("config", (run,)), answers.answer("config", {"run": run})
    steps = curves["series"].get("perf/seconds_per_step", {"x": [0]})["x"]
    yield ("times", (run, str(steps[-1]))), answers.answer("times", {"run": run, "step": str(steps[-1])})
    for file in files:
        yield from _conversations(answers, run, file["name"])


def _conversations(answers: Answers, run: str, file: str) -> Iterator[tuple[Question, Any]]:
    """The worst and the best of one file, each with all its tokens."""
    asked = {"run": run, "file": file}
    rows = answers.answer("conversations", {**asked, "order": "worst", "limit": str(WORST)})["rows"]
    best = answers.answer("conversations", {**asked, "order": "best", "limit": str(BEST)})
    known = {row["trajectory"] for row in rows}
    rows = [*rows, *(row for row in best["rows"] if row["trajectory"] not in known)]
    assert len(rows) <= MAX_PAGE
    yield ("conversations", (run, file)), {**best, "rows": rows, "total": len(rows)}
    for row in rows:
        number = str(row["trajectory"])
        yield (
            ("conversation", (file, run, number)),
            answers.answer("conversation", {**asked, "trajectory": number}),
        )


def _only(answers: Answers, run: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in answers.answer("runs", {})["runs"] if one["name"] == run)
    return found


def _spread(files: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """At most `count`, the first and the last among them."""
    if len(files) <= count:
        return list(files)
    return [files[round(place * (len(files) - 1) / (count - 1))] for place in range(count)]


def _digest(text: str) -> str:
    """What a content security policy calls an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inert(text: str) -> str:
    """JSON that stays JSON within HTML: no text of a run can end the element that it lies in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
