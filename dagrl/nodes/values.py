"""VALUES: the critic's values before every response token of an agent, and after every turn."""

from __future__ import annotations

from dagrl.backends.base import ValueModel
from dagrl.experience import Experience
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node


class ValuesNode:
    """Writes the values of the turns of one agent; a shared critic is asked once per agent."""

    def __init__(self, node: Node, critic: ValueModel) -> None:
        self.node = node
        self._critic = critic

    def run(self, experience: Experience, step: int) -> Metrics:
        turns = experience.turns_of(self.node.groups)
        if not len(turns):
            return {}
        values = self._critic.values(experience.select(turns))
        experience.write(Column.VALUES, turns, values.values)
        experience.turns.last_value[turns] = values.last_values
        return {"padding": values.padding, "mean": float(values.values.mean())}
