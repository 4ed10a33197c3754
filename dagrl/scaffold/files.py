"""Where the files lie that ship beside the package: workflows, environments, templates, data scripts."""

from __future__ import annotations

import ast
from pathlib import Path

from dagrl.errors import DagrlError
from dagrl.workflow.load import compose, read_text
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.tree import child

_PACKAGE = Path(__file__).resolve().parents[1]
NOT_COPIED = frozenset({"__pycache__", ".pytest_cache", "runs"})


def shipped_folder() -> Path:
    """Holds `workflows/`, `envs/`, `templates/` and `data_preprocess/`.

    dagrl/shipped where dagrl was installed from a wheel (setup.py puts them there), else the top of the repository.
    """
    packed = _PACKAGE / "shipped"
    folder = packed if packed.is_dir() else _PACKAGE.parent
    if not (folder / "workflows").is_dir():
        raise DagrlError(f"this installation of dagrl lacks what ships with it: no {folder / 'workflows'}")
    return folder


def shipped_workflows() -> dict[str, Path]:
    """Name -> file."""
    return {file.stem: file for file in sorted((shipped_folder() / "workflows").glob("*.yaml"))}


def shipped_workflow(name: str) -> Path:
    """The file of a shipped workflow; `name` may end in `.yaml`. Raises DagrlError naming the nearest one."""
    known = shipped_workflows()
    wanted = name.removesuffix(".yaml")
    if wanted not in known:
        raise DagrlError(f"no workflow '{name}' ships with dagrl", how=did_you_mean(wanted, known))
    return known[wanted]


def shipped_envs() -> dict[str, str]:
    """`envs/file.py:Class` -> the first line of its docstring, of every public class with a `step`."""
    found = {}
    for file in sorted((shipped_folder() / "envs").glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _has_step(node):
                found[f"envs/{file.name}:{node.name}"] = (ast.get_docstring(node) or "").partition("\n")[0]
    return found


def _has_step(node: ast.ClassDef) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(member, functions) and member.name == "step" for member in node.body)


def description_of(workflow: Path) -> str:
    """What a workflow file says of itself."""
    named = child(compose(read_text(workflow), str(workflow)).root, "description")
    return "" if named is None else str(named.value)


def files_below(folder: Path) -> list[Path]:
    """Every file that is worth copying, in order."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not NOT_COPIED & set(path.parts)]
