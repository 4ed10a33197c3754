"""The two shapes of a node, play and learn, and what a play node is given when its turn comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dagrl.errors import UserCodeError
from dagrl.experience import Experience
from dagrl.hooks import Inputs
from dagrl.types import Metrics, SamplingParams, Trajectory, Turn
from dagrl.workflow.kinds import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """What an agent knows when it is to speak."""

    trajectory: Trajectory
    """A copy: the rounds before, and of this round what the node depends on."""
    round: int
    context_ids: tuple[int, ...]
    """In the tokenizer of the node's agent group."""
    obs: str | None
    """What the environment said to it; None where it said nothing or where it already stands in the context."""
    inputs: Inputs
    params: SamplingParams
    seed: int | None
    """Replaces the run's seed for its draws."""


class PlayNode(Protocol):
    """Acts once per round in one trajectory."""

    node: Node

    async def act(self, cue: Cue) -> tuple[Turn, ...]:
        """One turn for each of its branches. Raises `ContextFull` and `TrajectoryFault`."""
        ...


class LearnNode(Protocol):
    """Works once per step on the batch of finished trajectories."""

    node: Node

    def run(self, experience: Experience, step: int) -> Metrics: ...


@runtime_checkable
class Stateful(Protocol):
    """A node that changes during a run, and so is part of a checkpoint."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def stateful(nodes: Mapping[str, LearnNode]) -> dict[str, Stateful]:
    """Those of `nodes` that have a state."""
    return {name: node for name, node in nodes.items() if isinstance(node, Stateful)}


class ContextFull(Exception):
    """The conversation leaves no room for a response."""


class TrajectoryFault(Exception):
    """User code broke one trajectory; `kind` is for the books: `env_timeout`, `pre_process_raised`, …"""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turns a `UserCodeError` into the fault of one trajectory, counted as `<what>_<kind>`."""
    try:
        yield
    except UserCodeError as error:
        raise TrajectoryFault(f"{what}_{error.kind}", str(error)) from error
