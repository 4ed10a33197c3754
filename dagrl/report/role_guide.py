"""What the metrics of roles, of verdicts and of conversations' ends mean, and where a healthy run keeps them."""

from __future__ import annotations

from collections.abc import Mapping

from dagrl.report.guide import HEADLINE, TRAJECTORIES, Guide

ROLE_GUIDES: Mapping[str, Guide] = {
    "role/*/spoke": Guide(
        title="Speaks, by role",
        meaning="Share of the conversations in which this rollout node spoke.",
        section=TRAJECTORIES,
        healthy="Steady. Falling to 0: its `when` no longer asks it, or the conversation ends before its turn.",
    ),
    "role/*/turns": Guide(
        title="Turns by role", meaning="Mean turns of the rollout node in a conversation.", section=TRAJECTORIES
    ),
    "role/*/tokens": Guide(
        title="Tokens by role",
        meaning="Mean tokens that the rollout node says in a conversation.",
        section=TRAJECTORIES,
        unit="tokens",
    ),
    "role/*/trained_share": Guide(
        title="Share of trained tokens by role",
        meaning="Of the response tokens that policies were updated on in this step; of the agents that train in it.",
        section=TRAJECTORIES,
        healthy="Under 0.95: with token-mean losses a role with few tokens hardly counts in a shared policy.",
        high=0.95,
    ),
    "role/*/reward_solved": Guide(
        title="Reward by role where solved",
        meaning="Mean reward of a turn of the rollout node in conversations that the team solved.",
        section=HEADLINE,
        healthy="Above that where unsolved: else the role is paid for something else than the team's success.",
    ),
    "role/*/reward_unsolved": Guide(
        title="Reward by role where not solved", meaning="The same in conversations it did not.", section=HEADLINE
    ),
    "role/*/ended_early": Guide(
        title="Ends early, by role",
        meaning="Share of the conversations that ended before max_rounds with a turn of this rollout node.",
        section=TRAJECTORIES,
    ),
    "influence/kl/*": Guide(
        title="Influence of an agent",
        meaning="How much the messages of a rollout node change what the others answer: KL of their answers with them "
        "and without (k3 estimate, mean over the tokens of the turns that read them; trainer.probe_freq).",
        section=HEADLINE,
        healthy="Above 0.001. At 0 for long: the agent is lazy, or nobody reads it; see influence/heard.",
        low=1e-3,
        unit="nats",
    ),
    "influence/heard/*": Guide(
        title="Heard",
        meaning="Share of the others' turns after a rollout node first spoke whose prompt is another without it.",
        section=TRAJECTORIES,
        healthy="Above 0: at 0 nobody reads it.",
        low=1e-9,
    ),
    "influence/failed": Guide(
        title="Probes that failed",
        meaning="Conversations that could not be played without a message, mostly because a hook wants it there.",
        section=TRAJECTORIES,
        healthy="0: what failed is not in the influence.",
        high=0.0,
    ),
    "trajectory/ended_early": Guide(
        title="Ended early",
        meaning="Share of the conversations that somebody ended before max_rounds.",
        section=TRAJECTORIES,
        healthy="Rises with the reward. At 1 from the start: nobody uses the further rounds.",
    ),
    "trajectory/solved": Guide(
        title="Solved", meaning="Share of the conversations with a team's reward of 1 or more.", section=HEADLINE
    ),
    "trajectory/conversation_tokens": Guide(
        title="Tokens of a conversation",
        meaning="Mean response tokens of all agents in one conversation.",
        section=TRAJECTORIES,
        unit="tokens",
    ),
    "trajectory/conversation_tokens_max": Guide(
        title="Longest conversation", meaning="Of the step, in response tokens.", section=TRAJECTORIES, unit="tokens"
    ),
    "*verdict/*/right": Guide(
        title="Verdicts that are right",
        meaning="Share of an agent's verdicts that are what they should be (a reward function's `verdict`).",
        section=HEADLINE,
        healthy="Rises. Near the share of its commonest verdict: it says the same whatever it sees.",
    ),
    "*verdict/*/count": Guide(
        title="Verdicts", meaning="How many verdicts the agent gave.", section=TRAJECTORIES
    ),
    "*verdict/*": Guide(
        title="Verdict, what it should be",
        meaning="Confusion matrix: share of an agent's verdicts by what it said and then by what it should have said.",
        section=TRAJECTORIES,
        healthy="High where both are the same. approve/reject high: it lets errors pass; reject/approve: it sends "
        "right answers back.",
    ),
}  # fmt: skip
"""A part of the table in `metric_guide`."""
