"""What the shell is offered at Tab: words of the command line being typed, and the dotted paths of overrides."""

from __future__ import annotations

import os
import shlex

SWITCH = "_DAGRL_COMPLETE"
"""Set by the shell's script (`dagrl --install-completion` installs it) when it asks for completions."""
_LINE = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Where bash, and the other shells, leave the line that is being typed."""


def typed_words() -> list[str] | None:
    """The words after `dagrl` where the shell asks for completions, else None."""
    if SWITCH not in os.environ:
        return None
    line = next((os.environ[name] for name in _LINE if name in os.environ), "")
    try:
        return shlex.split(line)[1:]
    except ValueError:  # an open quote
        return line.split()[1:]


def override_paths(incomplete: str) -> list[str]:
    """`config.trainer.total_steps=` and all other values of `config`, one level at a time."""
    from dagrl.workflow.schema import model_at
    from dagrl.workflow.spec import WorkflowSpec

    head = incomplete.split(".")[:-1] or ["config"]
    owner = model_at(WorkflowSpec, head)
    if owner is None:
        return []
    found = []
    for name in owner.model_fields:
        path = [*head, name]
        found.append(".".join(path) + ("=" if model_at(WorkflowSpec, path) is None else "."))
    return [path for path in found if path.startswith(incomplete)]
