"""Hooks: a rollout node's `pre_process` and `post_process`, their defaults, and the checks of what they give back."""

from __future__ import annotations

import asyncio
import inspect
import operator
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from dagrl.errors import PluginError, TimeUp, UserCodeError, describe, show
from dagrl.limits import contained, in_limited_pieces, time_limit
from dagrl.types import Trajectory
from dagrl.workflow import plugins
from dagrl.workflow.spec import AgentOptions

Inputs = Mapping[str, list[str]]
"""{node_id: [response text of each branch]} of the rollout nodes that a node depends on."""


class HookTokenizer(Protocol):
    """What the checks need of a tokenizer; hooks get the whole one."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScene:
    """Where a hook is called: for its optional parameters and for messages."""

    trajectory: Trajectory
    """A copy that the hook may do with as it likes."""
    inputs: Inputs = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"task {self.trajectory.task.task_id!r}, sample {self.trajectory.sample}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hook:
    """One function of the user's."""

    function: Callable[..., Any]
    name: str
    """`process.py:pre_process`."""
    kwargs: Mapping[str, Any]
    names: frozenset[str]
    takes_any: bool

    def takes(self, name: str) -> bool:
        return name in self.names

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def place(self) -> str:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return self.name if code is None else f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"

    def place_of(self, error: BaseException) -> str:
        """The last line of the hook's file on the way to the error."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
        return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else self.place


class Hooks:
    """Both hooks of one rollout node, called on the event loop with a time limit.

    Synchronous hooks are short (they put ids together), so they are not sent to a thread: the way there and back would
    take longer than most of them and hold up the generations that wait for them. What waits for something is `async`.
    """

    def __init__(self, options: AgentOptions, base: Path, *, timeout_s: float = 60.0) -> None:
        """Loads the hooks that `options.process_path` names; raises `PluginError` where that cannot be."""
        module = None if options.process_path is None else plugins.load_module(options.process_path, base)
        self._caller = _Caller(timeout_s)
        self._pre = _find(module, "pre_process", options.pre_process_kwargs)
        self._post = _find(module, "post_process", options.post_process_kwargs)
        if module is not None and self._pre is None and self._post is None:
            raise PluginError(
                "has neither pre_process nor post_process",
                where=options.process_path,
                how="define pre_process(tokenizer, prompt_id, obs, **kwargs) -> list[int] or "
                "post_process(tokenizer, prompt_id, response_id, **kwargs) -> list[int]",
            )

    @property
    def has_pre(self) -> bool:
        return self._pre is not None

    @property
    def has_post(self) -> bool:
        return self._post is not None

    @property
    def takes_inputs(self) -> bool:
        """True if `pre_process` names `inputs`: it puts its context together by itself."""
        return self._pre is not None and self._pre.takes("inputs")

    async def pre(
        self, tokenizer: HookTokenizer, prompt_ids: Sequence[int], obs: Sequence[int] | None, scene: HookScene
    ) -> tuple[int, ...]:
        """The ids to generate from: `prompt_ids` themselves where there is no hook."""
        if self._pre is None:
            return tuple(prompt_ids)
        keywords: dict[str, Any] = {}
        if self._pre.takes("obs") or self._pre.takes_any:
            keywords["obs"] = None if obs is None else list(obs)
        raw = await self._call(self._pre, tokenizer, (list(prompt_ids),), keywords, scene)
        return _checked(raw, self._pre, len(tokenizer), scene)

    async def post(
        self, tokenizer: HookTokenizer, prompt_ids: Sequence[int], response_ids: Sequence[int], scene: HookScene
    ) -> tuple[int, ...]:
        """The transcript handed on: prompt and response where there is no hook."""
        if self._post is None:
            return (*prompt_ids, *response_ids)
        raw = await self._call(self._post, tokenizer, (list(prompt_ids), list(response_ids)), {}, scene)
        return _checked(raw, self._post, len(tokenizer), scene)

    async def _call(
        self,
        hook: _Hook,
        tokenizer: HookTokenizer,
        ids: tuple[list[int], ...],
        keywords: dict[str, Any],
        scene: HookScene,
    ) -> Any:
        if hook.takes("inputs"):
            keywords["inputs"] = {node_id: list(texts) for node_id, texts in scene.inputs.items()}
        if hook.takes("trajectory"):
            keywords["trajectory"] = scene.trajectory
        return await self._caller.call(hook, (tokenizer, *ids), {**keywords, **hook.kwargs}, scene)


class Condition:
    """`when`: whether a node speaks in this round of this trajectory; always, without a function."""

    def __init__(self, ref: str | None, base: Path, *, timeout_s: float = 60.0) -> None:
        self._caller = _Caller(timeout_s)
        self._hook = None if ref is None else _hook_of(plugins.load(ref, base), ref, {})

    @property
    def is_always(self) -> bool:
        return self._hook is None

    async def holds(self, scene: HookScene) -> bool:
        if self._hook is None:
            return True
        raw = await self._caller.call(self._hook, (scene.trajectory,), {}, scene)
        value = raw.item() if type(raw).__module__ == "numpy" and raw.size == 1 else raw
        if not isinstance(value, bool):
            raise _bad(self._hook, scene, f"gave {show(raw)} ({type(raw).__name__})", "`when` gives True or False")
        return value


class _Caller:
    """Calls hooks with the time limit."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def call(self, hook: _Hook, arguments: tuple[Any, ...], keywords: Mapping[str, Any], scene: HookScene) -> Any:
        try:
            if hook.is_async:
                steps = in_limited_pieces(_guarded_async(hook, arguments, keywords, scene), self._timeout_s)
                return await asyncio.wait_for(steps, self._timeout_s)
            with contained(), time_limit(self._timeout_s):
                return _guarded(hook, arguments, keywords, scene)
        except (TimeoutError, TimeUp):
            raise UserCodeError(
                f"{hook.name} did not return within {self._timeout_s:g} s ({scene.place})",
                where=hook.place,
                how="make it faster or raise config.rollout.hook_timeout_s",
                kind="timeout",
            ) from None


def _guarded(hook: _Hook, arguments: tuple[Any, ...], keywords: Mapping[str, Any], scene: HookScene) -> Any:
    try:
        return hook.function(*arguments, **keywords)
    except TimeUp:
        raise
    except BaseException as error:
        raise _raised(hook, error, scene) from error


async def _guarded_async(hook: _Hook, arguments: tuple[Any, ...], keywords: Mapping[str, Any], scene: HookScene) -> Any:
    try:
        return await hook.function(*arguments, **keywords)
    except TimeUp:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # by the run, not by the hook itself
        raise _raised(hook, error, scene) from error


def _raised(hook: _Hook, error: BaseException, scene: HookScene) -> UserCodeError:
    return UserCodeError(f"{hook.name} raised {describe(error)} ({scene.place})", where=hook.place_of(error))


def _find(module: ModuleType | None, name: str, kwargs: Mapping[str, Any]) -> _Hook | None:
    function = getattr(module, name, None)
    if module is None or function is None:
        return None
    file = Path(str(module.__file__)).name
    if not callable(function):
        raise PluginError(f"{name} is a {type(function).__name__}, not a function", where=str(module.__file__))
    hook = _hook_of(function, f"{file}:{name}", kwargs)
    _check_signature(hook)
    return hook


def _hook_of(function: Callable[..., Any], name: str, kwargs: Mapping[str, Any]) -> _Hook:
    parameters = inspect.signature(function).parameters
    return _Hook(
        function=function,
        name=name,
        kwargs=kwargs,
        names=frozenset(parameters),
        takes_any=any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()),
    )


def _check_signature(hook: _Hook) -> None:
    """Refuses at load what would raise at the first call: missing or unknown keyword arguments."""
    is_pre = hook.name.endswith("pre_process")
    given = dict(hook.kwargs)
    for name in ("obs", "inputs", "trajectory") if is_pre else ("inputs", "trajectory"):
        if hook.takes(name):
            given[name] = None
    positional = (None, None) if is_pre else (None, None, None)
    try:
        inspect.signature(hook.function).bind(*positional, **given)
    except TypeError as error:
        shape = "(tokenizer, prompt_id, obs, **kwargs)" if is_pre else "(tokenizer, prompt_id, response_id, **kwargs)"
        option = "pre_process_kwargs" if is_pre else "post_process_kwargs"
        raise PluginError(
            f"{hook.name} cannot be called with {option} {sorted(hook.kwargs)}: {error}",
            where=hook.place,
            how=f"a hook is {hook.name.rsplit(':', 1)[1]}{shape} -> list[int]",
        ) from error


def _checked(raw: Any, hook: _Hook, num_tokens: int, scene: HookScene) -> tuple[int, ...]:
    """`raw` as ids; raises `UserCodeError` (bad_return) unless it is a non-empty list of ids of the vocabulary and
    of images that were shown."""
    if not isinstance(raw, list | tuple):
        raise _bad(hook, scene, f"gave a {type(raw).__name__}: {show(raw)}", "return a list of int")
    if not raw:
        raise _bad(hook, scene, "gave an empty list", "return at least one id")
    return tuple(_id(entry, at, hook, num_tokens, scene) for at, entry in enumerate(raw))


def _id(entry: Any, at: int, hook: _Hook, num_tokens: int, scene: HookScene) -> int:
    try:
        value = operator.index(entry) if not isinstance(entry, bool) and not hasattr(entry, "requires_grad") else None
    except TypeError:
        value = None
    if value is None or type(entry).__name__ in ("bool_", "bool"):
        raise _bad(hook, scene, f"gave {show(entry)} ({type(entry).__name__}) at position {at}", "ids are int")
    if not 0 <= value < num_tokens and value not in scene.trajectory.images:
        raise _bad(hook, scene, f"gave the id {show(value)} at position {at}", f"ids are 0 to {num_tokens - 1} here")
    return int(value)


def _bad(hook: _Hook, scene: HookScene, what: str, how: str) -> UserCodeError:
    return UserCodeError(f"{hook.name} {what} ({scene.place})", where=hook.place, how=how, kind="bad_return")
