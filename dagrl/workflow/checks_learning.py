"""Checks of what is learned and from what: estimators, rewards, critics, budgets, options that contradict others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrl.errors import Finding
from dagrl.workflow.algorithm_section import ADV_ESTIMATORS, PAPER_NAMES, POLICY_LOSSES
from dagrl.workflow.facts import Facts
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.held_out import held_out_sets
from dagrl.workflow.kinds import Node, NodeKind, is_chained
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.outline import Outline, kind
from dagrl.workflow.plugins import is_reference
from dagrl.workflow.tree import Path

_NAMED = (("adv_estimator", (*ADV_ESTIMATORS, *PAPER_NAMES)), ("policy_loss", POLICY_LOSSES))


def known_names(outline: Outline) -> list[Finding]:
    """Of `config.algorithm` and of the `config` of every node."""
    whole: dict[str, Any] = {"adv_estimator": outline.spec.config.algorithm.adv_estimator}
    whole["policy_loss"] = outline.spec.config.algorithm.policy_loss
    findings = _unknown_names(outline, whole, ("config", "algorithm"))
    for node in outline.spec.nodes:
        own = node.config.get("algorithm")
        if isinstance(own, dict) and kind(node) is not NodeKind.COMPUTE:
            findings += _unknown_names(outline, own, ("nodes", node.node_id, "config", "algorithm"))
    return findings


def _unknown_names(outline: Outline, said: Mapping[str, Any], section: Path) -> list[Finding]:
    findings = []
    for key, known in _NAMED:
        place: Path = (*section, key)
        word = said.get(key)
        if word in known or not isinstance(word, str) or is_reference(word):
            continue
        hint = f"{did_you_mean(word, known)}; or file.py:function"
        findings.append(outline.fault("E401", f"unknown {key} '{word}'", place, hint=hint))
    return findings


def one_chain(facts: Facts) -> list[Finding]:
    nodes = facts.of_kind(NodeKind.ADVANTAGES)
    if len(nodes) < 2 or not any(is_chained(node.algorithm) for node in nodes):
        return []
    named = ", ".join(node.node_id for node in nodes)
    message = f"gae_marft chains through all agents at once: one ADVANTAGE node serves them all, not {named}"
    return [facts.outline.fault("E406", message, ("nodes", nodes[1].node_id), hint="keep one of them")]


def critics_are_trained(facts: Facts) -> list[Finding]:
    trained = {facts.contracts[node.node_id].trains_model for node in facts.of_kind(NodeKind.TRAIN_CRITIC)}
    asked: dict[str, Node] = {}
    for node in facts.of_kind(NodeKind.VALUES):
        for model in facts.contracts[node.node_id].reads_model:
            asked.setdefault(model, node)
    return [
        facts.outline.fault(
            "W402",
            f"'{node.node_id}' asks a critic that no node trains: its values stay what they were at the start",
            ("nodes", node.node_id),
            hint="add a node MODEL_TRAIN with role CRITIC",
        )
        for model, node in asked.items()
        if model not in trained
    ]


def update_order(facts: Facts) -> list[Finding]:
    order = facts.outline.spec.config.algorithm.update_order
    cycled = [node for node in facts.written if node.options.train_cycle is not None]
    place: Path = ("config", "algorithm", "update_order")
    if order == "cycle" and not cycled:
        hint = "give the nodes that train policies a train_cycle"
        return [facts.outline.fault("E406", "update_order cycle needs train_cycle", place, hint=hint)]
    if order in ("simultaneous", "sequential") and cycled:
        message = f"update_order {order} contradicts the train_cycle of '{cycled[0].node_id}'"
        return [facts.outline.fault("E406", message, place, hint="take one of the two away")]
    return _one_old_policy(facts) if order == "sequential" else []


def _one_old_policy(facts: Facts) -> list[Finding]:
    """`sequential` compares the policies of all agents before and after, by one column of log-probs."""
    actors = facts.of_kind(NodeKind.TRAIN_ACTOR)
    if len({node.actor.old_logprobs for node in actors}) < 2:
        return []
    odd = next(node for node in actors if node.actor.old_logprobs != actors[0].actor.old_logprobs)
    message = f"update_order sequential needs one old_logprobs for all; '{odd.node_id}' has {odd.actor.old_logprobs}"
    place: Path = ("nodes", odd.node_id, "config", "actor", "old_logprobs")
    return [facts.outline.fault("E406", message, place, hint="set config.actor.old_logprobs")]


def budgets(facts: Facts) -> list[Finding]:
    return [*_responses_fit(facts), *_prompts_fit(facts), *_mini_batches_fit(facts)]


def _responses_fit(facts: Facts) -> list[Finding]:
    longest = facts.spec.config.rollout.max_context_len
    return [
        facts.outline.fault(
            "E405",
            f"'{node.node_id}' may answer with {node.sampling.max_tokens} tokens, but the whole conversation has "
            f"room for {longest}",
            ("config", "rollout", "max_context_len"),
            hint="max_tokens must be smaller than rollout.max_context_len",
        )
        for node in facts.of_kind(NodeKind.ROLLOUT)
        if node.sampling.max_tokens >= longest
    ]


def _prompts_fit(facts: Facts) -> list[Finding]:
    longest, prompt = facts.spec.config.rollout.max_context_len, facts.spec.config.data.max_prompt_length
    if prompt is None or prompt < longest:
        return []
    message = f"prompts may have {prompt} tokens, but the whole conversation has room for {longest}"
    place: Path = ("config", "data", "max_prompt_length")
    return [facts.outline.fault("E405", message, place, hint="it must be smaller than rollout.max_context_len")]


def _mini_batches_fit(facts: Facts) -> list[Finding]:
    config = facts.spec.config
    batch = config.data.train_batch_size * config.rollout.n
    findings = []
    for node in facts.of_kind(NodeKind.TRAIN_ACTOR, NodeKind.TRAIN_CRITIC):
        section = "actor" if node.kind is NodeKind.TRAIN_ACTOR else "critic"
        size = (node.actor if section == "actor" else node.critic).ppo_mini_batch_size
        if size is not None and size > batch:
            message = f"'{node.node_id}' wants mini-batches of {size} trajectories; a step has {batch}"
            hint = "data.train_batch_size times rollout.n must be at least ppo_mini_batch_size"
            place: Path = ("config", section, "ppo_mini_batch_size")
            findings.append(facts.outline.fault("E405", message, place, hint=hint))
    return findings


def kl_options_have_effect(facts: Facts) -> list[Finding]:
    actor, algorithm = facts.spec.config.actor, facts.spec.config.algorithm
    uses_loss = any(node.actor.use_kl_loss for node in facts.of_kind(NodeKind.TRAIN_ACTOR))
    findings = []
    if actor.kl_loss_ctrl == "adaptive" and not uses_loss:
        place: Path = ("config", "actor", "kl_loss_ctrl")
        findings.append(facts.outline.fault("W403", "kl_loss_ctrl does nothing: use_kl_loss is false", place))
    if algorithm.kl_ctrl.type == "adaptive" and not algorithm.use_kl_in_reward:
        place = ("config", "algorithm", "kl_ctrl", "type")
        findings.append(facts.outline.fault("W403", "kl_ctrl does nothing: use_kl_in_reward is false", place))
    return findings


def options_have_effect(facts: Facts) -> list[Finding]:
    algorithm, trainer = facts.spec.config.algorithm, facts.spec.config.trainer
    idle = (
        ("algorithm", "action_logprob", algorithm.action_logprob != "sum" and not algorithm.action_level,
         "action_level is false"),
        ("algorithm", "loss_horizon",
         algorithm.loss_horizon is not None and algorithm.loss_agg_mode != "seq-mean-token-sum-norm",
         "it belongs to loss_agg_mode seq-mean-token-sum-norm"),
        ("critic", "head_hidden", _is_said(facts, "head_hidden") and _kinds(facts) == {"model"},
         "it belongs to kind value_head"),
        ("trainer", "critic_warmup", trainer.critic_warmup > 0 and not facts.of_kind(NodeKind.TRAIN_CRITIC),
         "no node trains a critic, so the first steps would train nothing"),
    )  # fmt: skip
    return [
        facts.outline.fault("W403", f"{key} does nothing: {reason}", ("config", section, key), on_key=True)
        for section, key, is_idle, reason in idle
        if is_idle
    ]


def _is_said(facts: Facts, key: str) -> bool:
    return key in facts.spec.config.critic.model_fields_set


def _kinds(facts: Facts) -> set[str]:
    return {group.critic.kind for group in facts.groups if group.critic is not None}


# Only for a run


def needed_to_run(facts: Facts) -> list[Finding]:
    """What a run needs and a workflow may leave open: data and models."""
    config = facts.spec.config
    findings = [found for group in facts.groups for found in _model(facts, group)]
    if not config.data.train_files:
        hint = "for example data.train_files=data/train.parquet"
        findings.append(facts.outline.fault("E407", "no training data", ("config", "data", "train_files"), hint=hint))
    return findings + _evaluations(facts)


def _evaluations(facts: Facts) -> list[Finding]:
    trainer, place = facts.spec.config.trainer, ("config", "data", "val_files")
    asking = {
        "test_freq": trainer.test_freq > 0,
        "min_improvement": trainer.min_improvement is not None,
        "val_without": bool(trainer.val_without),
    }
    if not held_out_sets(facts.spec.config):
        return [
            facts.outline.fault(
                "E407",
                f"trainer.{name} asks for evaluations, but there is no held-out data",
                place,
                hint=f"give data.val_files or trainer.eval, or leave {name} out",
            )
            for name, asks in asking.items()
            if asks
        ]
    if trainer.min_improvement is not None and not trainer.val_before_train:
        message = "min_improvement compares with the held-out accuracy before training; val_before_train is false"
        return [facts.outline.fault("E406", message, ("config", "trainer", "val_before_train"))]
    return []


def _model(facts: Facts, group: AgentGroup) -> list[Finding]:
    has_tokenizer = group.server is not None and group.model.tokenizer is not None
    if group.model.path is not None or group.model.recipe is not None or has_tokenizer:
        return []
    place: Path = ("agent_groups", group.index, "model", "path")
    hint = "for example model.path=Qwen/Qwen2.5-3B-Instruct"
    return [facts.outline.fault("E407", f"no model for agent group {group.index}", place, hint=hint)]
