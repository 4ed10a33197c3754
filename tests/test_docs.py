"""The documents hold: links resolve, the map is whole, what is generated is fresh, examples run, commands exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
UNMAPPED = {"__pycache__", "runs", "build", "dist", "shared", "node_modules"}
"""Made by runs and tools or lent to this checkout; hidden folders but .ci are left out too."""


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs" / "generate_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_workflow_reference_is_fresh() -> None:
    written = (ROOT / "docs" / "workflow_reference.md").read_text(encoding="utf-8")
    assert written == generator().workflow_reference(), "run `make reference`"


def test_the_map_in_the_readme_is_fresh() -> None:
    assert readme() == generator().with_map(readme()), "run `make reference`"


def test_the_workflow_reference_names_every_key_of_every_section() -> None:
    written = (ROOT / "docs" / "workflow_reference.md").read_text(encoding="utf-8")
    missing = []
    for paths, spec in generator().specs():
        heading = f"\n## `{paths[0]}`\n" if paths[0] else "\n## Top level\n"
        section = written.partition(heading)[2].partition("\n## ")[0]
        missing += [f"{paths[0]}.{name}" for name in spec.model_fields if f"| `{name}` |" not in section]
    assert not missing


def test_every_key_of_every_section_says_what_it_does() -> None:
    specs = generator().specs()
    silent = [
        f"{paths[0]}.{name}"
        for paths, spec in specs
        for name, field in spec.model_fields.items()
        if not field.description
    ]
    assert not silent, "write a line under the field"


def mapped() -> dict[str, str]:
    """Path -> meaning, of the tree between README's marks; two spaces indent by one folder."""
    block = re.search(r"<!-- map: begin.*?-->\n```\n(.*?)\n```\n<!-- map: end -->", readme(), re.DOTALL)
    assert block is not None, "README has no map"
    folders: list[str] = []
    rows: dict[str, str] = {}
    for line in block[1].splitlines():
        level = (len(line) - len(line.lstrip())) // 2
        name, _, meaning = line.strip().partition(" ")
        path = "".join(folders[:level]) + name
        folders[level:] = [name]
        rows[path] = meaning.strip()
    return rows


def test_the_readme_maps_every_file_and_folder_at_the_top() -> None:
    top = [path for path in ROOT.iterdir() if path.name not in UNMAPPED and not path.name.endswith(".egg-info")]
    names = {path.name + "/" * path.is_dir() for path in top if path.is_file() or not path.name.startswith(".")}
    names = {name for name in names | {".ci/"} if name != ".git"}
    assert names - mapped().keys() == set(), "add a line to TOP_LEVEL in docs/generate_reference.py"


def test_the_readme_maps_every_module_and_no_line_lacks_its_file() -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dagrl").rglob("*.py")}
    expected = {path.replace("__init__.py", "") for path in modules}
    rows = mapped()
    assert expected - rows.keys() == set(), "run `make reference`"
    assert [path for path in rows if not (ROOT / path).exists()] == []


def test_every_line_of_the_map_says_something() -> None:
    assert [path for path, meaning in mapped().items() if len(meaning) < 5] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    broken = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert not broken


def python_blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)} block {number}", block)
        for page in PAGES
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    ]


@pytest.mark.parametrize(("name", "block"), python_blocks(), ids=[name for name, _ in python_blocks()])
def test_python_examples_run(name: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, name, "exec"), {"__name__": "example"})


def commands() -> list[str]:
    block = readme().partition("## Commands")[2].partition("```\n")[2].partition("```")[0]
    return re.findall(r"^dagrl (\S+)", block, re.MULTILINE)


def test_the_readme_names_commands() -> None:
    assert {"validate", "graph", "run"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_commands_named_in_the_readme_exist(command: str) -> None:
    code = "import sys; from dagrl.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, command, "--help"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_make_targets_named_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", text, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_readme_says_the_two_commands_and_the_plain_ones() -> None:
    for line in ("make demo", "make test", "pip install -e .", "dagrl run --workflow workflows/marft.yaml"):
        assert re.search(rf"^{re.escape(line)}\b|^{re.escape(line)}$", readme(), re.MULTILINE), line
