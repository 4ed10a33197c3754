"""OLD_LOGPROBS and REF_LOGPROBS: what a policy and its frozen reference think of the responses."""

from __future__ import annotations

from dagrl.backends.base import ReferenceModel
from dagrl.experience import Experience
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node


class LogprobsNode:
    """Writes the log-probs that one model gives to the turns of one agent."""

    def __init__(self, node: Node, model: ReferenceModel, column: Column) -> None:
        self.node = node
        self._model = model
        self._column = column

    def run(self, experience: Experience, step: int) -> Metrics:
        turns = experience.turns_of(self.node.groups)
        if not len(turns):
            return {}
        scores = self._model.score(experience.select(turns))
        experience.write(self._column, turns, scores.logprobs)
        metrics = {"padding": scores.padding}
        if self._column is Column.OLD_LOGPROBS:
            gap = (scores.logprobs - experience.read(Column.ROLLOUT_LOGPROBS, turns)).abs()
            metrics["entropy"] = float(scores.entropy.mean())
            metrics["sampler_gap_mean"] = float(gap.mean())
            metrics["sampler_gap_max"] = float(gap.max())
        return metrics
