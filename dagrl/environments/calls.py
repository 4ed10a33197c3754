"""Calls of an environment's methods: which arguments a method takes, and sync or async alike."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dagrl.errors import UserCodeError, describe, user_frame


def reset_arguments(method: Callable[..., Any], offers: Mapping[str, Any]) -> dict[str, Any]:
    """Of `offers` (prompt, seed, ground_truth, extra_info) those that `method` names; `prompt` for a **kwargs."""
    names, takes_any = _parameters(method)
    return {name: value for name, value in offers.items() if name in names or (takes_any and name == "prompt")}


def step_arguments(
    method: Callable[..., Any], actions: list[str], ground_truth: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of one step: `ground_truth` only where it is taken."""
    names, takes_any = _parameters(method)
    keywords = {"ground_truth": ground_truth} if "ground_truth" in names or takes_any else {}
    if "actions" in names:
        return [], {"actions": actions, **keywords}
    return [actions], keywords


def _parameters(method: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    parameters = inspect.signature(method).parameters.values()
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(one.name for one in parameters if one.kind in named), takes_any


def has_async_methods(env_class: Any) -> bool:
    """True if the class wants an event loop to live in."""
    names = ("__init__", "reset", "step", "close")
    return any(inspect.iscoroutinefunction(getattr(env_class, name, None)) for name in names)


def raised(error: BaseException, what: str, user_file: str | None) -> UserCodeError:
    """A fault of the user's code with the place in `user_file` that it came from."""
    if isinstance(error, UserCodeError):
        return error
    return UserCodeError(f"{what} raised {describe(error)}", where=_place(error, user_file))


def _place(error: BaseException, user_file: str | None) -> str | None:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == user_file]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else user_frame(error)
