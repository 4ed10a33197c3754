"""The file's nodes and agent groups with every setting resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dagrl.errors import Finding
from dagrl.workflow.algorithm_section import CHAINED_ESTIMATORS, AlgorithmSpec
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.kinds import ASKS_FOR_PLAY, Column, Node, NodeKind, contract, is_chained
from dagrl.workflow.layers import NodeConfigSpec, given, over, over_model, params_of, sampling_of, val_sampling_of
from dagrl.workflow.outline import Outline, kind
from dagrl.workflow.schema import validate
from dagrl.workflow.sections import ModelSpec, SamplingSpec
from dagrl.workflow.spec import AgentGroupSpec, AgentOptions, NodeSpec, WorkflowSpec
from dagrl.workflow.tree import find

_ALL_GROUPS = (NodeKind.ADVANTAGES, NodeKind.REWARD, NodeKind.COMPUTE, *ASKS_FOR_PLAY)
POLICY_KINDS = (NodeKind.ROLLOUT, NodeKind.OLD_LOGPROBS, NodeKind.REF_LOGPROBS, NodeKind.TRAIN_ACTOR)


def with_defaults(spec: WorkflowSpec) -> WorkflowSpec:
    """The spec with the defaults of `algorithm` that depend on other keys filled in."""
    algorithm = _complete(spec.config.algorithm, spec)
    return spec.model_copy(update={"config": spec.config.model_copy(update={"algorithm": algorithm})})


def _complete(algorithm: AlgorithmSpec, spec: WorkflowSpec) -> AlgorithmSpec:
    estimators = [_own_estimator(node) or algorithm.adv_estimator for node in spec.nodes if _finds_advantages(node)]
    is_chain = all(name in CHAINED_ESTIMATORS for name in estimators or [algorithm.adv_estimator])
    is_credited = any(kind(node) is NodeKind.CREDIT for node in spec.nodes)
    mode = algorithm.reward_mode or ("per_agent" if is_credited else "chained" if is_chain else "team")
    alternates = any(node.agent_options.train_cycle is not None for node in spec.nodes)
    order = algorithm.update_order or ("cycle" if alternates else "simultaneous")
    return algorithm.model_copy(update={"reward_mode": mode, "update_order": order})


def _finds_advantages(node: NodeSpec) -> bool:
    return kind(node) is NodeKind.ADVANTAGES


def _own_estimator(node: NodeSpec) -> str | None:
    """What an ADVANTAGES node says for itself: its function, or the estimator in its config."""
    told = node.config.get("algorithm", {}).get("adv_estimator") if node.executable_ref is None else node.executable_ref
    return told if isinstance(told, str) else None


def node_configs(outline: Outline) -> tuple[dict[str, NodeConfigSpec], list[Finding]]:
    """The `config` of each node, checked. A COMPUTE node's belongs to its function and is not looked at."""
    configs: dict[str, NodeConfigSpec] = {}
    findings: list[Finding] = []
    for node in outline.spec.nodes:
        item = find(outline.tree, ("nodes", node.node_id, "config"))
        if item is None or kind(node) is NodeKind.COMPUTE:
            continue
        config, found, _ = validate(NodeConfigSpec, item, ("nodes", node.node_id, "config"))
        findings += found
        if isinstance(config, NodeConfigSpec):
            configs[node.node_id] = config
    return configs, findings


@dataclass(frozen=True, slots=True)
class Resolver:
    """Everything that resolving one node needs to know of the others."""

    spec: WorkflowSpec
    configs: Mapping[str, NodeConfigSpec]
    owners: Sequence[int | None]

    def nodes(self) -> list[Node]:
        """All nodes in the order of the file."""
        return [self.node(node) for node in self.spec.nodes]

    def node(self, spec: NodeSpec) -> Node:
        config = self.configs.get(spec.node_id, NodeConfigSpec())
        group = self.group_spec(spec.agent_group)
        owner = self.owners[spec.agent_group]
        critic_group = group if owner is None else self.group_spec(owner)
        rollout = over(self.spec.config.rollout, given(config.rollout))
        own = (group.sampling, _told_sampling(config), spec.agent_options.sampling)
        sampling = sampling_of(self.spec.config.rollout, *own)
        val_sampling = val_sampling_of(rollout, sampling, *own)
        node_kind = kind(spec)
        assert node_kind is not None
        algorithm = over(self.spec.config.algorithm, given(config.algorithm))
        if node_kind is NodeKind.ADVANTAGES and spec.executable_ref is not None:
            algorithm = algorithm.model_copy(update={"adv_estimator": spec.executable_ref})
        return Node(
            node_id=spec.node_id,
            kind=node_kind,
            agent_group=spec.agent_group,
            groups=self.groups_of(spec, node_kind, algorithm),
            dependencies=tuple(dict.fromkeys(spec.dependencies)),
            role_name=spec.agent_options.role_name or spec.node_id,
            options=spec.agent_options,
            algorithm=_complete(algorithm, self.spec),
            actor=over(self.spec.config.actor, _as_optim(group), given(config.actor)),
            critic=over(self.spec.config.critic, given(critic_group.critic), given(config.critic)),
            sampling=params_of(sampling),
            val_sampling=params_of(val_sampling),
            sampling_seed=sampling.seed,
            val_sampling_seed=sampling.seed if val_sampling.seed is None else val_sampling.seed,
            executable_ref=spec.executable_ref,
            config=spec.config if node_kind is NodeKind.COMPUTE else {},
        )

    def group_spec(self, group: int) -> AgentGroupSpec:
        return self.spec.agent_groups.get(group, AgentGroupSpec())

    def groups_of(self, spec: NodeSpec, node_kind: NodeKind, algorithm: AlgorithmSpec) -> tuple[int, ...]:
        """The groups whose turns a node works on; those of a shared critic are united later."""
        is_lone = sum(kind(other) is node_kind for other in self.spec.nodes) == 1
        if node_kind not in _ALL_GROUPS or not (is_lone or node_kind is NodeKind.COMPUTE):
            return (spec.agent_group,)
        everyone = tuple(range(len(self.owners)))
        if node_kind is not NodeKind.ADVANTAGES or is_chained(algorithm):
            return everyone
        trained = {node.agent_group for node in self.spec.nodes if getattr(kind(node), "is_train", False)}
        return tuple(sorted(trained)) or everyone

    def group(self, index: int, nodes: Sequence[Node]) -> AgentGroup:
        """One agent; `nodes` are all nodes of the workflow, merged."""
        spec = self.group_spec(index)
        own = [node for node in nodes if node.agent_group == index]
        trainer = next((node for node in own if node.kind is NodeKind.TRAIN_ACTOR), None)
        model = self.model_of(index)
        critic = self.critic_node(index, nodes) if self.owners[index] == index else None
        owns_critic = critic is not None
        return AgentGroup(
            index=index,
            name=str(index) if spec.name is None else spec.name,
            model=model,
            server=spec.server,
            adapter=spec.adapter,
            actor=over(self.spec.config.actor, _as_optim(spec)) if trainer is None else trainer.actor,
            is_trained=trainer is not None,
            needs_reference=_reads_reference(index, nodes, self.owners),
            speaks_as_initial=trainer is not None and _asks_initial(nodes),
            critic_owner=self.owners[index],
            critic=critic.critic if critic is not None else None,
            critic_model=over_model(model, critic.critic.model) if owns_critic and critic is not None else None,
        )

    def critic_node(self, owner: int, nodes: Sequence[Node]) -> Node | None:
        """The node that says what the critic of `owner` is made of: the one that trains it, else one that asks it."""
        for wanted in (NodeKind.TRAIN_CRITIC, NodeKind.VALUES):
            for node in nodes:
                if node.kind is wanted and self.owners[node.agent_group] == owner:
                    return node
        return None

    def model_of(self, group: int) -> ModelSpec:
        """The model of an agent: `config.model`, its group's, then what one of its policy nodes says."""
        own = [node for node in self.spec.nodes if node.agent_group == group and kind(node) in POLICY_KINDS]
        said = [self.configs[node.node_id].model for node in own if node.node_id in self.configs]
        return over_model(self.spec.config.model, self.group_spec(group).model, *said)


def _told_sampling(config: NodeConfigSpec) -> SamplingSpec | None:
    return None if config.rollout is None else config.rollout.sampling


def _as_optim(group: AgentGroupSpec) -> dict[str, object]:
    return {} if group.optim is None else {"optim": given(group.optim)}


def _reads_reference(group: int, nodes: Sequence[Node], owners: Sequence[int | None]) -> bool:
    has_node = any(node.kind is NodeKind.REF_LOGPROBS and node.agent_group == group for node in nodes)
    return has_node and any((Column.REF_LOGPROBS, group) in contract(node, owners).reads for node in nodes)


def _asks_initial(nodes: Sequence[Node]) -> bool:
    credits = [node.options.credit for node in nodes if node.kind is NodeKind.CREDIT]
    return any(credit.instead == "initial" for credit in credits)


def merge_critic_trainers(nodes: Sequence[Node], owners: Sequence[int | None]) -> list[Node]:
    """One TRAIN_CRITIC node per critic: the first in the file, with the groups and dependencies of all its sharers."""
    teams: dict[int, list[Node]] = {}
    for node in nodes:
        owner = owners[node.agent_group]
        if node.kind is NodeKind.TRAIN_CRITIC and owner is not None:
            teams.setdefault(owner, []).append(node)
    merged = {team[0].node_id: _joint(owner, team, nodes) for owner, team in teams.items() if len(team) > 1}
    renamed = {name: node.node_id for node in merged.values() for name in node.merged_ids}
    kept = [merged.get(node.node_id, node) for node in nodes if renamed.get(node.node_id, node.node_id) == node.node_id]
    return [
        replace(node, dependencies=tuple(dict.fromkeys(renamed.get(name, name) for name in node.dependencies)))
        for node in kept
    ]


def _joint(owner: int, team: Sequence[Node], nodes: Sequence[Node]) -> Node:
    """One update for all sharers; what a later one waited for only because it came after an earlier one is dropped."""
    names = {node.node_id for node in team}
    after = _descendants(names, nodes)
    waits = dict.fromkeys(name for node in team for name in node.dependencies if name not in names | after)
    return replace(
        team[0],
        agent_group=owner,
        groups=tuple(sorted({node.agent_group for node in team})),
        dependencies=tuple(waits),
        merged_ids=tuple(node.node_id for node in team),
    )


def _descendants(names: set[str], nodes: Sequence[Node]) -> set[str]:
    found: set[str] = set()
    frontier = set(names)
    while frontier:
        frontier = {node.node_id for node in nodes if frontier & set(node.dependencies)} - found
        found |= frontier
    return found


_READ_REWARDS = (NodeKind.ADVANTAGES, *ASKS_FOR_PLAY)
ENV_REWARDS = "env_rewards"
"""Id of the node that lays the environment's rewards on the stream where a file has no REWARD node."""


def with_env_rewards(nodes: Sequence[Node], spec: WorkflowSpec) -> list[Node]:
    """The nodes, and where the rewards come from the environment alone, a REWARD node that brings them in."""
    if not spec.config.rollout.rewards_with_env or any(node.kind is NodeKind.REWARD for node in nodes):
        return list(nodes)
    play = [node for node in nodes if node.kind.is_play]
    if not play:
        return list(nodes)
    awaited = {name for node in play for name in node.dependencies}
    ends = tuple(node.node_id for node in play if node.node_id not in awaited)
    name = ENV_REWARDS
    while any(node.node_id == name for node in nodes):
        name += "_"
    everyone = tuple(sorted({node.agent_group for node in nodes}))
    bringer = replace(
        play[-1], node_id=name, kind=NodeKind.REWARD, groups=everyone, dependencies=ends, role_name=name,
        options=AgentOptions(), merged_ids=(), executable_ref=None,
    )  # fmt: skip
    position = max(index for index, node in enumerate(nodes) if node.kind.is_play) + 1
    later = [
        replace(node, dependencies=(*node.dependencies, name)) if node.kind in _READ_REWARDS else node
        for node in nodes
    ]
    return [*later[:position], bringer, *later[position:]]
