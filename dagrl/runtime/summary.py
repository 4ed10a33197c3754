"""What a played batch looks like in numbers: lengths, rounds, ends, faults, per team and per agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dagrl.experience import Experience
from dagrl.runtime.repetition import repetition_metrics
from dagrl.runtime.roles import ending_metrics, role_metrics, trained_shares
from dagrl.types import FailedTrajectory, Metrics
from dagrl.workflow.graph import Workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.kinds import Node, NodeKind


def step_metrics(
    workflow: Workflow, experience: Experience, failed: Sequence[FailedTrajectory], *, step: int
) -> Metrics:
    """Numbers of step `step` (from 0) under `trajectory/…`, `agent_<name>/…` and `role/<node>/…`; faults are counted by
    kind."""
    metrics = trajectory_metrics(workflow, experience, len(failed))
    for kind, count in sorted(Counter(one.kind for one in failed).items()):
        metrics[f"trajectory/failed/{kind}"] = float(count)
    trained = {node.agent_group for node in workflow.live(step) if node.kind is NodeKind.TRAIN_ACTOR}
    roles = [node.node_id for node in _speakers(workflow) if node.agent_group in trained]
    return metrics | trained_shares(experience, roles) | agent_metrics(workflow.groups, experience)


def agent_metrics(groups: Sequence[AgentGroup], experience: Experience) -> Metrics:
    """Numbers under `agent_<name>/…`."""
    metrics: Metrics = {}
    for group in groups:
        metrics |= _of_agent(group, experience)
    return metrics | repetition_metrics(groups, experience.trajectories)


def trajectory_metrics(workflow: Workflow, experience: Experience, num_failed: int) -> Metrics:
    """Numbers under `trajectory/…` and `role/<node>/…`, over all conversations of a step."""
    trajectories = experience.trajectories
    count = len(trajectories)
    metrics = {
        "trajectory/count": float(count),
        "trajectory/failed": float(num_failed),
        "trajectory/tokens": float(experience.num_tokens),
    }
    if count:
        metrics["trajectory/rounds"] = sum(one.num_rounds for one in trajectories) / count
        metrics["trajectory/turns"] = len(experience.turns) / count
        ends = Counter(str(one.stop_reason) for one in trajectories)
        metrics |= {f"trajectory/ended/{reason}": number / count for reason, number in sorted(ends.items())}
    roles = [node.node_id for node in _speakers(workflow)]
    metrics |= ending_metrics(experience, roles, workflow.spec.config.rollout.max_rounds)
    return metrics | role_metrics(experience, roles)


def _speakers(workflow: Workflow) -> list[Node]:
    return [node for node in workflow.play if node.kind is NodeKind.ROLLOUT]


def _of_agent(group: AgentGroup, experience: Experience) -> Metrics:
    table = experience.turns
    own = table.agent_group == group.index
    if not bool(own.any()):
        return {}
    place = f"agent_{group.name}"
    return {
        f"{place}/turns": float(own.sum()),
        f"{place}/response_tokens": float(table.response_len[own].double().mean()),
        f"{place}/prompt_tokens": float(table.prompt_len[own].double().mean()),
        f"{place}/cut": float(table.is_cut[own].double().mean()),
        f"{place}/empty": float((table.response_len[own] == 0).double().mean()),
        f"{place}/reward": float(table.reward[own].double().mean()),
    }
