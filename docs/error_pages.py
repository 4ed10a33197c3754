"""Keeps docs/errors true: runs the example of every page, writes what it prints into the page, and writes the index.

    python docs/error_pages.py

A page's example is the files it shows (a block after a line that starts with the file's name in backquotes) and the
command of its console block. tests/test_error_pages.py fails while a page is not what this script would write.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dagrl.cli import exit_code  # noqa: E402
from dagrl.workflow.codes import TITLES  # noqa: E402

FOLDER = ROOT / "docs" / "errors"
INDEX = FOLDER / "README.md"
EXAMPLE_WORKFLOWS = ("solo.yaml", "team.yaml")
"""Correct workflows that the examples extend."""

SHOWN_FOLDER = "/home/you/demo"
"""Stands in the pages for the temporary folder that an example runs in."""

_FILE = re.compile(r"^`([\w./-]+)`[^\n]*\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n\$ dagrl ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FOREIGN = re.compile(r"(tokenizer cannot be loaded:) .*?(?=  \[)")
"""Words of another library, which change with its versions."""

INDEX_HEAD = """# Error codes

Every fault that `dagrl validate` and `dagrl run` find in a workflow has a code, which stays the same from version to
version. Each page says what is meant, shows an example that really gives it, and the way out. Codes that begin with E
are errors (exit code 2), with W warnings. The examples stand beside two correct workflows, [solo.yaml](solo.yaml) and
[team.yaml](team.yaml).

Written by `python docs/error_pages.py` from `dagrl/workflow/codes.py`.

| code | what |
|---|---|
"""


def main() -> None:
    INDEX.write_text(index(), encoding="utf-8")
    for page in pages():
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")


def index() -> str:
    """The page that lists all codes."""
    return INDEX_HEAD + "".join(f"| [{code}]({code}.md) | {title} |\n" for code, title in TITLES.items())


def pages() -> list[Path]:
    """The page of every code that has one."""
    return [page for page in sorted(FOLDER.glob("*.md")) if page != INDEX]


def refreshed(page: str) -> str:
    """The page's text with what its command prints now."""
    command, printed = printed_by(page)
    return _CONSOLE.sub(lambda _: f"```console\n$ dagrl {command}\n{printed}```", page, count=1)


def printed_by(page: str) -> tuple[str, str]:
    """The page's command, and what it prints when it is run beside the page's files."""
    console = _CONSOLE.search(page)
    assert console is not None, "the page shows no command"
    command = console[1]
    with _workplace() as folder:
        for name, text in _FILE.findall(page):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            exit_code(command.split())
    printed = _FOREIGN.sub(r"\1 …", output.getvalue().replace(str(folder), SHOWN_FOLDER))
    return command, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


@contextlib.contextmanager
def _workplace() -> Iterator[Path]:
    """A new folder with the correct workflows in it, as the working directory."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for workflow in EXAMPLE_WORKFLOWS:
            shutil.copy(FOLDER / workflow, name)
        os.chdir(name)
        try:
            yield Path(name).resolve()
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main()
