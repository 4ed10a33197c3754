"""Writes docs/workflow_reference.md, the JSON Schema, siiRL's renamed keys in docs/migrate, and README's map of files.

    python docs/generate_reference.py

tests/test_docs.py fails while what is written is not what this script would write.
"""

from __future__ import annotations

import ast
import sys
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pydantic import BaseModel  # noqa: E402
from pydantic.fields import FieldInfo  # noqa: E402

from dagrl.report.metric_guide import as_markdown  # noqa: E402
from dagrl.runtime.watchdog import as_markdown as warnings  # noqa: E402
from dagrl.workflow.dialects import RENAMED  # noqa: E402
from dagrl.workflow.json_schema import SCHEMA_FILE, schema_text  # noqa: E402
from dagrl.workflow.kinds import kind_of  # noqa: E402
from dagrl.workflow.spec import NodeRole, NodeType, WorkflowSpec  # noqa: E402

REFERENCE = ROOT / "docs" / "workflow_reference.md"
README = ROOT / "README.md"
METRICS = ROOT / "docs" / "metrics.md"
FROM_SIIRL = ROOT / "docs" / "migrate" / "from_siirl.md"
KEYS_BEGIN = "<!-- siirl keys: begin (docs/generate_reference.py) -->"
KEYS_END = "<!-- siirl keys: end -->"
MAP_BEGIN = "<!-- map: begin (docs/generate_reference.py) -->"
MAP_END = "<!-- map: end -->"

REFERENCE_HEAD = """# Workflow reference

Every key of a workflow file: type, default, meaning. Made from `dagrl/workflow/sections.py` and `spec.py` by
`python docs/generate_reference.py`; do not edit by hand. What the keys do together is told in
[how_to](how_to) and [explanation/marft.md](explanation/marft.md).

Unknown keys are errors. `key=value` after the file on the command line overrides any value by its dotted path, nodes by
their `node_id`: `config.trainer.total_steps=5`, `nodes.actor_train.agent_options.train_cycle=3`.
"""

METRICS_HEAD = """# Metrics and warnings

What each number in metrics.jsonl and TensorBoard means, and where a healthy run keeps it; `*` stands for any text.
`dagrl view` shows the same beside each curve. Made from `dagrl/report/metric_guide.py` and
`dagrl/runtime/watchdog.py` by `python docs/generate_reference.py`; do not edit by hand.

"""
WARNINGS_HEAD = """## Warnings while a run goes on

Told on the terminal once a sign has held for five steps, and then not again for fifty.

"""

TOP_LEVEL = {
    "setup.py": "what pip installs",
    "MANIFEST.in": "what a source package holds besides dagrl/: workflows, environments, templates",
    "pyproject.toml": "settings of ruff, mypy and pytest; nothing else",
    "Makefile": "`make demo`, `make test`, `make check`, `make reference`, `make docs`, `make clean`",
    ".ci/": "`run`: what a merge has to pass",
    "README.md": "this page",
    "CHANGELOG.md": "what users can notice, by version",
    "CONTRIBUTING.md": "how to add an algorithm, node, environment, engine, data set, command",
    "LICENSE": "Apache-2.0",
    ".gitignore": "what git leaves alone",
    "dagrl/": "the package",
    "workflows/": "workflow files, and the hooks beside the files that use them",
    "envs/": "environments that workflows name; user space: imports dagrl's public names only",
    "templates/": "what `dagrl new` copies: a project that runs, an environment, a hook, a reward, each with its test",
    "data_preprocess/": "one script per data set: makes train.parquet and test.parquet",
    "benchmarks/": "scripts that print the figures docs/benchmarks.md quotes",
    "docs/": "tutorial, how-tos, reference of keys, errors and metrics, explanation, migration; what builds them",
    "tests/": "mirrors dagrl/; floors and doors, docs, set-up, end to end",
}
"""A line for each file and folder at the top; one that does not exist is left out."""

IGNORED = {"__pycache__", "runs", "build", "dist", "shared", "node_modules"}


def main() -> None:
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    REFERENCE.write_text(workflow_reference(), encoding="utf-8")
    FROM_SIIRL.write_text(with_siirl_keys(FROM_SIIRL.read_text(encoding="utf-8")), encoding="utf-8")
    METRICS.write_text(metrics_page(), encoding="utf-8")
    README.write_text(with_map(README.read_text(encoding="utf-8")), encoding="utf-8")


def workflow_reference() -> str:
    """The whole text of docs/workflow_reference.md."""
    parts = [REFERENCE_HEAD, node_table()]
    for paths, spec in specs():
        parts.append(spec_section(paths, spec))
    return "\n".join(parts)


def metrics_page() -> str:
    """The whole text of docs/metrics.md."""
    return f"{METRICS_HEAD}{WARNINGS_HEAD}{warnings()}\n\n## Metrics\n\n{as_markdown()}\n"


def node_table() -> str:
    """Which type, role and `only_forward_compute` make which kind of node."""
    lines = [
        "## Types and roles of nodes\n",
        "| node_type | node_role | only_forward_compute | kind |",
        "|---|---|---|---|",
    ]
    for node_type in NodeType:
        for role in NodeRole:
            for forward in (False, True):
                kind = kind_of(node_type, role, forward)
                if kind is not None:
                    lines.append(f"| {node_type} | {role} | {_value(forward)} | {kind} |")
    return "\n".join(lines) + "\n"


def specs() -> list[tuple[list[str], type[BaseModel]]]:
    """Every part of the file with all the places it stands at, in the order of a walk from the top."""
    found: dict[type[BaseModel], list[str]] = {}
    for path, spec in _walk("", WorkflowSpec):
        found.setdefault(spec, []).append(path)
    return [(paths, spec) for spec, paths in found.items()]


def _walk(path: str, spec: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, spec
    for name, field in spec.model_fields.items():
        for part in _specs_in(field.annotation):
            step = {"nodes": "nodes.<node_id>", "agent_groups": "agent_groups.<group>"}.get(name, name)
            yield from _walk(f"{path}.{step}" if path else step, part)


def _specs_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [spec for part in typing.get_args(annotation) for spec in _specs_in(part)]


def spec_section(paths: list[str], spec: type[BaseModel]) -> str:
    """One heading with a table of keys."""
    lines = [f"## {f'`{paths[0]}`' if paths[0] else 'Top level'}\n"]
    doc = spec.__dict__.get("__doc__")
    if doc:
        lines.append(" ".join(doc.split()) + "\n")
    if len(paths) > 1:
        lines.append("Also at " + ", ".join(f"`{path}`" for path in paths[1:]) + ".\n")
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in spec.model_fields.items():
        meaning = " ".join((field.description or "").split())
        cells = (f"`{name}`", _type(field.annotation, field.metadata), _default(field), meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _type(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        inner = args[1].metadata if isinstance(args[1], FieldInfo) else args[1:]
        return _type(args[0], (*metadata, *inner))
    if origin is Literal:
        return " · ".join(_value(arg) for arg in args)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type(arg, metadata if arg is not type(None) else ()) for arg in args)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return f"list of {_type(args[0])}"
        return "[" + ", ".join(_type(arg) for arg in args) + "]"
    if origin is dict:
        return "mapping"
    return _plain_type(annotation) + _bounds(metadata)


def _plain_type(annotation: Any) -> str:
    names = {str: "text", int: "integer", float: "number", bool: "true · false", type(None): "null", Any: "any"}
    if annotation in names:
        return names[annotation]
    assert isinstance(annotation, type), annotation
    if issubclass(annotation, StrEnum):
        return " · ".join(f"`{member}`" for member in annotation)
    return f"section {annotation.__name__.removesuffix('Spec')}"


def _bounds(metadata: list[Any] | tuple[Any, ...]) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    flat = [part for item in metadata for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
    bounds = [f"{signs[name]} {getattr(item, name):g}" for item in flat for name in signs if hasattr(item, name)]
    return f" {', '.join(bounds)}" if bounds else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        changed = default.model_dump(exclude_defaults=True)
        return ", ".join(f"{key}: {_value(value)}" for key, value in changed.items()) or "its defaults"
    return _value(default)


def _value(value: Any) -> str:
    """`value` as YAML would have it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(item) for item in value).replace("`", "") + "]"
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-") if value == 0 or abs(value) < 1e-3 else str(value)
    if value == "":
        return "empty"
    return f"`{value}`" if isinstance(value, str) else str(value)


def with_map(readme: str) -> str:
    """README's text with the map between its two marks written anew."""
    return _between(readme, MAP_BEGIN, MAP_END, f"```\n{file_map()}\n```")


def with_siirl_keys(page: str) -> str:
    """The page's text with the table of renamed keys between its two marks written anew."""
    rows = "\n".join(f"| `{theirs}` | `config.{ours}` |" for theirs, ours in RENAMED.items())
    return _between(page, KEYS_BEGIN, KEYS_END, f"| siiRL | dagrl |\n|---|---|\n{rows}")


def _between(text: str, begin: str, end: str, inner: str) -> str:
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n{inner}\n{end}{tail}"


def file_map() -> str:
    """A line for each file and folder at the top and each module of dagrl/, indented by two spaces a level."""
    rows: list[tuple[str, str]] = []
    for name, meaning in TOP_LEVEL.items():
        if not (ROOT / name).exists():
            continue
        rows.append((name, meaning))
        if name == "dagrl/":
            rows += _package_rows(ROOT / "dagrl", level=1)
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{meaning}" for name, meaning in rows)


def _package_rows(folder: Path, level: int) -> list[tuple[str, str]]:
    indent = "  " * level
    rows = [(f"{indent}{path.name}", _purpose(path)) for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    for child in sorted(folder.iterdir()):
        if (child / "__init__.py").is_file() and child.name not in IGNORED:
            rows.append((f"{indent}{child.name}/", _purpose(child / "__init__.py")))
            rows += _package_rows(child, level + 1)
    return rows


def _purpose(module: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    main()
