"""The closed set of node kinds, and what each kind reads, writes and trains. Nobody else looks at type and role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from dagrl.types import SamplingParams
from dagrl.workflow.algorithm_section import (
    ADV_ESTIMATORS,
    CHAINED_ESTIMATORS,
    ESTIMATORS_WITH_CRITIC,
    PLAYING_ESTIMATORS,
    ROW_ESTIMATORS,
    WHITENED_ESTIMATORS,
    AlgorithmSpec,
)
from dagrl.workflow.sections import ActorSpec, CriticSpec
from dagrl.workflow.spec import AgentOptions, NodeRole, NodeType


class NodeKind(StrEnum):
    ROLLOUT = "ROLLOUT"
    ENV = "ENV"
    REWARD = "REWARD"
    CREDIT = "CREDIT"
    DYNAMIC_SAMPLING = "DYNAMIC_SAMPLING"
    OLD_LOGPROBS = "OLD_LOGPROBS"
    REF_LOGPROBS = "REF_LOGPROBS"
    VALUES = "VALUES"
    ADVANTAGES = "ADVANTAGES"
    TRAIN_CRITIC = "TRAIN_CRITIC"
    TRAIN_ACTOR = "TRAIN_ACTOR"
    COMPUTE = "COMPUTE"

    @property
    def is_play(self) -> bool:
        """True for kinds of the play graph, false for kinds of the learn graph."""
        return self in (NodeKind.ROLLOUT, NodeKind.ENV)

    @property
    def is_train(self) -> bool:
        return self in (NodeKind.TRAIN_ACTOR, NodeKind.TRAIN_CRITIC)


class Column(StrEnum):
    """Flat float32 columns over the response tokens of a step."""

    ROLLOUT_LOGPROBS = "rollout_logprobs"
    OLD_LOGPROBS = "old_logprobs"
    REF_LOGPROBS = "ref_logprobs"
    VALUES = "values"
    REWARDS = "rewards"
    ADVANTAGES = "advantages"
    RETURNS = "returns"
    NEW_LOGPROBS = "new_logprobs"
    """After this step's update; only where agents are updated one after another."""


WRITER_OF: dict[Column, NodeKind] = {
    Column.ROLLOUT_LOGPROBS: NodeKind.ROLLOUT,
    Column.OLD_LOGPROBS: NodeKind.OLD_LOGPROBS,
    Column.REF_LOGPROBS: NodeKind.REF_LOGPROBS,
    Column.VALUES: NodeKind.VALUES,
    Column.REWARDS: NodeKind.REWARD,
    Column.ADVANTAGES: NodeKind.ADVANTAGES,
    Column.RETURNS: NodeKind.ADVANTAGES,
    Column.NEW_LOGPROBS: NodeKind.TRAIN_ACTOR,
}
"""Which kind writes each column; for the message when it is missing."""

DEFAULT_ROLES: dict[NodeType, NodeRole] = {
    NodeType.MODEL_INFERENCE: NodeRole.ROLLOUT,
    NodeType.MODEL_TRAIN: NodeRole.ACTOR,
    NodeType.ENV: NodeRole.ENV,
    NodeType.REWARD: NodeRole.REWARD,
    NodeType.COMPUTE: NodeRole.DEFAULT,
}

_KINDS: dict[tuple[NodeType, NodeRole, bool], NodeKind] = {
    (NodeType.MODEL_INFERENCE, NodeRole.ROLLOUT, False): NodeKind.ROLLOUT,
    (NodeType.ENV, NodeRole.ENV, False): NodeKind.ENV,
    (NodeType.REWARD, NodeRole.REWARD, False): NodeKind.REWARD,
    (NodeType.COMPUTE, NodeRole.REWARD, False): NodeKind.REWARD,
    (NodeType.COMPUTE, NodeRole.CREDIT, False): NodeKind.CREDIT,
    (NodeType.COMPUTE, NodeRole.DYNAMIC_SAMPLING, False): NodeKind.DYNAMIC_SAMPLING,
    (NodeType.COMPUTE, NodeRole.ADVANTAGE, False): NodeKind.ADVANTAGES,
    (NodeType.COMPUTE, NodeRole.DEFAULT, False): NodeKind.COMPUTE,
    (NodeType.MODEL_TRAIN, NodeRole.ACTOR, True): NodeKind.OLD_LOGPROBS,
    (NodeType.MODEL_TRAIN, NodeRole.ACTOR, False): NodeKind.TRAIN_ACTOR,
    (NodeType.MODEL_TRAIN, NodeRole.REFERENCE, False): NodeKind.REF_LOGPROBS,
    (NodeType.MODEL_TRAIN, NodeRole.REFERENCE, True): NodeKind.REF_LOGPROBS,
    (NodeType.MODEL_TRAIN, NodeRole.CRITIC, True): NodeKind.VALUES,
    (NodeType.MODEL_TRAIN, NodeRole.CRITIC, False): NodeKind.TRAIN_CRITIC,
}

ASKS_FOR_PLAY = (NodeKind.CREDIT, NodeKind.DYNAMIC_SAMPLING)
"""Kinds that may have the team play in the middle of a step; they change rewards, or trajectories, in place."""


def kind_of(node_type: NodeType, node_role: NodeRole, only_forward_compute: bool) -> NodeKind | None:
    """The kind of a node, or None where the three do not go together."""
    return _KINDS.get((node_type, node_role, only_forward_compute))


def roles_of(node_type: NodeType) -> tuple[NodeRole, ...]:
    """The roles that go with a type, for messages."""
    return tuple(dict.fromkeys(role for kind_type, role, _ in _KINDS if kind_type is node_type))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a checked workflow, with everything that was said about it resolved."""

    node_id: str
    kind: NodeKind
    agent_group: int
    groups: tuple[int, ...]
    """Groups whose turns it works on: its own; all for a lone ADVANTAGES, REWARD or COMPUTE node; the sharers of the
    critic for a TRAIN_CRITIC node."""
    dependencies: tuple[str, ...]
    role_name: str
    """Shown in metrics and reports."""
    options: AgentOptions
    algorithm: AlgorithmSpec
    actor: ActorSpec
    critic: CriticSpec
    sampling: SamplingParams
    """Of a ROLLOUT node."""
    val_sampling: SamplingParams
    sampling_seed: int | None = None
    """Replaces the run's seed for the draws of this node."""
    val_sampling_seed: int | None = None
    """The same on held-out problems."""
    executable_ref: str | None = None
    merged_ids: tuple[str, ...] = ()
    """Of a TRAIN_CRITIC node that makes one joint update for several: the ids of all of them, its own first."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of a COMPUTE node: handed to its function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a node reads, writes and trains. Columns are per agent group."""

    reads: frozenset[tuple[Column, int]] = field(default_factory=frozenset)
    writes: frozenset[tuple[Column, int]] = field(default_factory=frozenset)
    reads_model: frozenset[str] = field(default_factory=frozenset)
    """Models whose current weights it uses, such as `policy_0` or `critic_1` (by owner)."""
    trains_model: str | None = None


def contract(node: Node, critic_owner_of: Sequence[int | None]) -> Contract:
    """The contract of a learn node; play nodes write `rollout_logprobs` and nothing else.

    `critic_owner_of[g]` is the group whose critic group g uses, None where it has none.
    """
    every = node.groups
    if node.kind is NodeKind.ROLLOUT:
        return Contract(writes=_columns((Column.ROLLOUT_LOGPROBS,), every))
    if node.kind is NodeKind.REWARD:
        return Contract(writes=_columns((Column.REWARDS,), every))
    if node.kind is NodeKind.OLD_LOGPROBS:
        return Contract(writes=_columns((Column.OLD_LOGPROBS,), every), reads_model=_policy(node))
    if node.kind is NodeKind.REF_LOGPROBS:
        return Contract(writes=_columns((Column.REF_LOGPROBS,), every))
    if node.kind is NodeKind.VALUES:
        return Contract(writes=_columns((Column.VALUES,), every), reads_model=_critic(node, critic_owner_of))
    if node.kind in ASKS_FOR_PLAY:
        return Contract(reads=_columns((Column.REWARDS,), every), reads_model=_policies(len(critic_owner_of)))
    if node.kind is NodeKind.ADVANTAGES:
        return Contract(
            reads=_columns(_advantage_reads(node), every) | _values_of_own_estimator(node, critic_owner_of),
            writes=_columns((Column.ADVANTAGES, Column.RETURNS), every),
            reads_model=_policies(len(critic_owner_of)) if asks_for_play(node) else frozenset(),
        )
    if node.kind is NodeKind.TRAIN_CRITIC:
        owner = critic_owner_of[node.agent_group]
        return Contract(
            reads=_columns((Column.VALUES, Column.RETURNS), every),
            trains_model=f"critic_{node.agent_group if owner is None else owner}",
        )
    if node.kind is NodeKind.TRAIN_ACTOR:
        return Contract(reads=_columns(_actor_reads(node), every), trains_model=f"policy_{node.agent_group}")
    return Contract()


def _advantage_reads(node: Node) -> tuple[Column, ...]:
    reads = [Column.REWARDS]
    if node.algorithm.adv_estimator in ESTIMATORS_WITH_CRITIC:
        reads.append(Column.VALUES)
    if node.algorithm.use_kl_in_reward:
        reads += [old_logprobs_column(node.actor), Column.REF_LOGPROBS]
    return tuple(reads)


def _values_of_own_estimator(node: Node, critic_owner_of: Sequence[int | None]) -> frozenset[tuple[Column, int]]:
    """An estimator of the user's gets the values of every agent that has a critic."""
    if node.algorithm.adv_estimator in ADV_ESTIMATORS:
        return frozenset()
    return _columns((Column.VALUES,), tuple(group for group in node.groups if critic_owner_of[group] is not None))


def _actor_reads(node: Node) -> tuple[Column, ...]:
    reads = [Column.ADVANTAGES, old_logprobs_column(node.actor)]
    if node.actor.use_kl_loss:
        reads.append(Column.REF_LOGPROBS)
    return tuple(reads)


def old_logprobs_column(actor: ActorSpec) -> Column:
    """The column that holds the log-probs before the update."""
    return Column.ROLLOUT_LOGPROBS if actor.old_logprobs == "rollout" else Column.OLD_LOGPROBS


def asks_for_play(node: Node) -> bool:
    """Whether a learn node may have the team play in the middle of a step."""
    return node.kind in ASKS_FOR_PLAY or (
        node.kind is NodeKind.ADVANTAGES and node.algorithm.adv_estimator in PLAYING_ESTIMATORS
    )


def shares_policy(nodes: Sequence[Node], trainer: Node) -> bool:
    """Whether the policy that a TRAIN_ACTOR node trains speaks for several of the rollout nodes among `nodes`."""
    spoken = [node for node in nodes if node.kind is NodeKind.ROLLOUT and node.agent_group == trainer.agent_group]
    return len(spoken) > 1


def is_chained(algorithm: AlgorithmSpec) -> bool:
    """True if the estimator carries credit from agent to agent through the whole trajectory."""
    return algorithm.adv_estimator in CHAINED_ESTIMATORS


def reward_mode_of(algorithm: AlgorithmSpec) -> Literal["chained", "team", "per_agent"]:
    """`algorithm.reward_mode`, or its default: `chained` for estimators that chain, `team` for the others."""
    if algorithm.reward_mode is not None:
        return algorithm.reward_mode
    return "chained" if is_chained(algorithm) else "team"


def norm_adv_of(algorithm: AlgorithmSpec) -> Literal["none", "batch", "agent"]:
    """`algorithm.norm_adv`, or its default by the estimator."""
    if algorithm.norm_adv is not None:
        return algorithm.norm_adv
    is_raw = algorithm.adv_estimator in ADV_ESTIMATORS and algorithm.adv_estimator not in WHITENED_ESTIMATORS
    return "none" if is_raw else "batch"


RewardPlacement = Literal["chained", "team", "team_by_speaker", "per_agent", "per_agent_chained", "by_credit"]
"""`reward_mode`; `team` with estimators that compare rows, of which an agent has one for each of its nodes and
branches; `per_agent` with an estimator that chains, where a team's number must be given only once; and where a CREDIT
node gives out what REWARD found."""


def reward_placement(nodes: Sequence[Node], algorithm: AlgorithmSpec) -> RewardPlacement:
    """Who gets what; `nodes` are all nodes of the workflow."""
    if any(node.kind is NodeKind.CREDIT for node in nodes):
        return "by_credit"
    mode = reward_mode_of(algorithm)
    estimating = [node.algorithm for node in nodes if node.kind is NodeKind.ADVANTAGES]
    if mode == "per_agent" and any(map(is_chained, estimating)):
        return "per_agent_chained"
    if mode == "team" and all(one.adv_estimator in ROW_ESTIMATORS for one in estimating or [algorithm]):
        return "team_by_speaker"
    return mode


def _columns(columns: tuple[Column, ...], groups: tuple[int, ...]) -> frozenset[tuple[Column, int]]:
    return frozenset((column, group) for column in columns for group in groups)


def _policy(node: Node) -> frozenset[str]:
    return frozenset({f"policy_{node.agent_group}"})


def _policies(num_groups: int) -> frozenset[str]:
    return frozenset(f"policy_{group}" for group in range(num_groups))


def _critic(node: Node, critic_owner_of: Sequence[int | None]) -> frozenset[str]:
    owner = critic_owner_of[node.agent_group]
    return frozenset({f"critic_{node.agent_group if owner is None else owner}"})
