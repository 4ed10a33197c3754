"""Executor: runs the learn graph once on one step's experience, node by node in topological order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError
from dagrl.experience import Experience, NonFinite
from dagrl.nodes.base import AnyLearnNode, ExtraPlay, PlayingNode
from dagrl.runtime.nonfinite import NumericFault, numeric_fault, write_fault
from dagrl.runtime.token_check import TokenCheck
from dagrl.runtime.trace import Trace
from dagrl.types import Metrics
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Node, NodeKind

_METRIC_PLACES: Mapping[NodeKind, str] = {
    NodeKind.REWARD: "reward",
    NodeKind.DYNAMIC_SAMPLING: "sampling",
    NodeKind.CREDIT: "credit",
    NodeKind.OLD_LOGPROBS: "agent_{agent}/policy",
    NodeKind.REF_LOGPROBS: "agent_{agent}/reference",
    NodeKind.VALUES: "agent_{agent}/values",
    NodeKind.ADVANTAGES: "advantage",
    NodeKind.TRAIN_CRITIC: "critic_{agent}",
    NodeKind.TRAIN_ACTOR: "agent_{agent}/actor",
    NodeKind.COMPUTE: "compute/{node}",
}
"""Where the metrics of a node of each kind stand; `{agent}` is the name of its group, of the owner for a critic."""


_PLAY = ""
"""Stands among node ids for what was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnResult:
    """What one pass through the learn graph did."""

    metrics: Metrics
    seconds: Mapping[str, float]
    """By node id; nodes that were idle are absent."""
    warnings: tuple[str, ...] = ()
    """What was not finite, and what the check of tokens has to tell."""


class Executor:
    """Runs nodes in the workflow's order; what an idle node alone would use is left out too.

    Where a column is not finite the rest of the step is left out, so that nothing is trained on it; where a loss or a
    gradient is not, its model alone stays as it was.
    """

    def __init__(
        self,
        workflow: Workflow,
        nodes: Mapping[str, AnyLearnNode],
        token_check: TokenCheck,
        *,
        play: ExtraPlay | None = None,
        failures_dir: Path | None = None,
        max_nonfinite_in_a_row: int = 3,
        trace: Trace | None = None,
    ) -> None:
        """`play`: what gives nodes the rollouts they ask for; may be None where none of them asks.

        `failures_dir`: where batches that are not finite are written, None writes none.
        """
        self._workflow = workflow
        self._play = play
        self._nodes = nodes
        self._token_check = token_check
        self._trace = Trace() if trace is None else trace
        self._failures_dir = failures_dir
        self._max_nonfinite = max_nonfinite_in_a_row
        self._nonfinite_in_a_row: dict[str, int] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"nonfinite_in_a_row": dict(self._nonfinite_in_a_row)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._nonfinite_in_a_row = dict(state["nonfinite_in_a_row"])

    async def learn(
        self, experience: Experience, step: int, *, only: Collection[str] | None = None
    ) -> LearnResult:
        """One step's learning, or the part of the nodes `only`.

        Raises NumericError when a node's numbers were not finite too often in a row, BreachError when what would be
        trained is not what was sampled.
        """
        metrics: Metrics = {}
        seconds: dict[str, float] = {}
        warnings = self._look(None, experience, step)
        is_given_up = bool(warnings)
        if not is_given_up:
            self._token_check.begin(experience, step)
        live = self._workflow.live(step)
        after = self._workflow.waits(live)
        for node in live:
            if is_given_up or not len(experience.turns):
                break
            if only is not None and node.node_id not in only:
                continue
            with self._trace.node(node, after[node.node_id]) as lap:
                own = await self._run(node, experience, step)
            seconds[node.node_id] = lap.seconds
            place = _METRIC_PLACES[node.kind].format(
                agent=self._workflow.groups[node.agent_group].name, node=node.node_id
            )
            metrics |= {f"{place}/{name}": value for name, value in own.items()}
            if node.kind is NodeKind.DYNAMIC_SAMPLING:
                self._token_check.begin(experience, step)
            warnings += experience.notes
            experience.notes.clear()
            faults = self._look(node, experience, step)
            is_given_up = bool(faults) and experience.first_nonfinite() is not None
            warnings += faults if is_given_up else [*faults, *self._token_warnings(node, experience, step)]
        if is_given_up:
            experience.excuse(range(len(experience.trajectories)), "nonfinite")
            metrics["trajectory/given_up"] = 1.0
        return LearnResult(metrics=metrics, seconds=seconds, warnings=tuple(warnings))

    async def _run(self, node: Node, experience: Experience, step: int) -> Metrics:
        worker = self._nodes[node.node_id]
        try:
            if not isinstance(worker, PlayingNode):
                return worker.run(experience, step)
            assert self._play is not None, f"'{node.node_id}' needs more play, and nothing here plays"
            return await worker.run_playing(experience, step, self._play)
        except DagrlError as error:
            place = f"step {step + 1}, node '{node.node_id}'"
            error.where = place if error.where is None else f"{place}, {error.where}"
            raise

    def _token_warnings(self, node: Node, experience: Experience, step: int) -> list[str]:
        self._token_check.ids(experience, step)
        drift = self._token_check.drift(experience, node, step)
        return [] if drift is None else [drift]

    def _look(self, node: Node | None, experience: Experience, step: int) -> list[str]:
        """What is not finite after `node` ran, or before any did; raises where that was so too often in a row."""
        column = experience.first_nonfinite()
        found = [*experience.nonfinite, *([] if column is None else [column])]
        experience.nonfinite.clear()
        name = _PLAY if node is None else node.node_id
        self._nonfinite_in_a_row[name] = self._nonfinite_in_a_row.get(name, 0) + 1 if found else 0
        return [f"{self._note(one, node, experience, step)}; no update was made from it" for one in found]

    def _note(self, found: NonFinite, node: Node | None, experience: Experience, step: int) -> NumericFault:
        names = [group.name for group in self._workflow.groups]
        node_id = None if node is None else node.node_id
        fault = numeric_fault(found, experience, names, step=step + 1, node_id=node_id)
        file = None if self._failures_dir is None else write_fault(self._failures_dir, fault, found, experience)
        in_a_row = self._nonfinite_in_a_row[_PLAY if node is None else node.node_id]
        if in_a_row >= self._max_nonfinite:
            raise fault.error(in_a_row, file)
        return fault
