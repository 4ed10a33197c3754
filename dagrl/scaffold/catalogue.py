"""What dagrl brings, a line each: for `dagrl ls`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from dagrl.algorithms import (
    ESTIMATORS,
    POLICY_LOSSES,
    RELATIVE_ESTIMATORS,
    SEQUENCE_LOSSES,
    RoleBaselines,
    m2po_loss,
    remax,
)
from dagrl.rewards import REWARDS, judge
from dagrl.scaffold.files import description_of, shipped_envs, shipped_workflows
from dagrl.scaffold.templates import TEMPLATES
from dagrl.workflow.sections import RolloutSpec

_BACKENDS = Path(__file__).resolve().parents[1] / "backends"
_ENGINE_FILES = {
    "transformers": "hf_generator.py",
    "vllm": "vllm_generator.py",
}
"""Engine -> the module of backends/ that holds it once it is built; its first line is the engine's."""


def catalogue() -> dict[str, dict[str, str]]:
    """Kind -> name, as a workflow file or a command takes it -> what it is."""
    return {kind: list_kind() for kind, list_kind in KINDS.items()}


def _workflows() -> dict[str, str]:
    return {name: description_of(file) for name, file in shipped_workflows().items()}


def _rewards() -> dict[str, str]:
    return {name: _first_line(function) for name, function in REWARDS.items()} | {"judge": _first_line(judge)}


def _estimators() -> dict[str, str]:
    told = {name: _first_line(estimator.fn) for name, estimator in ESTIMATORS.items()}
    told |= {name: _first_line(function) for name, function in RELATIVE_ESTIMATORS.items()}
    return told | {"spiral": _first_line(RoleBaselines), "remax": _first_line(remax)}


def _losses() -> dict[str, str]:
    functions = {**POLICY_LOSSES, **SEQUENCE_LOSSES, "m2po": m2po_loss}
    return {name: _first_line(function) for name, function in functions.items()}


def _engines() -> dict[str, str]:
    names = get_args(RolloutSpec.model_fields["engine"].annotation)
    return {name: _engine_line(_BACKENDS / _ENGINE_FILES[name]) for name in names}


def _engine_line(module: Path) -> str:
    if not module.is_file():
        return "(not built yet: refused by name)"
    return (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def _templates() -> dict[str, str]:
    return {kind: template.meaning for kind, template in TEMPLATES.items()}


KINDS: Mapping[str, Callable[[], dict[str, str]]] = {
    "workflows": _workflows,
    "envs": shipped_envs,
    "rewards": _rewards,
    "estimators": _estimators,
    "losses": _losses,
    "engines": _engines,
    "templates": _templates,
}

USED_BY: Mapping[str, str] = {
    "workflows": "dagrl cp NAME",
    "envs": "agent_options.env_path",
    "rewards": "agent_options.rewards of REWARD nodes; your own: file.py:function there, or executable_ref",
    "estimators": "config.algorithm.adv_estimator; your own: file.py:function",
    "losses": "config.algorithm.policy_loss; your own: file.py:function",
    "engines": "config.rollout.engine",
    "templates": "dagrl new KIND NAME",
}
"""Kind -> where its names are written."""


def _first_line(function: Any) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
