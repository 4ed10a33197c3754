"""Replay: the learn nodes of one step run again on the saved trajectories, by themselves, beside what was logged."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dagrl.backends.pool import ModelPool, build_pool
from dagrl.errors import DagrlError
from dagrl.experience import Experience
from dagrl.nodes import build_learn_nodes
from dagrl.nodes.base import LearnNode, PlayingNode, stateful
from dagrl.nodes.reward import place
from dagrl.runtime import checkpoint
from dagrl.runtime.code_files import code_files
from dagrl.runtime.console import Console
from dagrl.runtime.debugging import Debugged, post_mortem
from dagrl.runtime.executor import Executor
from dagrl.runtime.judge import recorded_workflow
from dagrl.runtime.logged_step import LoggedStep, preload, read_step, take_outcome
from dagrl.runtime.metrics import METRICS_FILE, read_metrics
from dagrl.runtime.process_random import set_random_state
from dagrl.runtime.replay_check import Agreement, Checker
from dagrl.runtime.resume import ResumePoint, differences, find_point_before, restore_models
from dagrl.runtime.session import open_loader, optimizer_steps, prepare_process, token_check, training_tasks
from dagrl.runtime.storage import storage
from dagrl.types import Metrics
from dagrl.workflow import plugins
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Column, Node, NodeKind, asks_for_play
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.plugins import is_reference

_LENIENT = "config.trainer.on_logprob_drift=warn"
"""With weights of another step log-probs are apart, and that is no reason to stop."""
_EVERY_FAULT = "config.rollout.max_failed_fraction=0"
"""Under the debugger no fault of a reward function is borne."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which part of a step: one node, or from one node on; the whole step where neither is given."""

    node: str | None = None
    onwards: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replayed step came to."""

    step: int
    """From 1, as it was logged."""
    nodes: tuple[str, ...]
    """Those that ran, in order."""
    weights_step: int
    """The weights were those after so many steps; 0 are the initial ones."""
    changed_code: str
    """How the user's code differs from the run's; empty where it does not."""
    num_unknown_tasks: int
    agreements: tuple[Agreement, ...]
    weights_after: tuple[str, ...] | None
    """Files of the trained models that are not as in the checkpoint of this step; None where none can be compared."""

    @property
    def is_exact(self) -> bool:
        """Whether the weights are those that the step had."""
        return self.weights_step == self.step - 1

    @property
    def agrees(self) -> bool:
        return all(one.is_fine for one in self.agreements) and not self.weights_after


def replay_step(run: Path, file: Path, step: int, part: Part, *, is_debugged: bool, console: Console) -> Replay:
    """Runs nodes of step `step` (from 1) of `run` on the trajectories in `file`. The run folder is only read."""
    overrides = [_LENIENT, *([_EVERY_FAULT] if is_debugged else [])]
    workflow = recorded_workflow(run, overrides, load_plugins=True)
    chosen = chosen_nodes(workflow, step - 1, part)
    prepare_process(workflow)
    _take_threads(run, workflow)
    point = find_point_before(run, step - 1)
    with ExitStack() as stack:
        stack.callback(console.close)
        with console.making_model() as progress:
            tasks = training_tasks(workflow, console, progress)
            _, total_steps = open_loader(workflow, tasks)
            pool = build_pool(workflow, total_optimizer_steps=optimizer_steps(workflow, total_steps), progress=progress)
        logged = read_step(file, step - 1, tasks)
        nodes = _nodes(workflow, pool, point)
        experience = _experience(workflow, logged, chosen)
        weights_step = 0 if point is None else point.step
        checker = Checker(workflow, logged, _metrics_of(run, step), has_weights=weights_step == step - 1)
        if is_debugged:
            stack.enter_context(post_mortem())
            nodes |= {node.node_id: _debugged(node, nodes[node.node_id], workflow) for node in chosen}
        metrics = _learn(Executor(workflow, nodes, token_check(workflow, pool)), experience, step - 1, chosen)
        agreements = checker.compare(experience, chosen, metrics)
    resolved = (run / "workflow.yaml").read_text(encoding="utf-8")
    return Replay(
        step=step,
        nodes=tuple(node.node_id for node in chosen),
        weights_step=weights_step,
        changed_code=differences(run, resolved=resolved, code=code_files(workflow)),
        num_unknown_tasks=logged.num_unknown_tasks,
        agreements=agreements,
        weights_after=_weights_after(run, workflow, pool, step, chosen) if weights_step == step - 1 else None,
    )


def _take_threads(run: Path, workflow: Workflow) -> None:
    """As many threads as the run had: another number adds up in another order."""
    with storage(run / "versions.json"):
        had = json.loads((run / "versions.json").read_text(encoding="utf-8")).get("num_threads")
    if had is not None and workflow.spec.config.executor.num_threads is None:
        torch.set_num_threads(had)


def chosen_nodes(workflow: Workflow, step: int, part: Part) -> tuple[Node, ...]:
    """The nodes of `part` in step `step` (from 0).

    A COMPUTE node changes the batch in place, and the log holds only its state at the end of the step: where one is
    among them, what comes before it and trains nothing runs too. Raises DagrlError where a node did not run.
    """
    live = workflow.live(step)
    if part.node is not None:
        chosen = {_find(workflow, live, part.node, step)}
        if any(asks_for_play(node) for node in live if node.node_id in chosen):
            raise DagrlError(f"'{part.node}' has the team play more, and a replay plays nothing")
    elif part.onwards is not None:
        first = _find(workflow, live, part.onwards, step)
        wanted = live[[node.node_id for node in live].index(first) :]
        chosen = {node.node_id for node in _after_play(wanted)}
    else:
        return _after_play(live)
    in_place = [n for n, node in enumerate(live) if node.kind is NodeKind.COMPUTE and node.node_id in chosen]
    if in_place:
        chosen |= {node.node_id for node in live[: in_place[-1]] if not node.kind.is_train}
    return tuple(node for node in live if node.node_id in chosen)


def _after_play(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """What follows the last node that has the team play more: the log holds what that one left, and not what it had."""
    places = [place for place, node in enumerate(nodes) if asks_for_play(node)]
    return tuple(nodes[places[-1] + 1 :] if places else nodes)


def _find(workflow: Workflow, live: Sequence[Node], name: str, step: int) -> str:
    for node in live:
        if name in (node.node_id, *node.merged_ids):
            return node.node_id
    if any(name == node.node_id for node in workflow.play):
        how = "failures/*.json of the run can be played again; --node takes one that learns"
        raise DagrlError(f"'{name}' plays, and is not part of a step's learning", how=how)
    if any(name in (node.node_id, *node.merged_ids) for node in workflow.learn):
        ran = ", ".join(node.node_id for node in live)
        raise DagrlError(f"'{name}' did not run in step {step + 1}", how=f"these did: {ran}")
    raise DagrlError(f"no node '{name}' in this workflow", how=did_you_mean(name, [node.node_id for node in live]))


def _nodes(workflow: Workflow, pool: ModelPool, point: ResumePoint | None) -> dict[str, LearnNode]:
    """The learn nodes, with models and states as they were at `point`; new without one."""
    nodes = build_learn_nodes(workflow, pool)
    if point is not None:
        restore_models(point, workflow, pool)
        for name, node in stateful(nodes).items():
            node.load_state_dict(point.state["nodes"][name])
        set_random_state(point.state["random"])
    return {name: node for name, node in nodes.items() if not isinstance(node, PlayingNode)}


def _experience(workflow: Workflow, logged: LoggedStep, chosen: Sequence[Node]) -> Experience:
    """The batch as it was before the first of the `chosen` nodes ran."""
    experience = logged.experience(use_all_traj=workflow.spec.config.rollout.use_all_traj)
    outcome_known = experience.turns.is_trained.clone()
    take_outcome(experience, logged.rows)
    scorers = [node for node in chosen if node.kind is NodeKind.REWARD]
    if scorers:
        experience.turns.is_trained = outcome_known
        _forget_scores(workflow, scorers, logged)
    ran = {node.node_id for node in chosen}
    for node in workflow.live(logged.step):
        if node.node_id == chosen[-1].node_id:
            break
        if node.node_id not in ran:
            _take_over(experience, workflow, node, logged, penalised=_is_penalised(chosen))
    return experience


def _forget_scores(workflow: Workflow, scorers: Sequence[Node], logged: LoggedStep) -> None:
    """Takes away what a REWARD node that runs again adds anew."""
    if any(node.options.combine == "add" for node in scorers):
        raise DagrlError(
            f"'{scorers[0].node_id}' adds to the environment's rewards, which the log does not hold by themselves",
            how="replay from a later node with --from",
        )
    if not workflow.spec.config.rollout.rewards_with_env:
        for trajectory in logged.trajectories:
            trajectory.reward = 0.0
            for turn in trajectory.turns:
                turn.reward, turn.reward_parts = 0.0, {}


def _is_penalised(chosen: Sequence[Node]) -> bool:
    """Whether one of the nodes takes a KL penalty off the rewards; those that the log holds have it off already."""
    return any(node.kind is NodeKind.ADVANTAGES and node.algorithm.use_kl_in_reward for node in chosen)


def _take_over(experience: Experience, workflow: Workflow, node: Node, logged: LoggedStep, *, penalised: bool) -> None:
    """What the log holds of a node that does not run again."""
    if node.kind is NodeKind.REWARD and penalised:
        place(experience, node.groups)
        return
    groups: dict[Column, set[int]] = {}
    for column, group in workflow.contract(node).writes:
        groups.setdefault(column, set()).add(group)
    if node.kind is NodeKind.TRAIN_ACTOR and node.algorithm.update_order == "sequential":
        groups[Column.NEW_LOGPROBS] = set(node.groups)
    for column, own in groups.items():
        preload(experience, column, own, logged.rows)


def _debugged(node: Node, inner: LearnNode, workflow: Workflow) -> Debugged:
    names = {
        NodeKind.REWARD: node.executable_ref,
        NodeKind.COMPUTE: node.executable_ref,
        NodeKind.ADVANTAGES: node.algorithm.adv_estimator,
        NodeKind.TRAIN_ACTOR: node.algorithm.policy_loss,
    }
    named = [names.get(node.kind), *(part.fn for part in node.options.rewards)]
    own = [plugins.load(name, workflow.path.parent) for name in named if name is not None and is_reference(name)]
    return Debugged(inner, own)


def _learn(executor: Executor, experience: Experience, step: int, chosen: Sequence[Node]) -> dict[str, Metrics]:
    """Metrics by node, under the names that they are logged by."""
    return {
        node.node_id: asyncio.run(executor.learn(experience, step, only={node.node_id})).metrics for node in chosen
    }  # fmt: skip


def _metrics_of(run: Path, step: int) -> Mapping[str, Any]:
    rows = [row for row in read_metrics(run / METRICS_FILE) if row["step"] == step and "trajectory/count" in row]
    return rows[-1] if rows else {}


def _weights_after(
    run: Path, workflow: Workflow, pool: ModelPool, step: int, chosen: Sequence[Node]
) -> tuple[str, ...] | None:
    """Files that differ from the checkpoint of `step`, where that was kept and all of the step's training replayed."""
    kept = checkpoint.newest(run / "checkpoints", at_most=step)
    ran = {node.node_id for node in chosen}
    trainers = [node.node_id for node in workflow.live(step - 1) if node.kind.is_train]
    if kept.path is None or checkpoint.step_of(kept.path) != step or not ran.issuperset(trainers):
        return None
    trained = [group for group in workflow.groups if group.is_trained]
    models: dict[str, Any] = {f"agent_{group.name}": pool.policy(group.index) for group in trained}
    models |= {f"critic_{workflow.groups[owner].name}": critic for owner, critic in pool.critics().items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            (Path(folder) / name).mkdir()
            model.save(Path(folder) / name)
        return checkpoint.differing(kept.path, Path(folder))
