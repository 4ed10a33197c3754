"""PlayPlan: who waits for whom in one round, who hands what to whom, who acts on which environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagrl.environments.protocol import Seats
from dagrl.errors import DagrlError
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Node, NodeKind

ENV_SUFFIX = "@env"
"""The environment of the rollout node `solver` is the unit `solver@env`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvUnit:
    """The step of one owner's environments: after all who act on it, before all that depends on the owner."""

    unit: str
    node: Node
    actors: tuple[str, ...]
    """Rollout nodes whose responses it gets: in the order of agent group, then of the file."""
    hearers: tuple[str, ...]
    """Rollout nodes that get its observations: who acts on it, and who depends on an ENV node."""
    seats: Seats
    places: tuple[tuple[str, int], ...]
    """Node and branch of each action, in the order of `seats.actors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayPlan:
    """One round. Units are rollout nodes and environment steps."""

    units: tuple[str, ...]
    """Topological; this is the order of turns in a trajectory, whatever ends first."""
    rollouts: Mapping[str, Node]
    envs: Mapping[str, EnvUnit]
    waits: Mapping[str, tuple[str, ...]]
    """Units that must be over before a unit starts."""
    feeds: Mapping[str, tuple[str, ...]]
    """Rollout nodes that a rollout node gets its context from, in the file's order; ENV nodes are looked through."""
    needs: Mapping[str, tuple[str, ...]]
    """Units of which at least one must not have been skipped; empty for a unit that is never skipped so."""
    places: Mapping[str, int]
    """Where each node stands in the file."""
    last: tuple[str, ...]
    """Rollout nodes that no other gets its context from."""
    ancestors: Mapping[str, frozenset[str]]
    """All units that a unit waits for, directly or not."""


def make_plan(workflow: Workflow) -> PlayPlan:
    """The plan of the workflow's play graph. Raises `DagrlError` where an agent acts on no environment."""
    return _Planner(workflow).plan()


class _Planner:
    def __init__(self, workflow: Workflow) -> None:
        places = {spec.node_id: at for at, spec in enumerate(workflow.spec.nodes)}
        self._nodes = {node.node_id: node for node in workflow.play}
        self._place = places
        self._rollouts = {name: node for name, node in self._nodes.items() if node.kind is NodeKind.ROLLOUT}
        self._owners = [node for node in self._nodes.values() if node.kind is NodeKind.ENV or node.options.env_path]
        self._above = {name: self._closure(name) for name in self._nodes}

    def plan(self) -> PlayPlan:
        envs = {unit.unit: unit for unit in map(self._env_unit, self._owners)}
        self._check_env_flags(envs)
        feeds = {name: self._feeds(node) for name, node in self._rollouts.items()}
        fed_from = {source for sources in feeds.values() for source in sources}
        waits = {name: self._waits(node) for name, node in self._rollouts.items()}
        for unit in envs.values():
            declared = self._waits(unit.node) if unit.node.kind is NodeKind.ENV else ()
            waits[unit.unit] = tuple(dict.fromkeys((*unit.actors, *declared)))
        units = _ordered(self._unit_names(), waits)
        return PlayPlan(
            units=units,
            rollouts=self._rollouts,
            envs=envs,
            waits=waits,
            feeds=feeds,
            needs={name: self._needs(node) for name, node in self._rollouts.items()}
            | {unit.unit: unit.actors for unit in envs.values()},
            places=self._place,
            last=self._in_file_order(name for name in self._rollouts if name not in fed_from),
            ancestors=_ancestors(units, waits),
        )

    def _closure(self, name: str) -> frozenset[str]:
        node = self._nodes[name]
        direct = [other for other in node.dependencies if other in self._nodes]
        return frozenset(direct).union(*(self._closure(other) for other in direct))

    def _env_unit(self, owner: Node) -> EnvUnit:
        actors = self._actors(owner)
        if not actors:
            raise DagrlError(
                f"node '{owner.node_id}': no agent acts on this environment",
                how="make it depend on a rollout node",
            )
        hearers = [
            name
            for name, node in self._rollouts.items()
            if name in actors or (owner.kind is NodeKind.ENV and owner.node_id in node.dependencies)
        ]
        places = tuple(
            (name, branch) for name in actors for branch in range(self._nodes[name].options.num_parallel)
        )
        seats = Seats(
            actors=tuple(self._nodes[name].agent_group for name, _ in places),
            listeners=tuple(sorted({self._nodes[name].agent_group for name in hearers})),
        )
        unit = _unit_of(owner)
        return EnvUnit(unit=unit, node=owner, actors=actors, hearers=tuple(hearers), seats=seats, places=places)

    def _actors(self, owner: Node) -> tuple[str, ...]:
        found = {name for name in self._before(owner) if self._nodes[name].options.obs_with_env}
        if len(self._owners) == 1:
            found |= {
                name
                for name, node in self._rollouts.items()
                if node.options.obs_with_env and owner.node_id not in self._above[name]
            }
        if owner.kind is NodeKind.ROLLOUT:
            found.add(owner.node_id)
        elif not found:
            found = {name for name in owner.dependencies if name in self._rollouts}
        return tuple(sorted(found, key=lambda name: (self._nodes[name].agent_group, self._place[name])))

    def _before(self, owner: Node) -> set[str]:
        """Rollout nodes above `owner` that no other environment stands between."""
        owners = {node.node_id for node in self._owners}
        found: set[str] = set()
        queue = [name for name in owner.dependencies if name in self._nodes]
        while queue:
            name = queue.pop()
            if name in found or name in owners:
                continue
            found.add(name)
            queue += [other for other in self._nodes[name].dependencies if other in self._nodes]
        return found

    def _check_env_flags(self, envs: Mapping[str, EnvUnit]) -> None:
        """Who acts in an environment or hears from one has one."""
        acting = {name for unit in envs.values() for name in unit.actors}
        hearing = {name for unit in envs.values() for name in unit.hearers}
        for name, node in self._rollouts.items():
            if node.options.obs_with_env and name not in acting:
                raise DagrlError(
                    f"node '{name}': obs_with_env is true, and no environment comes after it in the round",
                    how="give env_path to it or to a node that depends on it, or leave obs_with_env out",
                )
            if node.options.needs_obs and name not in hearing:
                raise DagrlError(
                    f"node '{name}': needs_obs is true, and no environment has observations for it",
                    how="set obs_with_env to true, or leave needs_obs out",
                )

    def _feeds(self, node: Node) -> tuple[str, ...]:
        names: list[str] = []
        for name in node.dependencies:
            if name in self._rollouts:
                names.append(name)
            elif name in self._nodes:
                names += self._feeds(self._nodes[name])
        return self._in_file_order(dict.fromkeys(names))

    def _needs(self, node: Node) -> tuple[str, ...]:
        return tuple(name for name in node.dependencies if name in self._nodes)

    def _waits(self, node: Node) -> tuple[str, ...]:
        waits: list[str] = []
        for name in self._needs(node):
            waits.append(name)
            if self._nodes[name].kind is NodeKind.ROLLOUT and self._nodes[name].options.env_path:
                waits.append(_unit_of(self._nodes[name]))
        return tuple(waits)

    def _unit_names(self) -> list[str]:
        names: list[str] = []
        for name, node in self._nodes.items():
            names.append(name)
            if node.kind is NodeKind.ROLLOUT and node.options.env_path:
                names.append(_unit_of(node))
        return names

    def _in_file_order(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self._place.__getitem__))


def _unit_of(owner: Node) -> str:
    return owner.node_id if owner.kind is NodeKind.ENV else owner.node_id + ENV_SUFFIX


def _ordered(names: Sequence[str], waits: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Topological; of what is ready the first in `names` comes first."""
    left, placed = list(names), dict[str, None]()
    while left:
        ready = next((name for name in left if all(other in placed for other in waits[name])), None)
        assert ready is not None, f"circle among {left}"
        placed[ready] = None
        left.remove(ready)
    return tuple(placed)


def _ancestors(units: Sequence[str], waits: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    above: dict[str, frozenset[str]] = {}
    for unit in units:
        above[unit] = frozenset(waits[unit]).union(*(above[other] for other in waits[unit]))
    return above
