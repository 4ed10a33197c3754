"""`dagrl new`: a project, an environment, a hook or a reward to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _complete_kinds() -> list[str]:
    from dagrl.scaffold.templates import TEMPLATES

    return list(TEMPLATES)


def new(
    kind: Annotated[str, typer.Argument(help="project, env, hook or reward.", autocompletion=_complete_kinds)],
    name: Annotated[str, typer.Argument(help="Letters, digits and _.")],
    into: Annotated[Path, typer.Option(help="The folder to write into.")] = Path(),
) -> None:
    """Make a project, an environment, a hook or a reward, each with a test that passes."""
    from dagrl.scaffold.templates import make

    made = make(kind, name, into)
    for file in made.files:
        print(f"wrote {file}")
    print("next:  " + "\n       ".join(made.next))
