"""Checks of estimators and losses together with what they stand on; combinations known to mislead are warned of."""

from __future__ import annotations

from dagrl.errors import Finding
from dagrl.workflow.algorithm_section import (
    BATCH_LOSSES,
    PLAYING_ESTIMATORS,
    RELATIVE_ESTIMATORS,
    SEQUENCE_LOSSES,
    STREAM_ESTIMATORS,
)
from dagrl.workflow.facts import Facts
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.tree import Path

_ALGORITHM: Path = ("config", "algorithm")
_CLIPS = {"clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c"}


def losses_fit_their_level(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.of_kind(NodeKind.TRAIN_ACTOR):
        algorithm = node.algorithm
        if algorithm.policy_loss == "ppo" or not algorithm.action_level or algorithm.action_logprob == "none":
            continue
        if algorithm.policy_loss in SEQUENCE_LOSSES:
            continue
        message = f"action_logprob {algorithm.action_logprob} has a ratio per response; policy_loss "
        message += f"'{algorithm.policy_loss}' is given one per token"
        place = (*_ALGORITHM, "action_logprob")
        findings.append(facts.outline.fault("E406", message, place, hint="set action_logprob: none"))
    return findings


def sequences_have_one_advantage(facts: Facts) -> list[Finding]:
    """A loss with one ratio per response reads one advantage of it."""
    actors = [node for node in facts.of_kind(NodeKind.TRAIN_ACTOR) if node.algorithm.policy_loss in SEQUENCE_LOSSES]
    by_token = [node for node in estimating(facts, STREAM_ESTIMATORS) if not node.algorithm.action_level]
    if not actors or not by_token:
        return []
    algorithm = by_token[0].algorithm
    message = f"policy_loss {actors[0].algorithm.policy_loss} has one ratio per response, and "
    message += f"{algorithm.adv_estimator} an advantage for each token: all but the last would be lost"
    hint = "set action_level: true, or an adv_estimator that compares responses, such as grpo"
    return [facts.outline.fault("E406", message, (*_ALGORITHM, "policy_loss"), hint=hint)]


def moments_are_to_the_sampler(facts: Facts) -> list[Finding]:
    """M2PO bounds the distance to the policy that sampled, whatever the trainer's kernels say of it."""
    for node in facts.of_kind(NodeKind.TRAIN_ACTOR):
        if node.algorithm.policy_loss in BATCH_LOSSES and node.actor.old_logprobs != "rollout":
            message = f"policy_loss {node.algorithm.policy_loss} has its ratio to the sampler's log-probs, and "
            message += "old_logprobs: recompute gives it the trainer's"
            place = ("config", "actor", "old_logprobs")
            return [facts.outline.fault("E406", message, place, hint="set actor.old_logprobs: rollout")]
    return []


def corrections_have_two_policies(facts: Facts) -> list[Finding]:
    for node in facts.of_kind(NodeKind.TRAIN_ACTOR):
        if node.actor.rollout_correction != "none" and node.actor.old_logprobs == "rollout":
            message = "rollout_correction compares the sampler's log-probs with recomputed ones, and old_logprobs: "
            message += "rollout takes the sampler's for both"
            hint = "set old_logprobs: recompute, with an ACTOR node that has only_forward_compute"
            return [facts.outline.fault("E406", message, ("config", "actor", "rollout_correction"), hint=hint)]
    return []


def groups_have_members(facts: Facts) -> list[Finding]:
    if facts.spec.config.rollout.n > 1:
        return []
    branches = max((node.options.num_parallel for node in facts.of_kind(NodeKind.ROLLOUT)), default=1)
    rounds = facts.spec.config.rollout.max_rounds
    for node in estimating(facts, RELATIVE_ESTIMATORS):
        algorithm = node.algorithm
        by = algorithm.group_by
        many_turns = algorithm.advantage_level == "turn" and rounds > 1 and "turn" not in by
        many_agents = len(node.groups) > 1 and not {"agent", "node"} & set(by)
        if "prompt" not in by or branches > 1 or many_turns or many_agents:
            continue
        message = (
            f"{algorithm.adv_estimator} compares the samples of a prompt, and rollout.n is 1: all advantages are 0"
        )
        place: Path = ("config", "rollout", "n")
        return [facts.outline.fault("E406", message, place, hint="for example rollout.n=8")]
    return []


def greedy_rollouts_differ(facts: Facts) -> list[Finding]:
    """What remax compares with must be another rollout, and rewards that are placed alike."""
    nodes = estimating(facts, PLAYING_ESTIMATORS)
    if not nodes:
        return []
    name, findings = nodes[0].algorithm.adv_estimator, []
    if all(node.sampling.temperature == 0.0 for node in facts.of_kind(NodeKind.ROLLOUT)):
        message = f"{name} compares samples with the greedy rollout, and all agents are sampled with temperature 0: "
        message += "all advantages are 0"
        place: Path = ("config", "rollout", "sampling", "temperature")
        findings.append(facts.outline.fault("E406", message, place, hint="sample with a temperature above 0"))
    for credit in facts.of_kind(NodeKind.CREDIT):
        message = f"{name} compares with the team's reward in a greedy rollout, which '{credit.node_id}' shares out in "
        message += "the samples alone"
        hint = "use grpo or reinforce_plus_plus, or take the CREDIT node away"
        findings.append(facts.outline.fault("E406", message, ("nodes", credit.node_id), hint=hint))
    return findings


def turns_are_compared_as_turns(facts: Facts) -> list[Finding]:
    for node in estimating(facts, RELATIVE_ESTIMATORS):
        if "turn" in node.algorithm.group_by and node.algorithm.advantage_level == "trajectory":
            message = "group_by names turn, and advantage_level trajectory compares whole trajectories"
            place = (*_ALGORITHM, "group_by")
            return [facts.outline.fault("E406", message, place, hint="set advantage_level: turn")]
    return []


def grouping_has_effect(facts: Facts) -> list[Finding]:
    said = facts.spec.config.algorithm.model_fields_set
    uses = {"group_by": RELATIVE_ESTIMATORS, "advantage_level": (*RELATIVE_ESTIMATORS, "spiral")}
    findings = []
    for key, estimators in uses.items():
        if key in said and not estimating(facts, estimators):
            message = f"{key} does nothing: it belongs to {', '.join(estimators)}"
            findings.append(facts.outline.fault("W403", message, (*_ALGORITHM, key), on_key=True))
    return findings


def loss_options_have_effect(facts: Facts) -> list[Finding]:
    losses = {node.algorithm.policy_loss for node in facts.of_kind(NodeKind.TRAIN_ACTOR)}
    findings = []
    if losses and losses <= set(BATCH_LOSSES):
        for key in sorted(facts.spec.config.actor.model_fields_set & _CLIPS):
            message = f"{key} does nothing: m2po leaves tokens out by m2_threshold and clips nothing else"
            findings.append(facts.outline.fault("W403", message, ("config", "actor", key), on_key=True))
    if not losses & set(BATCH_LOSSES):
        for key in sorted(facts.spec.config.algorithm.model_fields_set & {"m2_threshold", "m2_mode"}):
            message = f"{key} does nothing: it belongs to policy_loss m2po"
            findings.append(facts.outline.fault("W403", message, (*_ALGORITHM, key), on_key=True))
    return findings


def estimating(facts: Facts, names: tuple[str, ...]) -> list[Node]:
    """ADVANTAGES nodes with one of these estimators."""
    return [node for node in facts.of_kind(NodeKind.ADVANTAGES) if node.algorithm.adv_estimator in names]
