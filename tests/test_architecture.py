"""Floors, doors and sizes: who may import whom, which library enters where, how long a module or function may be.

The rules are told in docs/architecture.md. Every test collects all violations and prints them together.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dagrl"

FLOORS = {
    "cache": 0,
    "errors": 0,
    "types": 0,
    "limits": 1,
    "images": 1,
    "seeds": 0,
    "plain_text": 0,
    "plain_json": 0,
    "trace_events": 0,
    "workflow": 1,
    "experience": 2,
    "algorithms": 2,
    "rewards": 2,
    "environments": 2,
    "hooks": 2,
    "data": 2,
    "siirl_compat": 2,
    "backends": 3,
    "nodes": 4,
    "runtime": 5,
    "report": 5,
    "scaffold": 5,
    "cli": 6,
}
"""Every file and folder directly in dagrl/ (a unit) and the floor it lives on."""

DOORS: dict[str, tuple[str, ...]] = {
    "yaml": ("workflow/load.py",),
    "networkx": ("workflow/graph.py",),
    "pydantic": ("workflow/",),
    "pydantic_core": ("workflow/",),
    "transformers": ("backends/",),
    "tokenizers": ("backends/",),
    "huggingface_hub": ("backends/",),
    "peft": ("backends/",),
    "safetensors": ("backends/", "runtime/state_file.py"),
    "httpx2": ("backends/",),
    "vllm": ("backends/",),
    "ray": ("runtime/ray_runtime.py", "backends/"),
    "pyarrow": ("data/", "runtime/trajectory_log.py", "report/"),
    "datasets": ("data/", "runtime/trajectory_log.py", "report/"),
    "tensorboard": ("runtime/metrics.py",),
    "torch.utils.tensorboard": ("runtime/metrics.py",),
    "math_verify": ("rewards/",),
    "typer": ("cli/",),
    "rich": ("cli/", "runtime/", "report/"),
    "numpy": ("",),
    "PIL": ("images.py",),
    "torch": ("experience.py", "algorithms/", "backends/", "nodes/", "runtime/", "report/"),
}
"""Third-party library -> the files and folders (below dagrl/) that may import it; the longest name that fits counts."""

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module as it is written in a file."""

    file: Path
    line: int
    target: str
    """Dotted name of the module; for `from a import b` it is `a.b` where that is a module of dagrl, else `a`."""
    is_in_function: bool

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module: str) -> str:
    """`dagrl.workflow.load` -> `workflow`; the package itself is the empty unit."""
    return module.split(".")[1] if "." in module else ""


def is_own_module(dotted: str) -> bool:
    path = ROOT.joinpath(*dotted.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imports_of(path: Path) -> Iterator[Import]:
    yield from _walk(path, parse(path), is_in_function=False)


def _walk(path: Path, node: ast.AST, is_in_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            for target in _targets(path, child):
                yield Import(file=path, line=child.lineno, target=target, is_in_function=is_in_function)
        inside = is_in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _walk(path, child, inside)


def _targets(path: Path, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
    assert node.module is not None
    dotted = [f"{node.module}.{alias.name}" for alias in node.names]
    return sorted({name if is_own_module(name) else str(node.module) for name in dotted})


def all_imports() -> list[Import]:
    return [found for path in modules() for found in imports_of(path)]


def is_own(found: Import) -> bool:
    return found.target.split(".")[0] == "dagrl"


def report(violations: list[str]) -> None:
    assert not violations, f"{len(violations)} violation(s):\n" + "\n".join(violations)


def test_every_file_and_folder_of_the_package_has_a_floor() -> None:
    units = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    report([f"dagrl/{unit}: not in FLOORS" for unit in sorted(units - {"__init__"} - FLOORS.keys())])


def test_modules_import_their_own_folder_and_lower_floors_only() -> None:
    violations = []
    for found in filter(is_own, all_imports()):
        own, other = unit_of(module_name(found.file)), unit_of(found.target)
        if not _may_import(own, other):
            violations.append(f"{found.place}: {own or 'dagrl'} may not import {found.target}")
    report(violations)


def _may_import(own: str, other: str) -> bool:
    if own == other:
        return True
    if own == "":
        return FLOORS[other] == 0
    if other == "":
        return FLOORS[own] > 0
    return FLOORS[other] < FLOORS[own]


def test_nodes_see_the_protocols_of_the_backends_and_no_backend() -> None:
    report(
        [
            f"{found.place}: nodes import dagrl.backends.base only, not {found.target}"
            for found in filter(is_own, all_imports())
            if unit_of(module_name(found.file)) == "nodes"
            and unit_of(found.target) == "backends"
            and found.target != "dagrl.backends.base"
        ]
    )


def test_dagrl_is_imported_inside_functions_in_the_command_line_only() -> None:
    report(
        [
            f"{found.place}: import {found.target} at the head of the file"
            for found in filter(is_own, all_imports())
            if found.is_in_function and unit_of(module_name(found.file)) != "cli"
        ]
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = networkx.DiGraph(
        (module_name(found.file), found.target)
        for found in filter(is_own, all_imports())
        if module_name(found.file) != found.target and not found.is_in_function
    )
    report([" -> ".join([*circle, circle[0]]) for circle in networkx.simple_cycles(graph)])


def test_each_library_enters_by_its_door() -> None:
    violations = []
    for found in all_imports():
        library = _library(found.target)
        if library is None:
            continue
        where = found.file.relative_to(PACKAGE).as_posix()
        if not where.startswith(DOORS[library]):
            violations.append(f"{found.place}: {library} enters by {', '.join(DOORS[library])} only")
    report(violations)


def test_each_library_that_is_imported_has_a_door() -> None:
    report(
        [
            f"{found.place}: {found.target} has no row in DOORS; a new dependency needs its reason"
            for found in all_imports()
            if not is_own(found)
            and found.target.split(".")[0] not in sys.stdlib_module_names
            and _library(found.target) is None
        ]
    )


def _library(target: str) -> str | None:
    """The longest name in DOORS that `target` is or lies below."""
    parts = target.split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in DOORS), None)


def test_environments_that_ship_use_the_public_names_only() -> None:
    public = set(_literal(parse(PACKAGE / "__init__.py"), "__all__"))
    violations = []
    for path in sorted((ROOT / "envs").rglob("*.py")):
        for node in ast.walk(parse(path)):
            names = _dagrl_names(node)
            violations += [f"{path.relative_to(ROOT)}: {name} is not public" for name in names if name not in public]
    report(violations)


def _literal(tree: ast.Module, name: str) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            value = ast.literal_eval(node.value)
            assert isinstance(value, list)
            return value
    raise AssertionError(f"no {name} in dagrl/__init__.py")


def _dagrl_names(node: ast.AST) -> list[str]:
    """What a statement takes from dagrl: names for `from dagrl import`, whole paths for anything deeper."""
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        if node.module == "dagrl":
            return [alias.name for alias in node.names]
        return [node.module] if node.module.startswith("dagrl.") else []
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.startswith("dagrl.")]
    return []


def test_modules_say_what_they_are_and_stay_short() -> None:
    violations = []
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if ast.get_docstring(ast.parse(text)) is None:
            violations.append(f"{path.relative_to(ROOT)}: no docstring that says what it is")
        if (lines := text.count("\n")) > MAX_MODULE_LINES:
            violations.append(f"{path.relative_to(ROOT)}: {lines} lines (most: {MAX_MODULE_LINES}); split by idea")
    report(violations)


def test_functions_stay_short() -> None:
    violations = []
    for path in modules():
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    violations.append(f"{place}: {node.name} has {lines} lines (most: {MAX_FUNCTION_LINES})")
    report(violations)


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "helpers", "misc", "common"}
    report([str(path.relative_to(ROOT)) for path in modules() if path.stem in drawers or path.parent.name in drawers])


def test_test_files_have_names_of_their_own_and_no_packages() -> None:
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [path.name for path in tests]
    twice = [path for path in tests if names.count(path.name) > 1]
    violations = [f"{path.relative_to(ROOT)}: another test file has this name" for path in twice]
    violations += [f"{path.relative_to(ROOT)}: tests are no packages" for path in (ROOT / "tests").rglob("__init__.py")]
    report(violations)


def light_modules() -> list[str]:
    """What must be importable without torch or transformers: floors 0 and 1, and the head of the command line."""
    floors = [name for name in map(module_name, modules()) if FLOORS.get(unit_of(name), 9) <= 1]
    return ["dagrl", "dagrl.cli", *floors]


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_reading_a_workflow_does_not_load(library: str) -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {light_modules()!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert {library!r} not in sys.modules, name + ' loads {library}'\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
