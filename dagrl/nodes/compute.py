"""COMPUTE: a function of the user's on the batch, `function(batch, config) -> batch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dagrl.errors import UserCodeError, boundary
from dagrl.experience import Experience
from dagrl.types import Metrics
from dagrl.workflow.kinds import Node


class ComputeNode:
    """Hands the user's function the experience itself; what it gives back must be that experience, changed or not."""

    def __init__(
        self, node: Node, function: Callable[[Experience, Mapping[str, Any]], Any], config: Mapping[str, Any]
    ) -> None:
        self.node = node
        self._function = function
        self._config = config

    def run(self, experience: Experience, step: int) -> Metrics:
        with boundary(f"node '{self.node.node_id}': {self.node.executable_ref}"):
            result = self._function(experience, self._config)
        if result is not experience:
            raise UserCodeError(
                f"node '{self.node.node_id}': {self.node.executable_ref} gave back {type(result).__name__}",
                how="change the batch in place and return it",
                kind="bad_return",
            )
        return {}
