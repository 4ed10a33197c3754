"""Builders for tests of play: a workflow from a few lines, a scripted team, one batch played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dagrl.backends.scripted import ScriptedGenerator, ScriptedModels, ScriptedTokenizer
from dagrl.environments.runner import EnvRunner
from dagrl.runtime.player import Player, PlayResult
from dagrl.types import GenerationRequest, Task, Trajectory
from dagrl.workflow.graph import Workflow, load_workflow

SEED = 7


def rollout(node_id: str, *dependencies: str, group: int = 0, **options: Any) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "node_type": "MODEL_INFERENCE",
        "agent_group": group,
        "dependencies": list(dependencies),
        "agent_options": options,
    }


def env(node_id: str, *dependencies: str, **options: Any) -> dict[str, Any]:
    return {"node_id": node_id, "node_type": "ENV", "dependencies": list(dependencies), "agent_options": options}


def workflow(
    folder: Path,
    nodes: Sequence[Mapping[str, Any]],
    *,
    files: Mapping[str, str] | None = None,
    algorithm: Mapping[str, Any] | None = None,
    **rollout_config: Any,
) -> Workflow:
    """The workflow of `nodes` in `folder`, with `files` (name to text) beside it."""
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    settings = {"max_failed_fraction": 1.0, "sampling": {"max_tokens": 200}, **rollout_config}
    content = {
        "dag_id": "play",
        "config": {"rollout": settings, "algorithm": dict(algorithm or {"norm_adv": "none"})},
        "nodes": list(nodes),
    }
    path = folder / "workflow.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_workflow(path)


class Team:
    """A scripted team: `say(prompt text, request) -> response text`."""

    def __init__(
        self,
        say: Callable[[str, GenerationRequest], str],
        tokenizers: Mapping[int, ScriptedTokenizer] | None = None,
        delay: Callable[[GenerationRequest], float] | None = None,
    ) -> None:
        shared = ScriptedTokenizer()
        self.tokenizers = dict.fromkeys(range(6), shared) if tokenizers is None else dict(tokenizers)
        self.generator = ScriptedGenerator(self.tokenizers, self._script, delay=delay)
        self.models = ScriptedModels(self.tokenizers, self.generator)
        self._say = say

    def _script(self, request: GenerationRequest) -> str:
        return self._say(self.text(request.agent_group, request.prompt_ids), request)

    def text(self, group: int, ids: Sequence[int]) -> str:
        """With control tokens."""
        return self.tokenizers[group].decode(ids)


def task(prompt: Any = "Q", task_id: str = "t0", **fields: Any) -> Task:
    return Task(task_id=task_id, prompt=prompt, **fields)


def play(
    flow: Workflow,
    team: Team,
    runner: EnvRunner,
    tasks: Sequence[Task] | None = None,
    *,
    n: int = 1,
    sampling: str = "train",
    failures_dir: Path | None = None,
    **kwargs: Any,
) -> PlayResult:
    player = Player(flow, team.models, runner, run_seed=SEED, failures_dir=failures_dir)
    chosen = [task()] if tasks is None else tasks
    return asyncio.run(player.play(chosen, step=kwargs.pop("step", 0), sampling=sampling, n=n, **kwargs))  # type: ignore[arg-type]


def only(result: PlayResult) -> Trajectory:
    assert not result.failed, result.failed
    (trajectory,) = result.trajectories
    return trajectory


def prompts(team: Team, trajectory: Trajectory) -> dict[tuple[str, int, int], str]:
    """What each turn was generated from, by (node, round, branch)."""
    return {
        (turn.node_id, turn.round, turn.branch): team.text(turn.agent_group, turn.prompt_ids)
        for turn in trajectory.turns
    }
