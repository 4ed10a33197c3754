"""The checked workflow: nodes in order, agent groups, the cut between play and learn, which nodes live in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx

from dagrl.errors import Finding, WorkflowError
from dagrl.workflow import checks, dialects, overrides
from dagrl.workflow.document import anchor_paths, load_document
from dagrl.workflow.facts import Facts
from dagrl.workflow.groups import AgentGroup, trains_in_step
from dagrl.workflow.kinds import ASKS_FOR_PLAY, Column, Contract, Node, NodeKind, contract
from dagrl.workflow.layers import NodeConfigSpec
from dagrl.workflow.outline import Outline
from dagrl.workflow.resolve import Resolver, merge_critic_trainers, node_configs, with_defaults, with_env_rewards
from dagrl.workflow.schema import validate_workflow
from dagrl.workflow.sharing import critic_owners
from dagrl.workflow.spec import WorkflowSpec
from dagrl.workflow.tree import COMMAND_LINE, Mark, finding, plain

_ALWAYS_LIVE = (NodeKind.REWARD, NodeKind.COMPUTE, *ASKS_FOR_PLAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One workflow file, checked."""

    spec: WorkflowSpec
    path: Path
    """The file; plugins are found relative to its folder."""
    resolved: Mapping[str, Any]
    """The whole file with `extends`, references and overrides applied; loads to the same workflow."""
    nodes: tuple[Node, ...]
    """Topological, ties in the order of the file; TRAIN_CRITIC nodes of one critic are merged into one."""
    groups: tuple[AgentGroup, ...]
    warnings: tuple[Finding, ...] = ()
    facts: Facts
    """What the checks looked at, with the places of everything in the file."""

    @property
    def play(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind.is_play)

    @property
    def learn(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.kind.is_play)

    @property
    def stages(self) -> dict[str, int]:
        """The place of each rollout node in the order of a round, from 0: one more than the latest of those that it
        depends on. Nodes of one stage speak at the same time."""
        found: dict[str, int] = {}
        for node in self.play:
            before = [found[name] for name in node.dependencies if name in found]
            found[node.node_id] = max(before, default=-1) + 1
        return found

    @property
    def critic_owners(self) -> tuple[int | None, ...]:
        """The group whose critic each group uses, None where it has none."""
        return tuple(group.critic_owner for group in self.groups)

    def contract(self, node: Node) -> Contract:
        """What a node reads, writes and trains."""
        return self.facts.contracts[node.node_id]

    def trains(self, node: Node, step: int) -> bool:
        """Whether a TRAIN node updates its model in `step` (from 0)."""
        if node.kind is NodeKind.TRAIN_ACTOR and step < self.spec.config.trainer.critic_warmup:
            return False
        return trains_in_step(node.options.train_cycle, node.agent_group, step, len(self.groups))

    def live(self, step: int) -> tuple[Node, ...]:
        """The learn nodes that run in `step` (from 0), in order: those that train, and what they need of the others."""
        needed: set[tuple[Column, int]] = set()
        running: list[Node] = []
        for node in reversed(self.learn):
            told = self.contract(node)
            if self._runs(node, told, step, needed):
                running.append(node)
                needed |= told.reads
        return tuple(reversed(running))

    def waits(self, live: Sequence[Node]) -> dict[str, tuple[str, ...]]:
        """Whom each of the learn nodes `live` (in order) has to wait for: its dependencies, those of one that does not
        run looked through, and before its model is trained all that read it."""
        names, contracts = {node.node_id for node in live}, self.facts.contracts
        learn = {node.node_id: node for node in self.learn}
        above: dict[str, tuple[str, ...]] = {}
        for node in self.learn:
            found = [(name,) if name in names else above[name] for name in node.dependencies if name in learn]
            above[node.node_id] = tuple(dict.fromkeys(name for part in found for name in part))
        for place, node in enumerate(live):
            trained = contracts[node.node_id].trains_model
            readers = [one.node_id for one in live[:place] if trained in contracts[one.node_id].reads_model]
            above[node.node_id] = tuple(dict.fromkeys((*above[node.node_id], *readers)))
        return {node.node_id: above[node.node_id] for node in live}

    def _runs(self, node: Node, told: Contract, step: int, needed: set[tuple[Column, int]]) -> bool:
        if node.kind.is_train:
            return self.trains(node, step)
        return node.kind in _ALWAYS_LIVE or bool(told.writes & needed)


def players_of(workflow: Workflow) -> list[str]:
    """The rollout nodes whose agent is trained: those whom credit is shared out among."""
    speakers = [node for node in workflow.play if node.kind is NodeKind.ROLLOUT]
    return [node.node_id for node in speakers if workflow.groups[node.agent_group].is_trained]


def load_workflow(path: str | Path, overrides: Sequence[str] = (), *, load_plugins: bool = False) -> Workflow:
    """The workflow of a file with `key=value` overrides. Raises `WorkflowError` with everything that is wrong.

    `load_plugins` also loads hooks, environments and functions and checks their signatures.
    """
    outline, findings = read_outline(Path(path).expanduser(), overrides)
    if outline is None:
        raise WorkflowError(ordered(findings))
    return build(outline, Path(path).expanduser(), findings=findings, load_plugins=load_plugins)


def read_outline(path: Path, given: Sequence[str]) -> tuple[Outline | None, list[Finding]]:
    """The file as specs with places; None where not even a part of it can be made sense of."""
    document = load_document(path)
    findings = document.findings
    root = overrides.apply(document.root, given, findings, document.ignored)
    root = anchor_paths(dialects.settle(root, findings), str(path))
    spec, faults, left_out = validate_workflow(root)
    findings = findings + faults + _ignored_finding(document.ignored)
    return (None if spec is None else Outline(root, spec, left_out)), findings


def _ignored_finding(ignored: Sequence[tuple[str, Mark]]) -> list[Finding]:
    """One warning that names all of siiRL's keys that mean nothing here."""
    if not ignored:
        return []
    names = list(dict.fromkeys(name for name, _ in ignored))
    first = next((mark for _, mark in ignored if mark.file != COMMAND_LINE), ignored[0][1])
    count = "1 key means nothing here and is" if len(names) == 1 else f"{len(names)} keys mean nothing here and are"
    message = f"{count} not used: {', '.join(names)}"
    return [finding("W203", message, first)]


def build(outline: Outline, path: Path, *, findings: Sequence[Finding] = (), load_plugins: bool = False) -> Workflow:
    """The workflow of a file's outline. Raises `WorkflowError` with `findings` and what is found here."""
    configs, config_faults = node_configs(outline)
    early = [*findings, *checks.of_outline(outline), *config_faults]
    if any(found.is_error for found in early):
        raise WorkflowError(ordered(early))
    facts, sharing_faults = resolve(outline, configs, path.parent)
    plugin_faults = checks.of_plugins(facts) if load_plugins else []
    found = ordered([*early, *sharing_faults, *checks.of_facts(facts), *plugin_faults])
    if any(one.is_error for one in found):
        raise WorkflowError(found)
    return Workflow(
        spec=facts.spec,
        path=path,
        resolved=plain(anchor_paths(outline.tree, None)),
        nodes=tuple(facts.nodes),
        groups=tuple(facts.groups),
        warnings=tuple(found),
        facts=facts,
    )


def resolve(outline: Outline, configs: Mapping[str, NodeConfigSpec], base: Path) -> tuple[Facts, list[Finding]]:
    """Nodes and groups with every setting, in order; and what is wrong with how critics are shared."""
    owners, findings = critic_owners(outline)
    spec = with_defaults(outline.spec)
    resolver = Resolver(spec, configs, owners)
    written = resolver.nodes()
    nodes = sorted_nodes(with_env_rewards(merge_critic_trainers(written, owners), spec))
    graph = as_graph(nodes)
    facts = Facts(
        outline=outline,
        base=base,
        spec=spec,
        written=written,
        nodes=nodes,
        groups=[resolver.group(index, nodes) for index in range(len(owners))],
        configs=configs,
        contracts={node.node_id: contract(node, owners) for node in nodes},
        ancestors={node.node_id: frozenset(nx.ancestors(graph, node.node_id)) for node in nodes},
    )
    return facts, findings


def sorted_nodes(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in topological order, ties in the order of the file."""
    place = {node.node_id: position for position, node in enumerate(nodes)}
    graph = as_graph(nodes)
    return [nodes[place[name]] for name in nx.lexicographical_topological_sort(graph, key=place.__getitem__)]


def as_graph(nodes: Sequence[Node]) -> Any:
    """Edges from what is waited for to what waits."""
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(node.node_id for node in nodes)
    graph.add_edges_from((name, node.node_id) for node in nodes for name in node.dependencies)
    return graph


def ordered(findings: Sequence[Finding], limit: int = 50) -> list[Finding]:
    """Findings in the order of the file, errors before warnings, each once; a line instead of those past `limit`."""
    unique = list(dict.fromkeys(findings))
    unique.sort(key=lambda found: (not found.is_error, found.file or "", found.line or 0, found.column or 0))
    if len(unique) <= limit:
        return unique
    return [*unique[:limit], Finding(code=unique[limit].code, message=f"and {len(unique) - limit} more")]
