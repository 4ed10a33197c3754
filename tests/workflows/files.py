"""Modules of the shipped workflows, loaded as a run loads them."""

from pathlib import Path
from types import ModuleType

from dagrl.workflow.plugins import load_module

WORKFLOWS = Path(__file__).parents[2] / "workflows"


def shipped(file: str) -> ModuleType:
    """The module of a file of `workflows/`."""
    return load_module(file, WORKFLOWS)
