"""`dagrl new`: a project, an environment, a hook or a reward, each with a test that passes, from templates/."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dagrl.errors import DagrlError
from dagrl.scaffold.files import files_below, shipped_folder
from dagrl.scaffold.writing import write_new
from dagrl.workflow.json_schema import SCHEMA_FILE
from dagrl.workflow.nearest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One kind of thing that can be made. Its files lie in templates/<kind> and work as they are."""

    name: str
    """The name that its files give to it, replaced by the user's."""
    meaning: str
    next: tuple[str, ...]
    """Commands to go on with, `{name}` and `{Class}` filled in."""


TEMPLATES: Mapping[str, Template] = {
    "project": Template(
        name="my_team",
        meaning="a folder with a workflow, hooks, an environment, a reward, data, a tiny model and tests; runs at once",
        next=(
            "cd {name}",
            "pytest",
            "dagrl validate workflow.yaml --deep",
            "dagrl run --workflow workflow.yaml --smoke",
            "dagrl run --workflow workflow.yaml",
        ),
    ),
    "env": Template(
        name="my_env",
        meaning="an environment: envs/NAME.py and its test",
        next=(
            "pytest tests/test_{name}.py",
            "dagrl check-env envs/{name}.py:{Class} --ground-truth 7 --action 5 --action 7",
            "dagrl play-env envs/{name}.py:{Class} --ground-truth 7",
        ),
    ),
    "hook": Template(
        name="my_hook",
        meaning="pre_process and post_process: NAME.py and its test",
        next=("pytest tests/test_{name}.py", "dagrl try-hook {name}.py --prompt '1 + 1 = ?' --response '2'"),
    ),
    "reward": Template(
        name="my_reward",
        meaning="a reward function: NAME.py and its test",
        next=("pytest tests/test_{name}.py",),
    ),
}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was made."""

    files: tuple[Path, ...]
    next: tuple[str, ...]
    """Commands to go on with."""


def make(kind: str, name: str, into: Path) -> Made:
    """Writes the files of a template, named `name`; a project into a folder of its name in `into`.

    Raises DagrlError where the kind is unknown, the name cannot be one, or files would be overwritten.
    """
    if kind not in TEMPLATES:
        raise DagrlError(f"cannot make a '{kind}'", how=did_you_mean(kind, TEMPLATES))
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise DagrlError(f"'{name}' cannot be a name", how="letters, digits and _, a letter first: my_" + kind)
    folder = into / name if kind == "project" else into
    if kind == "project" and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DagrlError(f"already there: {folder}", how="take another name, or move it away")
    words = _words(TEMPLATES[kind].name, name)
    source = shipped_folder() / "templates" / kind
    files = {
        folder / _renamed(str(file.relative_to(source)), words): _filled(file, words) for file in files_below(source)
    }
    if kind == "project":
        files[folder / SCHEMA_FILE.name] = SCHEMA_FILE.read_bytes()
    given = {"name": name, "Class": _class_name(name)}
    steps = tuple(step.format(**given) for step in TEMPLATES[kind].next)
    return Made(files=tuple(write_new(files)), next=steps)


def _words(template: str, name: str) -> dict[str, str]:
    """What stands in a template -> what stands in the user's file."""
    return {template: name, _class_name(template): _class_name(name)}


def _class_name(name: str) -> str:
    """`my_env` -> `MyEnv`; capitals stay."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _renamed(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _filled(file: Path, words: Mapping[str, str]) -> bytes:
    return _renamed(file.read_text(encoding="utf-8"), words).encode()
