"""Any small team as a workflow, and a run of it in this process: what tests of options are written with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dagrl.data.trajectory_files import read_trajectories
from dagrl.errors import WorkflowError
from dagrl.runtime.console import Console
from dagrl.runtime.metrics import read_metrics
from dagrl.runtime.run_folder import create_run_folder
from dagrl.runtime.session import run_workflow
from dagrl.runtime.signals import StopSignals
from dagrl.workflow.checks import check_runnable
from dagrl.workflow.graph import Workflow, load_workflow
from tests.tiny_project import write_project

Spec = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """A finished run."""

    folder: Path
    workflow: Workflow

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Metrics of the training steps."""
        return [row for row in read_metrics(self.folder / "metrics.jsonl") if "trajectory/count" in row]

    def series(self, name: str) -> list[float | None]:
        return [row.get(name) for row in self.rows]

    def turns(self, name: str = "step_000001") -> list[Mapping[str, Any]]:
        return read_trajectories(self.folder / "trajectories" / f"{name}.parquet")

    def of(self, node: str, name: str = "step_000001") -> list[Mapping[str, Any]]:
        return [turn for turn in self.turns(name) if turn["node"] == node]

    @property
    def checkpoint(self) -> Path:
        return max((self.folder / "checkpoints").iterdir())

    def weights(self, part: str) -> dict[str, torch.Tensor]:
        return load_file(self.checkpoint / part / "model.safetensors")


def train(
    folder: Path, *overrides: str, files: Mapping[str, str] | None = None, team: Spec | None = None, **project: Any
) -> Ran:
    """Trains tiny_project's team, or `team`, for two steps of four prompts unless `overrides` say otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_project(folder, **{"total_steps": 2, **project})
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    if team is not None:
        path.write_text(json.dumps(team))
    quick = ("data.train_batch_size=4", "data.val_files=[]", "trainer.val_without=[]", "trainer.show_sample_freq=0")
    workflow = load_workflow(path, [*quick, *overrides], load_plugins=True)
    missing = check_runnable(workflow)
    if missing:
        raise WorkflowError(missing)
    run = create_run_folder(folder / "runs", "options", run_dir=folder / "out")
    try:
        run_workflow(workflow, run, Console(), stop=StopSignals())
    finally:
        run.close()
    return Ran(folder / "out", workflow)


def node(node_id: str, node_type: str, *, role: str | None = None, group: int = 0, after: Sequence[str] = (),
         only: bool = False, options: Spec | None = None, **keys: Any) -> Spec:  # fmt: skip
    made: Spec = {"node_id": node_id, "node_type": node_type, "agent_group": group, "dependencies": list(after)}
    made |= {"node_role": role} if role is not None else {}
    return made | {"only_forward_compute": only, "agent_options": options or {}} | keys


def speaker(node_id: str, group: int = 0, after: Sequence[str] = (), **options: Any) -> Spec:
    return node(node_id, "MODEL_INFERENCE", group=group, after=after, options=options)


def team(play: Sequence[Spec], *, reward: Spec | None = None, critics: bool = True, **config: Spec) -> Spec:
    """A whole workflow around the nodes of `play`: one critic for all, old log-probs, PPO for every group.

    `reward`: keys of the REWARD node; None takes the environment's rewards.
    """
    groups = sorted({one["agent_group"] for one in play})
    ends = [one["node_id"] for one in play]
    nodes = [*play]
    if reward is not None:
        nodes.append(node("reward", "REWARD", after=ends, **reward))
        ends = ["reward"]
    heard = list(ends)
    for group in groups:
        nodes.append(node(f"old_{group}", "MODEL_TRAIN", role="ACTOR", group=group, after=ends, only=True))
        heard.append(f"old_{group}")
        if critics:
            nodes.append(node(f"values_{group}", "MODEL_TRAIN", role="CRITIC", group=group, after=ends, only=True,
                              options=_sharing(group)))  # fmt: skip
            heard.append(f"values_{group}")
    nodes.append(node("advantages", "COMPUTE", role="ADVANTAGE", after=heard))
    for group in groups:
        nodes.append(node(f"train_{group}", "MODEL_TRAIN", role="ACTOR", group=group, after=["advantages"]))
        if critics:
            nodes.append(node(f"critic_{group}", "MODEL_TRAIN", role="CRITIC", group=group, after=["advantages"],
                              options=_sharing(group)))  # fmt: skip
    sections: dict[str, Spec] = {
        "data": {"train_files": "train.jsonl"},
        "model": {"recipe": "recipe.py:make"},
        "rollout": {"n": 2, "max_context_len": 64, "sampling": {"max_tokens": 2}, "env_workers": 1,
                    "rewards_with_env": reward is None},
        "actor": {"optim": {"lr": 0.01}},
        "trainer": {"total_steps": 2},
    }  # fmt: skip
    for name, own in config.items():
        sections[name] = sections.get(name, {}) | own
    return {"dag_id": "team", "config": sections, "nodes": nodes}


def _sharing(group: int) -> Spec:
    return {"share_instance": 0} if group else {}


def changed(workflow: Spec, node_id: str, **keys: Any) -> Spec:
    """`workflow` with other keys for one node."""
    nodes = [one | keys if one["node_id"] == node_id else one for one in workflow["nodes"]]
    return workflow | {"nodes": nodes}


TWO = (speaker("a"), speaker("b", 1, ["a"]))
SCORES = """
def letters(data_source, solution_str, ground_truth, extra_info, bonus=0.0):
    return {"score": float(ground_truth in solution_str) + bonus, "length": len(solution_str)}

def by_agent(trajectory, scale=1.0):
    return {turn.agent_group: scale * (1 + turn.agent_group) for turn in trajectory.turns}

def never(trajectory):
    return False
"""
GIVE = {"executable_ref": "scores.py:letters"}


@contextmanager
def one_process(cache: Path) -> Iterator[None]:
    """One thread, and one cache of tiny models for all runs."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGRL_CACHE", str(cache))
        patch.setenv("HF_HUB_OFFLINE", "1")
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


def run(
    folder: Path,
    play: Sequence[Spec] = TWO,
    *overrides: str,
    reward: Spec | None = GIVE,
    files: Mapping[str, str] | None = None,
    **config: Spec,
) -> Ran:
    """Trains the team of `play`; SCORES lies beside the workflow as scores.py."""
    made = team(play, reward=reward, **config)
    return train(folder, *overrides, team=made, files={"scores.py": SCORES, **(files or {})})


def is_same(one: Ran, other: Ran, part: str, *, tolerance: float = 0.0) -> bool:
    """Whether two runs ended with the same weights of `agent_<name>` or `critic_<name>`."""
    ours, theirs = one.weights(part), other.weights(part)
    return all(torch.allclose(ours[name], theirs[name], rtol=0, atol=tolerance) for name in ours)
