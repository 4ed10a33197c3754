"""The numbers of a step computed again from its logged trajectories, beside those that the run wrote down."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dagrl.algorithms import FixedKL
from dagrl.experience import Experience
from dagrl.nodes import built_in_estimator
from dagrl.nodes.advantages import Advantages, AdvantagesNode
from dagrl.nodes.reward import place, reward_summary
from dagrl.runtime.evaluate import summed_up
from dagrl.runtime.held_out_scores import detailed_scores
from dagrl.runtime.logged_step import LoggedStep, Rows, preload, read_step, take_outcome
from dagrl.runtime.summary import agent_metrics, trajectory_metrics
from dagrl.types import Metrics
from dagrl.workflow.graph import Workflow
from dagrl.workflow.held_out import HeldOutSet, held_out_sets
from dagrl.workflow.kinds import Column, Node, NodeKind, reward_placement

TOLERANCE = 1e-5
"""Largest |computed - logged| / (1 + |logged|): the log holds float32, and other processors add in another order."""
_INPUTS = (Column.OLD_LOGPROBS, Column.REF_LOGPROBS, Column.VALUES)
_OUTCOMES = (Column.REWARDS, Column.ADVANTAGES, Column.RETURNS)

Row = Mapping[str, Any]


@dataclass(slots=True)
class Recomputed:
    """What came of it."""

    num_numbers: int = 0
    """Compared."""
    wrong: list[str] = field(default_factory=list)
    """A line for each that did not come out again."""
    left_out: set[str] = field(default_factory=set)
    """What cannot be computed again, and why."""

    def compare(self, where: str, name: str, logged: Any, computed: float) -> None:
        self.num_numbers += 1
        if logged is None:
            self.wrong.append(f"{where}: {name} is not there, the trajectories give {computed:.6g}")
        elif not abs(logged - computed) <= TOLERANCE * (1 + abs(logged)):
            self.wrong.append(f"{where}: {name} is {logged:.6g}, the trajectories give {computed:.6g}")


def recompute_step(workflow: Workflow, path: Path, row: Row, found: Recomputed) -> None:
    """Rewards on tokens, advantages, returns, and the metrics that follow from trajectories; `row` is the step's."""
    if row.get("trajectory/given_up"):
        found.left_out.add("steps that were given up, because numbers were not finite")
        return
    step = int(row["step"]) - 1
    logged = read_step(path, step, ())
    experience = logged.experience(use_all_traj=workflow.spec.config.rollout.use_all_traj)
    where = f"metrics.jsonl step {row['step']}"
    metrics = agent_metrics(workflow.groups, experience)
    if _is_complete(workflow, logged, row):
        metrics |= trajectory_metrics(workflow, experience, int(row["trajectory/failed"]))
        metrics |= {f"reward/{name}": value for name, value in _rewards(workflow, logged, step).items()}
    else:
        found.left_out.add("means over trajectories, where one ended before anybody spoke: the log has no row of it")
    live = workflow.live(step)
    if any(node.kind is NodeKind.COMPUTE for node in live):
        found.left_out.add("advantages, which a COMPUTE function of your own may have changed")
    else:
        metrics |= _learn(workflow, live, experience, logged.rows, row)
        _compare_columns(experience, logged.rows, path.name, found)
    for name, value in metrics.items():
        found.compare(where, name, row.get(name), value)
    for node in live:
        if node.kind is NodeKind.ADVANTAGES and _estimator(node, workflow) is None:
            name = node.algorithm.adv_estimator
            found.left_out.add(f"advantages by {name}, which is your own or goes by more than the log has")


def recompute_evaluation(workflow: Workflow, path: Path, row: Row, found: Recomputed) -> None:
    """Held-out accuracy and rewards of every set; `path` has the conversations of the one that counts."""
    if "val/failed" not in row:
        found.left_out.add("held-out results without an agent")
        return
    for held_out in held_out_sets(workflow.spec.config):
        own = path if held_out.counts else path.with_name(f"{path.stem}@{held_out.name}{path.suffix}")
        _recompute_set(workflow, held_out, own, row, found)


def _recompute_set(workflow: Workflow, held_out: HeldOutSet, path: Path, row: Row, found: Recomputed) -> None:
    trajectories = read_step(path, int(row["step"]), ()).trajectories
    tasks = list({one.task.task_id: one.task for one in trajectories}.values())
    evaluation = summed_up(tasks, trajectories, {}, step=int(row["step"]), without=None, held_out=held_out)
    if row[f"{evaluation.place}failed"] or len(trajectories) != len(tasks) * held_out.k:
        found.left_out.add("held-out results of evaluations in which trajectories failed")
        return
    names = [group.name for group in workflow.groups]
    metrics = evaluation.metrics() | detailed_scores(evaluation, tasks, held_out.k, names)
    for name, value in metrics.items():
        if math.isfinite(value):
            found.compare(f"metrics.jsonl step {row['step']}", name, row.get(name), value)


def _is_complete(workflow: Workflow, logged: LoggedStep, row: Row) -> bool:
    """Whether the log has every trajectory of the step; one without a turn has no row. Such a one counts among those
    asked for; a count that does not is wrong, and is shown to be."""
    asked = workflow.spec.config.data.train_batch_size * workflow.spec.config.rollout.n
    is_counted = row.get("trajectory/count", 0) + row.get("trajectory/failed", 0) == asked
    return len(logged.trajectories) == row.get("trajectory/count") or not is_counted


def _rewards(workflow: Workflow, logged: LoggedStep, step: int) -> Metrics:
    """The summary of a REWARD node; nothing where none ran, or where it saw samples that were dropped later."""
    kinds = {node.kind for node in workflow.live(step)}
    if NodeKind.REWARD not in kinds or NodeKind.DYNAMIC_SAMPLING in kinds:
        return {}
    return reward_summary(logged.trajectories)


def _learn(workflow: Workflow, live: Sequence[Node], experience: Experience, rows: Rows, row: Row) -> Metrics:
    """Runs what gives rewards, advantages and returns on `experience`, from the logged log-probs and values."""
    take_outcome(experience, rows)
    for column in _INPUTS:
        preload(experience, column, range(len(workflow.groups)), rows)
    metrics: Metrics = {}
    for node in live:
        if node.kind is NodeKind.REWARD:
            place(experience, node.groups)
        elif node.kind is NodeKind.OLD_LOGPROBS:
            name = f"agent_{workflow.groups[node.agent_group].name}/policy"
            metrics |= {f"{name}/{key}": value for key, value in _gap(experience, node).items()}
        elif node.kind is NodeKind.ADVANTAGES and (estimator := _estimator(node, workflow)) is not None:
            kl = FixedKL(row.get("advantage/kl_coef") or 0.0)
            own = AdvantagesNode(node, estimator, kl).run(experience, int(row["step"]) - 1)
            metrics |= {f"advantage/{key}": value for key, value in own.items()}
    return metrics


def _gap(experience: Experience, node: Node) -> Metrics:
    turns = experience.turns_of(node.groups)
    if not len(turns):
        return {}
    old, sampled = experience.read(Column.OLD_LOGPROBS, turns), experience.read(Column.ROLLOUT_LOGPROBS, turns)
    gap = (old - sampled).abs()
    return {"sampler_gap_mean": float(gap.mean()), "sampler_gap_max": float(gap.max())}


def _compare_columns(experience: Experience, rows: Rows, name: str, found: Recomputed) -> None:
    for column in _OUTCOMES:
        if column not in experience.columns:
            continue
        parts = torch.split(experience.columns[column], experience.turns.response_len.tolist())
        for number, (row, computed) in enumerate(zip(rows, parts, strict=True)):
            if row[column] is not None and bool(experience.written[column][number]):
                for at, (was, now) in enumerate(zip(row[column], computed.tolist(), strict=True)):
                    where = f"trajectories/{name} row {number} (task {row['task_id']}, node {row['node']}), token {at}"
                    found.compare(where, str(column), was, now)


def _estimator(node: Node, workflow: Workflow) -> Advantages | None:
    """None where one step's log does not hold all that it goes by: the user's own, and those that have a state or have
    rollouts played."""
    placement = reward_placement(workflow.nodes, node.algorithm)
    estimator = built_in_estimator(node, workflow.stages, placement)
    return None if estimator is None or estimator.state_dict() else estimator


def spread(steps: Sequence[int], wanted: int | None) -> Iterator[int]:
    """`wanted` of `steps`, the first, the last, and others evenly between; all if None.

    >>> list(spread([1, 2, 3, 4, 5, 6, 7], 3))
    [1, 4, 7]
    """
    if wanted is None or wanted >= len(steps):
        yield from steps
    elif wanted == 1:
        yield steps[-1]
    else:
        yield from (steps[round(at * (len(steps) - 1) / (wanted - 1))] for at in range(wanted))
