"""Judging a run's team: the agents of one checkpoint play given problems k times each, in the run's own workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dagrl.backends.pool import ModelPool, build_pool
from dagrl.data import tasks_of
from dagrl.errors import DagrlError
from dagrl.experience import collate
from dagrl.nodes.reward import RewardNode
from dagrl.plain_json import finite
from dagrl.runtime.chosen_checkpoint import Chosen
from dagrl.runtime.code_files import code_files
from dagrl.runtime.console import Console
from dagrl.runtime.evaluate import Evaluation, evaluate
from dagrl.runtime.held_out import problems_of, sampling_as
from dagrl.runtime.judgement import Judgement, judge_samples
from dagrl.runtime.resume import differences, restore_policies
from dagrl.runtime.session import open_player, prepare_process
from dagrl.runtime.storage import make_folder, write_json
from dagrl.runtime.trajectory_log import Decode, TrajectoryLog
from dagrl.types import Task
from dagrl.workflow.graph import Workflow, load_workflow
from dagrl.workflow.held_out import HeldOutSet, held_out_sets
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.sections import ServerSpec

FOLDER = "evaluations"
"""Of a run folder: what was judged after the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The agents of one checkpoint."""

    run: Path
    name: str
    """As it is shown: `marft/20260101-120000@40`."""
    checkpoint: Chosen
    workflow: Workflow
    """The run's resolved workflow."""
    elsewhere: Mapping[int, Path | None] = field(default_factory=dict)
    """Agent groups that play with the weights of another checkpoint; None: with those that they began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One team, judged."""

    team: Team
    judgement: Judgement
    evaluation: Evaluation
    temperatures: dict[str, float]
    """By rollout node, as it was played."""
    is_warmed: bool
    """True where greedy agents were sampled at temperature 1, since k greedy samples would be k times the same."""
    decode: Decode
    servers: dict[str, dict[str, str]]
    """By agent that a server spoke for: `url`, `model`, and whether prompts went as `ids` or `text`."""


def recorded_workflow(run: Path, overrides: Sequence[str] = (), *, load_plugins: bool) -> Workflow:
    """The workflow that a run was made with, from its folder; what it names is where it was at the time."""
    return load_workflow(run / "workflow.yaml", overrides, load_plugins=load_plugins)


def open_team(run: Path, name: str, checkpoint: Chosen, *, allow_changes: bool) -> Team:
    """Raises DagrlError where hooks, environments or rewards are not what the run began with, unless allowed."""
    workflow = recorded_workflow(run, load_plugins=True)
    resolved = (run / "workflow.yaml").read_text(encoding="utf-8")
    changes = differences(run, resolved=resolved, code=code_files(workflow))
    if changes and not allow_changes:
        raise DagrlError(
            f"the code that the workflow names is not what the run began with:\n{changes}",
            where=str(run),
            how="undo the changes, or judge with them by --allow-changes",
        )
    return Team(run=run, name=f"{name}@{checkpoint.step}", checkpoint=checkpoint, workflow=workflow)


def on_set(team: Team, name: str | None) -> tuple[Team, HeldOutSet | None]:
    """The team that samples as on a held-out set of its run, and that set: the one called `name`, or the one that
    counts; None where the run has none. Raises DagrlError."""
    sets = {one.name: one for one in held_out_sets(team.workflow.spec.config)}
    if name is not None and (not name or name not in sets):
        known = [one for one in sets if one]
        how = did_you_mean(name, known) if known else "the run has no sets with names (config.trainer.eval)"
        raise DagrlError(f"no held-out set '{name}' in {team.name}", how=how)
    chosen = next((one for one in sets.values() if name in (None, one.name)), None)
    return (team, None) if chosen is None else (replace(team, workflow=sampling_as(team.workflow, chosen)), chosen)


def problems_for(team: Team, files: Sequence[str], held_out: HeldOutSet | None, console: Console) -> list[Task]:
    """The rows of `files`, found from the working directory; without any, the run's own `held_out`."""
    data = team.workflow.spec.config.data
    if files:
        return tasks_of(data, files, "val", base=Path.cwd(), tell=console.note)
    if held_out is None:
        raise DagrlError("the run has no held-out problems of its own", where=team.name, how="give --data FILE")
    return list(problems_of(team.workflow, held_out, console.note).tasks)


def judge(team: Team, tasks: Sequence[Task], *, k: int, without: str | None, console: Console) -> Verdict:
    """Plays every task `k` times with `rollout.val_kwargs`, and scores as the run did. Nothing is learnt or kept."""
    config = team.workflow.spec.config
    workflow, is_warmed = warmed(team.workflow) if k > 1 else (team.workflow, False)
    prepare_process(workflow)
    with ExitStack() as stack:
        stack.callback(console.close)
        pool = playing_pool(workflow, team.checkpoint.path, console, team.elsewhere)
        player = open_player(workflow, pool)
        stack.callback(player.close)
        evaluation = asyncio.run(
            evaluate(
                player,
                _scorer(workflow, pool),
                tasks,
                step=team.checkpoint.step,
                held_out=HeldOutSet(k=k),
                batch_size=config.data.val_batch_size,
                without=without,
            )
        )
    names = [group.name for group in workflow.groups]
    return Verdict(
        team=team,
        judgement=judge_samples(tasks, evaluation.trajectories, num_samples=k, agent_names=names),
        evaluation=evaluation,
        servers=pool.servers(),
        temperatures={node.node_id: node.val_sampling.temperature for node in _speakers(workflow)},
        is_warmed=is_warmed,
        decode=_decoder(workflow, pool),
    )


def with_servers(team: Team, servers: Mapping[str, ServerSpec]) -> Team:
    """The team with a server in place of some agents, which are named or numbered. Raises DagrlError."""
    by_word = {word: group.index for group in team.workflow.groups for word in (group.name, str(group.index))}
    for word in servers:
        if word not in by_word:
            raise DagrlError(f"no agent '{word}' in {team.name}", how=did_you_mean(word, by_word))
    given = {by_word[word]: server for word, server in servers.items()}
    groups = tuple(
        replace(group, server=given[group.index], is_trained=False, adapter=None) if group.index in given else group
        for group in team.workflow.groups
    )
    return replace(team, workflow=replace(team.workflow, groups=groups))


def warmed(workflow: Workflow) -> tuple[Workflow, bool]:
    """`workflow` with held-out temperature 1 where every agent was greedy, and whether that was so."""
    if any(node.val_sampling.temperature > 0 for node in _speakers(workflow)):
        return workflow, False
    nodes = tuple(replace(node, val_sampling=replace(node.val_sampling, temperature=1.0)) for node in workflow.nodes)
    return replace(workflow, nodes=nodes), True


def keep(verdict: Verdict, data: Sequence[str]) -> Path:
    """Writes `RUN/evaluations/<time>.json` and beside it the conversations in the trajectory log's form, in a folder of
    that name; what the run itself wrote is left as it is."""
    folder = make_folder(verdict.team.run / FOLDER)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    number = 1
    while (path := folder / (f"{stamp}.json" if number == 1 else f"{stamp}-{number}.json")).exists():
        number += 1
    evaluation = verdict.evaluation
    if evaluation.trajectories:
        log = TrajectoryLog(path.with_suffix(""), agent_names=list(verdict.judgement.agents), decode=verdict.decode)
        log.write_evaluation(evaluation.step, collate(evaluation.trajectories), evaluation.without)
    write_json(path, as_json(verdict, data))
    return path


def as_json(verdict: Verdict, data: Sequence[str]) -> dict[str, Any]:
    """All numbers, by problem too; null where there is none."""
    judgement = asdict(verdict.judgement)
    for problem, told in zip(judgement["problems"], verdict.judgement.problems, strict=True):
        problem["votes"] = [None if vote is None else str(vote) for vote in told.votes]
    content = {
        "team": verdict.team.name,
        "run": str(verdict.team.run),
        "step": verdict.team.checkpoint.step,
        "without": verdict.evaluation.without,
        "data": list(data),
        "temperatures": verdict.temperatures,
        "was_greedy": verdict.is_warmed,
        "servers": verdict.servers,
        "failed": dict(verdict.evaluation.failed),
        "unknown": dict(verdict.evaluation.unknown),
        **judgement,
    }
    return {name: finite(value) for name, value in content.items()}


def playing_pool(
    workflow: Workflow, checkpoint: Path | None, console: Console, elsewhere: Mapping[int, Path | None] | None = None
) -> ModelPool:
    """The policies with the checkpoint's weights, or their initial ones without it; those of `elsewhere` with the
    weights of another, or their initial ones. Critics and references stay unloaded: nobody learns."""
    groups = tuple(
        replace(
            group,
            needs_reference=False,
            speaks_as_initial=False,
            critic_owner=None,
            critic=None,
            critic_model=None,
        )
        for group in workflow.groups
    )
    with console.making_model() as progress:
        pool = build_pool(replace(workflow, groups=groups), total_optimizer_steps={}, progress=progress)
    places = {group.index: checkpoint for group in workflow.groups} | dict(elsewhere or {})
    for place in {path for path in places.values() if path is not None}:
        restore_policies(place, workflow, pool, only=[group for group, path in places.items() if path == place])
    return pool


def _decoder(workflow: Workflow, pool: ModelPool) -> Decode:
    """Keeps the tokenizers and lets go of the models."""
    tokenizers = {group.index: pool.tokenizer(group.index) for group in workflow.groups}
    return lambda group, ids: tokenizers[group].decode(ids)


def _scorer(workflow: Workflow, pool: ModelPool) -> RewardNode | None:
    node = next((node for node in workflow.learn if node.kind is NodeKind.REWARD), None)
    return None if node is None else RewardNode.of(node, workflow, pool)


def _speakers(workflow: Workflow) -> tuple[Node, ...]:
    return tuple(node for node in workflow.play if node.kind is NodeKind.ROLLOUT)
