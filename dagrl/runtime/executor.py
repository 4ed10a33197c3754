"""Executor: runs the learn graph once on one step's experience, node by node in topological order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dagrl.errors import DagrlError, NumericError
from dagrl.experience import Experience
from dagrl.nodes.base import LearnNode
from dagrl.runtime.token_check import TokenCheck
from dagrl.runtime.trace import Trace
from dagrl.types import Metrics
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Node, NodeKind

_METRIC_PLACES: Mapping[NodeKind, str] = {
    NodeKind.REWARD: "reward",
    NodeKind.OLD_LOGPROBS: "agent_{agent}/policy",
    NodeKind.REF_LOGPROBS: "agent_{agent}/reference",
    NodeKind.VALUES: "agent_{agent}/values",
    NodeKind.ADVANTAGES: "advantage",
    NodeKind.TRAIN_CRITIC: "critic_{agent}",
    NodeKind.TRAIN_ACTOR: "agent_{agent}/actor",
    NodeKind.COMPUTE: "compute/{node}",
}
"""Where the metrics of a node of each kind stand; `{agent}` is the name of its group, of the owner for a critic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnResult:
    """What one pass through the learn graph did."""

    metrics: Metrics
    seconds: Mapping[str, float]
    """By node id; nodes that were idle are absent."""
    warnings: tuple[str, ...] = ()
    """What the check of tokens has to tell."""


class Executor:
    """Runs nodes in the workflow's order; what an idle node alone would use is left out too."""

    def __init__(
        self,
        workflow: Workflow,
        nodes: Mapping[str, LearnNode],
        token_check: TokenCheck,
        *,
        max_nonfinite_in_a_row: int = 3,
        trace: Trace | None = None,
    ) -> None:
        self._workflow = workflow
        self._nodes = nodes
        self._token_check = token_check
        self._trace = Trace() if trace is None else trace
        self._max_nonfinite = max_nonfinite_in_a_row
        self._nonfinite_in_a_row: dict[str, int] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"nonfinite_in_a_row": dict(self._nonfinite_in_a_row)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._nonfinite_in_a_row = dict(state["nonfinite_in_a_row"])

    def learn(self, experience: Experience, step: int, *, only: Collection[str] | None = None) -> LearnResult:
        """One step's learning, or the part of the nodes `only`.

        Raises NumericError when an update was not finite too often in a row, BreachError when what would be trained is
        not what was sampled.
        """
        metrics: Metrics = {}
        seconds: dict[str, float] = {}
        warnings: list[str] = []
        self._token_check.begin(experience, step)
        live = self._workflow.live(step)
        after = self._workflow.waits(live)
        for node in live:
            if only is not None and node.node_id not in only:
                continue
            with self._trace.node(node, after[node.node_id]) as lap:
                own = self._run(node, experience, step)
            seconds[node.node_id] = lap.seconds
            self._token_check.ids(experience, step)
            drift = self._token_check.drift(experience, node, step)
            warnings += [] if drift is None else [drift]
            place = _METRIC_PLACES[node.kind].format(
                agent=self._workflow.groups[node.agent_group].name, node=node.node_id
            )
            metrics |= {f"{place}/{name}": value for name, value in own.items()}
        return LearnResult(metrics=metrics, seconds=seconds, warnings=tuple(warnings))

    def _run(self, node: Node, experience: Experience, step: int) -> Metrics:
        try:
            metrics = self._nodes[node.node_id].run(experience, step)
        except DagrlError as error:
            error.where = f"step {step}, node '{node.node_id}'" + ("" if error.where is None else f", {error.where}")
            raise
        if node.kind.is_train:
            self._count_nonfinite(node, metrics, step)
        return metrics

    def _count_nonfinite(self, node: Node, metrics: Metrics, step: int) -> None:
        in_a_row = self._nonfinite_in_a_row.get(node.node_id, 0)
        in_a_row = in_a_row + 1 if metrics.get("nonfinite_steps", 0.0) > 0 else 0
        self._nonfinite_in_a_row[node.node_id] = in_a_row
        if in_a_row >= self._max_nonfinite:
            raise NumericError(
                f"loss or gradient was not finite in {in_a_row} steps in a row; the weights are as they were before",
                where=f"step {step}, node '{node.node_id}'",
                how="lower the learning rate, or look at the rewards and log-probs of these steps",
            )
