"""Combinations that run and are known to learn something else than they seem to: each is warned of, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dagrl.errors import Finding
from dagrl.workflow.algorithm_section import RELATIVE_ESTIMATORS, SEQUENCE_LOSSES, STREAM_ESTIMATORS
from dagrl.workflow.checks_estimators import estimating
from dagrl.workflow.facts import Facts
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.tree import Path

Trap = tuple[Path, str, str]
"""Where, what is wrong with it, and what to do."""

_ALGORITHM: Path = ("config", "algorithm")
_WIDE_FOR_RESPONSES = 0.05
"""A clip range from here on never clips the mean ratio of a response; GSPO's paper has 3e-4 and 4e-4."""
_SHORT_HORIZON = 0.5
"""A reward that is worth less than this at the first token of the longest response is probably no intention."""
_PUNISHING = ("overlong", "repetition")
"""Built-in rewards below 0."""


def known_traps(facts: Facts) -> list[Finding]:
    told = dict.fromkeys(trap for look in _TRAPS for trap in look(facts))
    return [facts.outline.fault("W405", message, place, hint=hint) for place, message, hint in told]


def _clips_of_responses(facts: Facts) -> Iterator[Trap]:
    for node in facts.of_kind(NodeKind.TRAIN_ACTOR):
        algorithm, actor = node.algorithm, node.actor
        high = actor.clip_ratio if actor.clip_ratio_high is None else actor.clip_ratio_high
        by_mean = algorithm.action_level and algorithm.action_logprob == "mean"
        if (algorithm.policy_loss in SEQUENCE_LOSSES or by_mean) and high >= _WIDE_FOR_RESPONSES:
            name = "action_logprob mean" if by_mean else algorithm.policy_loss
            message = f"{name} clips the mean ratio of a response, which hardly ever moves by {high:g}"
            hint = "for example actor.clip_ratio_low=3e-4 actor.clip_ratio_high=4e-4"
            yield (*_ALGORITHM, "action_logprob" if by_mean else "policy_loss"), message, hint


def _discounted_tokens(facts: Facts) -> Iterator[Trap]:
    longest = max((one.sampling.max_tokens for one in facts.of_kind(NodeKind.ROLLOUT)), default=1)
    for node in estimating(facts, STREAM_ESTIMATORS):
        gamma = node.algorithm.gamma_token
        if not node.algorithm.action_level and gamma**longest < _SHORT_HORIZON:
            message = f"gamma_token {gamma:g} leaves {gamma**longest:.1%} of a reward {longest} tokens before it"
            hint = "use 1.0 unless short answers are what you want; gamma discounts by round"
            yield (*_ALGORITHM, "gamma_token"), message, hint


def _turns_that_may_be_the_last(facts: Facts) -> Iterator[Trap]:
    if facts.spec.config.rollout.max_rounds == 1:
        return
    for node in estimating(facts, RELATIVE_ESTIMATORS):
        if "turn" in node.algorithm.group_by and node.algorithm.gamma == 0.0:
            message = "a turn compared by its own reward with the same turn of other samples says nothing about "
            message += "whether to go on: where agents end the conversation, that choice is never learned"
            yield (*_ALGORITHM, "group_by"), message, "leave gamma at 1, so that a turn earns what follows it"


def _samples_without_difference(facts: Facts) -> Iterator[Trap]:
    nodes = estimating(facts, RELATIVE_ESTIMATORS)
    if nodes and all(node.sampling.temperature == 0.0 for node in facts.of_kind(NodeKind.ROLLOUT)):
        name = nodes[0].algorithm.adv_estimator
        message = f"{name} compares the samples of a prompt, and temperature 0 makes them alike"
        place = ("config", "rollout", "sampling", "temperature")
        yield place, message, "sample with a temperature above 0, unless an environment draws lots"


def _kl_twice(facts: Facts) -> Iterator[Trap]:
    in_reward = any(node.algorithm.use_kl_in_reward for node in facts.of_kind(NodeKind.ADVANTAGES))
    in_loss = [node for node in facts.of_kind(NodeKind.TRAIN_ACTOR) if node.actor.use_kl_loss]
    if in_reward and in_loss:
        message = "the KL to the reference is taken off the reward and added to the loss: it counts twice"
        yield (*_ALGORITHM, "use_kl_in_reward"), message, "keep one of use_kl_in_reward and use_kl_loss"
    if any(node.actor.kl_loss_type == "k1" for node in in_loss):
        message = "the gradient of k1 is 0 on average: as a loss it holds the policy nowhere"
        yield ("config", "actor", "kl_loss_type"), message, "use k3, or k1 in the reward (use_kl_in_reward)"


def _lengths_divided_again(facts: Facts) -> Iterator[Trap]:
    actors = facts.of_kind(NodeKind.TRAIN_ACTOR)
    if estimating(facts, ("dr_grpo",)) and any(n.algorithm.loss_agg_mode == "seq-mean-token-mean" for n in actors):
        message = "dr_grpo does not divide by a response's length, and loss_agg_mode seq-mean-token-mean does"
        hint = "use seq-mean-token-sum-norm, as its paper does, or token-mean"
        yield (*_ALGORITHM, "loss_agg_mode"), message, hint


def _rewards_below_zero(facts: Facts) -> Iterator[Trap]:
    if not estimating(facts, ("maxrl",)):
        return
    for node, index, name in _parts(facts, below_zero=True):
        message = f"maxrl divides by the mean reward and is for rewards from 0 up; {name} pulls it below"
        yield ("nodes", node.node_id, "agent_options", "rewards", index), message, "use grpo or dr_grpo with it"


def _overlong_beyond_reach(facts: Facts) -> Iterator[Trap]:
    longest = max((one.sampling.max_tokens for one in facts.of_kind(NodeKind.ROLLOUT)), default=0)
    for node, index, name in _parts(facts, below_zero=False):
        kwargs = node.options.rewards[index].kwargs
        limit, buffer = kwargs.get("max_tokens"), kwargs.get("buffer_tokens")
        if name == "overlong" and isinstance(limit, int) and isinstance(buffer, int) and limit - buffer >= longest:
            message = f"overlong punishes from {limit - buffer} tokens on, and no response may have more than {longest}"
            place: Path = ("nodes", node.node_id, "agent_options", "rewards", index)
            yield place, message, "give it the max_tokens of rollout.sampling"


def _parts(facts: Facts, *, below_zero: bool) -> Iterator[tuple[Node, int, str]]:
    for node in facts.of_kind(NodeKind.REWARD):
        for index, part in enumerate(node.options.rewards):
            if not below_zero or part.weight < 0 or part.fn in _PUNISHING:
                yield node, index, part.fn


def _one_critic_for_unlike_prompts(facts: Facts) -> Iterator[Trap]:
    """A critic reads what stands in an agent's prompt; the hooks of another file write other prompts."""
    for node in facts.of_kind(NodeKind.TRAIN_CRITIC):
        speakers = [one for one in facts.of_kind(NodeKind.ROLLOUT) if one.agent_group in node.groups]
        hooks = {one.options.process_path: one.node_id for one in speakers}
        if len(hooks) > 1:
            named = " and ".join(sorted(hooks.values())[:2])
            message = f"one critic values the prompts of {named}, whose hooks are of different files"
            place: Path = ("nodes", node.node_id, "agent_options", "share_instance")
            yield place, message, "give both the same form of prompt, or each agent a critic (no share_instance)"


_TRAPS: tuple[Callable[[Facts], Iterator[Trap]], ...] = (
    _clips_of_responses,
    _discounted_tokens,
    _turns_that_may_be_the_last,
    _samples_without_difference,
    _kl_twice,
    _lengths_divided_again,
    _rewards_below_zero,
    _overlong_beyond_reach,
    _one_critic_for_unlike_prompts,
)
