"""Learn nodes by kind, and how each is built: given only the collaborators it works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dagrl.algorithms import (
    ESTIMATORS,
    RELATIVE_ESTIMATORS,
    AdaptiveKL,
    FixedKL,
    KLController,
)
from dagrl.backends.base import Models
from dagrl.nodes.advantages import Advantages, AdvantagesNode
from dagrl.nodes.base import AnyLearnNode
from dagrl.nodes.compute import ComputeNode
from dagrl.nodes.credit import CreditNode
from dagrl.nodes.credit_judges import Judged, ModelJudged
from dagrl.nodes.credit_rules import Rule, rule_of
from dagrl.nodes.dynamic_sampling import DynamicSamplingNode
from dagrl.nodes.greedy_advantages import GreedyAdvantagesNode
from dagrl.nodes.logprobs import LogprobsNode
from dagrl.nodes.model_judge import ModelJudge, server_of
from dagrl.nodes.objectives import PolicyObjective, objective_of
from dagrl.nodes.own_functions import own_estimator, own_policy_loss
from dagrl.nodes.reward import RewardNode
from dagrl.nodes.row_advantages import AgainstGroup, AgainstRole, RowAdvantages
from dagrl.nodes.stream_advantages import StreamAdvantages
from dagrl.nodes.train_actor import TrainActorNode
from dagrl.nodes.train_critic import TrainCriticNode
from dagrl.nodes.usage import Usage
from dagrl.nodes.values import ValuesNode
from dagrl.rewards.judge import Rubric
from dagrl.rewards.runner import call_own_reward
from dagrl.workflow import plugins
from dagrl.workflow.algorithm_section import PLAYING_ESTIMATORS, POLICY_LOSSES
from dagrl.workflow.graph import Workflow, players_of
from dagrl.workflow.kinds import Column, Node, NodeKind, RewardPlacement, reward_placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What learn nodes are built from."""

    workflow: Workflow
    models: Models
    usage: Usage

    @property
    def seed(self) -> int:
        return self.workflow.spec.config.trainer.seed

    @property
    def base(self) -> Path:
        """The folder that plugins are found from."""
        return self.workflow.path.parent


def build_learn_nodes(workflow: Workflow, models: Models, usage: Usage | None = None) -> dict[str, AnyLearnNode]:
    """Every learn node of the workflow that ever runs by its id, in the order they run; they count into `usage`."""
    parts = Parts(workflow=workflow, models=models, usage=Usage() if usage is None else usage)
    return {node.node_id: NODES[node.kind](node, parts) for node in workflow.learn if not _is_idle(node, workflow)}


def _is_idle(node: Node, workflow: Workflow) -> bool:
    """True for reference log-probs that nothing uses: their model is not loaded."""
    return node.kind is NodeKind.REF_LOGPROBS and not workflow.groups[node.agent_group].needs_reference


def _reward(node: Node, parts: Parts) -> AnyLearnNode:
    return RewardNode.of(node, parts.workflow, parts.models, parts.usage)


def _dynamic_sampling(node: Node, parts: Parts) -> AnyLearnNode:
    config = parts.workflow.spec.config
    return DynamicSamplingNode(
        node,
        batch_size=config.data.train_batch_size,
        use_all_traj=config.rollout.use_all_traj,
        placement=reward_placement(parts.workflow.nodes, node.algorithm),
    )


def _credit(node: Node, parts: Parts) -> AnyLearnNode:
    workflow = parts.workflow
    speakers = [one.node_id for one in workflow.play if one.kind is NodeKind.ROLLOUT]
    has_env = any(one.options.env_path for one in workflow.play)
    players = players_of(workflow)
    rule = rule_of(node.options.credit, players, parts.seed)
    return CreditNode(
        node,
        _judged(node, parts) if rule is None else rule,
        players=players,
        is_mute=lambda one: not has_env and set(one.variation.silent).issuperset(speakers),
        max_failed_fraction=workflow.spec.config.rollout.max_failed_fraction,
    )


def _judged(node: Node, parts: Parts) -> Rule:
    if node.executable_ref is None:
        rubrics = {player: Rubric(**node.options.reward_kwargs, node=player) for player in players_of(parts.workflow)}
        judges = {name: ModelJudge(one, parts.models.chat(server_of(one))) for name, one in rubrics.items()}
        return ModelJudged(judges, parts.usage)
    own, limit = plugins.load(node.executable_ref, parts.base), parts.workflow.spec.config.rollout.reward_timeout_s
    judge = partial(call_own_reward, own, kwargs=node.options.reward_kwargs, timeout_s=limit)
    return Judged(judge, node.executable_ref, parts.usage)


def _old_logprobs(node: Node, parts: Parts) -> AnyLearnNode:
    return LogprobsNode(node, parts.models.policy(node.agent_group), Column.OLD_LOGPROBS)


def _ref_logprobs(node: Node, parts: Parts) -> AnyLearnNode:
    return LogprobsNode(node, parts.models.reference(node.agent_group), Column.REF_LOGPROBS)


def _values(node: Node, parts: Parts) -> AnyLearnNode:
    return ValuesNode(node, parts.models.critic(node.agent_group))


def _advantages(node: Node, parts: Parts) -> AnyLearnNode:
    control = node.algorithm.kl_ctrl
    controller = _controller(control.type, control.kl_coef, control.target_kl, control.horizon)
    if node.algorithm.adv_estimator in PLAYING_ESTIMATORS:
        return GreedyAdvantagesNode(node, controller)
    return AdvantagesNode(node, _estimator(node, parts), controller)


def _estimator(node: Node, parts: Parts) -> Advantages:
    name = node.algorithm.adv_estimator
    stages = parts.workflow.stages
    built_in = built_in_estimator(node, stages, reward_placement(parts.workflow.nodes, node.algorithm))
    if built_in is not None:
        return built_in
    return StreamAdvantages(node, own_estimator(plugins.load(name, parts.base), name), stages)


def built_in_estimator(
    node: Node, stages: Mapping[str, int], placement: RewardPlacement = "per_agent"
) -> Advantages | None:
    """The estimator of an ADVANTAGES node as it is at the first step; None for one of the user's own and one
    that has rollouts played. `stages` as `Workflow` has them, `placement`: where rewards stand."""
    name = node.algorithm.adv_estimator
    if name in RELATIVE_ESTIMATORS:
        return RowAdvantages(node, AgainstGroup(RELATIVE_ESTIMATORS[name]))
    if name == "spiral":
        return RowAdvantages(node, AgainstRole())
    return StreamAdvantages(node, ESTIMATORS[name].fn, stages, placement) if name in ESTIMATORS else None


def _train_critic(node: Node, parts: Parts) -> AnyLearnNode:
    return TrainCriticNode(node, parts.models.critic(node.agent_group), parts.seed)


def _train_actor(node: Node, parts: Parts) -> AnyLearnNode:
    horizon = node.algorithm.loss_horizon
    actor = node.actor
    return TrainActorNode(
        node,
        parts.models.policy(node.agent_group),
        policy_loss=_policy_loss(node, parts),
        kl_controller=_controller(actor.kl_loss_ctrl, actor.kl_loss_coef, actor.kl_loss_target, actor.kl_loss_horizon),
        loss_horizon=node.sampling.max_tokens if horizon is None else horizon,
        seed=parts.seed,
        role_gradients_freq=parts.workflow.spec.config.trainer.role_gradients_freq,
    )


def _policy_loss(node: Node, parts: Parts) -> PolicyObjective:
    name = node.algorithm.policy_loss
    is_built_in = name in POLICY_LOSSES
    return objective_of(node.algorithm, None if is_built_in else own_policy_loss(plugins.load(name, parts.base), name))


def _compute(node: Node, parts: Parts) -> AnyLearnNode:
    assert node.executable_ref is not None, f"COMPUTE node '{node.node_id}' has no executable_ref"
    config: Mapping[str, Any] = {**parts.workflow.resolved.get("config", {}), **node.config}
    return ComputeNode(node, plugins.load(node.executable_ref, parts.base), config)


def _controller(kind: str, coef: float, target: float, horizon: float) -> KLController:
    return AdaptiveKL(coef, target=target, horizon=horizon) if kind == "adaptive" else FixedKL(coef)


NODES: Mapping[NodeKind, Callable[[Node, Parts], AnyLearnNode]] = {
    NodeKind.REWARD: _reward,
    NodeKind.DYNAMIC_SAMPLING: _dynamic_sampling,
    NodeKind.CREDIT: _credit,
    NodeKind.OLD_LOGPROBS: _old_logprobs,
    NodeKind.REF_LOGPROBS: _ref_logprobs,
    NodeKind.VALUES: _values,
    NodeKind.ADVANTAGES: _advantages,
    NodeKind.TRAIN_CRITIC: _train_critic,
    NodeKind.TRAIN_ACTOR: _train_actor,
    NodeKind.COMPUTE: _compute,
}
