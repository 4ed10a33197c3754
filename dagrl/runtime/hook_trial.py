"""A hook outside a run: what goes in and what comes out, as ids and as text. For `dagrl try-hook`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from dagrl.backends.base import encode_foreign
from dagrl.backends.byte_tokenizer import byte_tokenizer
from dagrl.backends.loading import open_tokenizer
from dagrl.errors import DagrlError
from dagrl.hooks import Hooks, HookScene
from dagrl.nodes.transcript import PROMPT, Scribe
from dagrl.plain_text import safe
from dagrl.types import Task, Trajectory
from dagrl.workflow import plugins
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Node
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.sections import ModelSpec
from dagrl.workflow.spec import AgentOptions

_IDS_SHOWN = 64
"""Longer lists of ids are cut in the middle."""
_ENDS = 24
"""Ids that are shown of each end then."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the hooks are given besides the row."""

    obs: str | None = None
    """What the environment said."""
    response: str = "an answer"
    """What the agent said; the end token is put behind it."""
    inputs: Mapping[str, list[str]] = field(default_factory=dict)
    """`{node_id: [response text]}` for hooks that name `inputs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where hooks are tried: which file, with which options and which tokenizer."""

    options: AgentOptions
    base: Path
    tokenizer: Any
    said: str
    """Which tokenizer it is."""


def setting_alone(file: str, model: str | None, *, pre: Mapping[str, Any], post: Mapping[str, Any]) -> Setting:
    """The hooks of `file` by themselves, with the tokenizer of `model`, or one token for each byte without one."""
    options = AgentOptions(process_path=file, pre_process_kwargs=dict(pre), post_process_kwargs=dict(post))
    if model is None:
        return Setting(options=options, base=Path(), tokenizer=byte_tokenizer(), said="one token for each byte")
    tokenizer = _tokenizer(ModelSpec(path=model), Path(), lambda done, what: None)
    return Setting(options=options, base=Path(), tokenizer=tokenizer, said=model)


def setting_of_node(workflow: Workflow, file: str, node_id: str | None, progress: Progress) -> Setting:
    """The hooks of `file` as a node of a workflow has them: `node_id`, or the first that names the file."""
    base = workflow.path.parent
    node = _node(workflow, plugins.resolve_path(file, Path()).resolve(), node_id)
    model = workflow.groups[node.agent_group].model
    tokenizer = _tokenizer(model, base, progress)
    said = f"that of node '{node.node_id}' ({model.recipe or model.path})"
    return Setting(options=node.options, base=base, tokenizer=tokenizer, said=said)


def _node(workflow: Workflow, file: Path, node_id: str | None) -> Node:
    base = workflow.path.parent
    users = {
        node.node_id: node
        for node in workflow.play
        if node.options.process_path is not None
        and plugins.resolve_path(node.options.process_path, base).resolve() == file
    }
    if not users:
        raise DagrlError(f"no node of {workflow.path} has the hooks of {file}", how="name it as its process_path")
    if node_id is not None and node_id not in users:
        raise DagrlError(f"no node '{node_id}' has the hooks of {file}", how=did_you_mean(node_id, users))
    return next(iter(users.values())) if node_id is None else users[node_id]


def _tokenizer(model: ModelSpec, base: Path, progress: Progress) -> Any:
    return open_tokenizer(model, base, progress)


def try_hooks(setting: Setting, task: Task, words: Words) -> list[str]:
    """What a rollout node does before and after its generation, line by line.

    Raises UserCodeError where a hook fails or gives back what it must not. In the main thread only.
    """
    return asyncio.run(_try(setting, task, words))


async def _try(setting: Setting, task: Task, words: Words) -> list[str]:
    tokenizer = setting.tokenizer
    hooks = Hooks(setting.options, setting.base)
    scene = HookScene(trajectory=Trajectory(task=task, sample=0, step=0), inputs=words.inputs)
    prompt = Scribe(lambda group: tokenizer).translate(PROMPT, 0, task).ids
    obs = None if words.obs is None else encode_foreign(tokenizer, words.obs)
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    response = (*encode_foreign(tokenizer, words.response), *end)
    generated_from = await hooks.pre(tokenizer, prompt, obs, scene)
    transcript = await hooks.post(tokenizer, prompt, response, scene)
    return [
        f"tokenizer: {setting.said}, {len(tokenizer)} ids",
        *_shown("prompt_id", prompt, tokenizer),
        *([] if obs is None else _shown("obs", obs, tokenizer)),
        *_shown("pre_process gives", generated_from, tokenizer, before=prompt),
        *_shown("response_id", response, tokenizer),
        *_shown("post_process gives", transcript, tokenizer, before=(*prompt, *response)),
    ]


def _shown(name: str, ids: Sequence[int], tokenizer: Any, *, before: Sequence[int] | None = None) -> list[str]:
    """The name with the number of ids, the ids, the text; and what changed against `before`."""
    changed = "" if before is None else f"; {_change(before, ids)}"
    text = safe(tokenizer.decode(ids)).replace("\n", "\\n")
    return [f"{name}: {len(ids)} ids{changed}", f"    ids   {_listed(ids)}", f"    text  {text}"]


def _listed(ids: Sequence[int]) -> str:
    if len(ids) <= _IDS_SHOWN:
        return " ".join(map(str, ids))
    left_out = len(ids) - 2 * _ENDS
    return f"{' '.join(map(str, ids[:_ENDS]))} … {left_out} more … {' '.join(map(str, ids[-_ENDS:]))}"


def _change(before: Sequence[int], after: Sequence[int]) -> str:
    """What became of `before`: kept whole with something around it, or kept in parts."""
    if list(before) == list(after):
        return "unchanged"
    at = next(
        (n for n in range(len(after) - len(before) + 1) if list(after[n : n + len(before)]) == list(before)), None
    )
    if at is not None:
        return f"all {len(before)} kept, {at} put before, {len(after) - at - len(before)} put behind"
    blocks = SequenceMatcher(a=list(before), b=list(after), autojunk=False).get_matching_blocks()
    kept = sum(block.size for block in blocks)
    return f"{kept} kept, {len(after) - kept} new, {len(before) - kept} gone"
