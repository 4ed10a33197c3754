"""Whether user functions and classes can be called the way they will be."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dagrl.errors import PluginError

PRE_PROCESS = "pre_process(tokenizer, prompt_id, obs, **pre_process_kwargs) -> list[int]"
POST_PROCESS = "post_process(tokenizer, prompt_id, response_id, **post_process_kwargs) -> list[int]"
STEP = "step(self, actions, ground_truth) -> (obs, reward, done)"
RESET = "reset(self, prompt=None) -> obs"
REWARD = (
    "compute_score(data_source, solution_str, ground_truth, extra_info) -> float, or fn(trajectory, **kwargs) -> float"
)
JUDGE = "judge with kwargs url and model, and the others of rewards.judge.Rubric where they are wanted"
WHEN = "function(trajectory) -> bool"
COMPUTE = "function(batch, config) -> batch"
ESTIMATOR = (
    "function(rewards_T, values_T, layout, bootstrap_N, links, *, action_level=False) -> (advantages_T, returns_T)"
)
POLICY_LOSS = "function(logprobs_T, old_logprobs_T, advantages_T, clip) -> PolicyLoss"
RECIPE = "function(folder, progress, **recipe_kwargs)"

_RESET_OFFERS = ("prompt", "seed", "ground_truth", "extra_info")
"""What `reset` may ask for by name."""


def check_pre_process(function: Any, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raises `PluginError` where the hook cannot be called with these `pre_process_kwargs`."""
    offered = ("obs", "inputs", "trajectory")
    _check(function, "pre_process", PRE_PROCESS, 2, {**_named(function, offered), **(kwargs or {})})


def check_post_process(function: Any, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raises `PluginError` where the hook cannot be called with these `post_process_kwargs`."""
    _check(function, "post_process", POST_PROCESS, 3, {**_named(function, ("inputs", "trajectory")), **(kwargs or {})})


def check_env_class(env_class: Any, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raises `PluginError` where the class lacks `step`, or a method or the constructor cannot be called."""
    if not inspect.isclass(env_class):
        raise PluginError(f"{_name(env_class)} is a {type(env_class).__name__}, not a class", where=_place(env_class))
    name = env_class.__name__
    step, reset = getattr(env_class, "step", None), getattr(env_class, "reset", None)
    if not callable(step):
        raise PluginError(f"class {name} has no method 'step'", where=_place(env_class), how=f"it must have {STEP}")
    _check(env_class, name, f"{name}(**env_kwargs)", 0, kwargs or {})
    wants_truth = _named(step, ("ground_truth",))
    is_by_name = "actions" in _parameters(step)
    actions = {"actions": None} if is_by_name else {}
    _check(step, f"{name}.step", STEP, 1 if is_by_name else 2, {**actions, **wants_truth})
    if reset is not None:
        _check(reset, f"{name}.reset", RESET, 1, _named(reset, _RESET_OFFERS))


def check_reward(function: Any, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raises `PluginError` where a reward function has neither of the two forms."""
    count = 1 if callable(function) and "trajectory" in _parameters(function) else 4
    _check(function, _name(function), REWARD, count, kwargs or {})
    if inspect.iscoroutinefunction(function):
        raise PluginError(f"{_name(function)} is async", where=_place(function), how=f"it must be {REWARD}")


def check_judge(rubric: Any, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raises `PluginError` where a judge cannot be made of these keyword arguments."""
    _check(rubric, "judge", JUDGE, 0, kwargs or {})


def check_when(function: Any) -> None:
    """Raises `PluginError` where it is not a function of a trajectory."""
    _check(function, _name(function), WHEN, 1, {})


def check_compute(function: Any) -> None:
    """Raises `PluginError` where it is not a function of a batch and a config."""
    _check(function, _name(function), COMPUTE, 2, {})


def check_estimator(function: Any) -> None:
    """Raises `PluginError` where it cannot be called as an advantage estimator."""
    _check(function, _name(function), ESTIMATOR, 5, {"action_level": None})


def check_policy_loss(function: Any) -> None:
    """Raises `PluginError` where it cannot be called as a policy loss."""
    _check(function, _name(function), POLICY_LOSS, 4, {})


def check_recipe(function: Any, kwargs: Mapping[str, Any] | None = None) -> None:
    """Raises `PluginError` where it cannot make a model's folder with these `recipe_kwargs`."""
    _check(function, _name(function), RECIPE, 2, kwargs or {})


def _check(function: Any, name: str, shape: str, num_positional: int, keywords: Mapping[str, Any]) -> None:
    if not callable(function):
        raise PluginError(f"{name} is a {type(function).__name__}, not a function", how=f"it must be {shape}")
    try:
        inspect.signature(function).bind(*[None] * num_positional, **keywords)
    except TypeError as error:
        given = f" with {', '.join(sorted(keywords))}" if keywords else ""
        message = f"{name}{_shown(function)} cannot be called{given}: {error}"
        raise PluginError(message, where=_place(function), how=f"it must be {shape}") from error
    except ValueError:
        return  # builtins and extension types tell no signature


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _named(function: Any, offered: Sequence[str]) -> dict[str, None]:
    """Those of `offered` that the function names, as keyword arguments."""
    parameters = _parameters(function) if callable(function) else {}
    return {name: None for name in offered if name in parameters}


def _shown(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(…)"


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _place(function: Any) -> str | None:
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (TypeError, OSError):
        return None
    return f"{file}:{line}"
