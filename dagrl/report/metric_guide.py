"""What each metric of a run means, and where a healthy run keeps it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from dagrl.report.guide import CRITIC, HEADLINE, LEDGER, OTHER, POLICY, SECTIONS, SPEED, TRAJECTORIES, Guide
from dagrl.report.held_out_guide import HELD_OUT_GUIDES
from dagrl.report.policy_guide import POLICY_GUIDES
from dagrl.report.role_guide import ROLE_GUIDES

_GUIDES: Mapping[str, Guide] = {
    # Reward
    "reward/mean": Guide(
        title="Reward",
        meaning="Mean reward of the trajectories that this step trained on.",
        section=HEADLINE,
        healthy="Rises. Never moving for 20 steps: too hard, a reward that never fires, or a learning rate of nothing.",
    ),
    # Credit
    "credit/extra_rollouts": Guide(
        title="Extra rollouts for credit",
        meaning="Rollouts that the CREDIT node had played in this step; nobody trains on them.",
        section=SPEED,
    ),
    "credit/unknown": Guide(
        title="Without credit",
        meaning="Trajectories left out because a rollout that their credit goes by failed, or the judge did.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    "credit/mean/*": Guide(
        title="Credit of an agent",
        meaning="Mean of what one rollout node brought to the team's reward.",
        section=HEADLINE,
        healthy="Above 0; at 0 for long, the team does as well without the agent.",
    ),
    "credit/size/*": Guide(
        title="Size of an agent's credit",
        meaning="Mean of the credit's absolute value.",
        section=HEADLINE,
        healthy="Above 0: at 0 the agent changes nothing and learns nothing.",
        low=1e-9,
    ),
    "advantage/extra_rollouts": Guide(
        title="Greedy rollouts",
        meaning="One of each prompt, played for remax's baseline; nobody trains on them.",
        section=SPEED,
    ),
    "advantage/greedy_reward": Guide(
        title="Reward of the greedy rollouts",
        meaning="Mean over agents of what they earn in the greedy rollouts that remax compares with.",
        section=HEADLINE,
        healthy="Near the reward of the samples or above it.",
    ),
    "advantage/without_baseline": Guide(
        title="Without a baseline",
        meaning="Trajectories left out because their greedy rollout failed or has no reward.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    # Dynamic sampling
    "sampling/dropped": Guide(
        title="Prompts dropped",
        meaning="Share of the prompts played whose samples all have the same reward: nothing can be learnt from them.",
        section=TRAJECTORIES,
        healthy="Below a half; near 1 the problems are too easy or too hard.",
    ),
    "sampling/kept": Guide(
        title="Prompts kept", meaning="Prompts that this step trained on.", section=TRAJECTORIES
    ),
    "sampling/missing": Guide(
        title="Prompts missing",
        meaning="How many the batch lacked when no more could be asked for.",
        section=TRAJECTORIES,
        healthy="0; else raise max_extra_batches or oversample, or take other problems.",
        high=0.0,
    ),
    "sampling/carried": Guide(
        title="Prompts carried over",
        meaning="Kept beyond the batch; the next step begins with them, one update late.",
        section=TRAJECTORIES,
    ),
    "sampling/extra_batches": Guide(
        title="Extra batches", meaning="How often this step asked for more prompts.", section=SPEED
    ),
    **ROLE_GUIDES,
    **HELD_OUT_GUIDES,
    "reward/std": Guide(
        title="Spread of reward",
        meaning="Standard deviation of the reward over the batch.",
        section=HEADLINE,
        healthy="Above 0: where all rewards are equal there is nothing to learn from.",
        low=1e-6,
    ),
    "reward/unknown": Guide(
        title="Unjudged",
        meaning="Trajectories of this step without a reward (the judge failed or ran out of time); nobody learns from "
        "them.",
        section=TRAJECTORIES,
        healthy="0; look at the judge's time limit.",
        high=0.0,
    ),
    "trajectory/given_up": Guide(
        title="Step given up",
        meaning="1 where rewards, log-probs, values, advantages or returns were NaN or infinite, so that nobody was "
        "trained in this step; absent otherwise. See failures/.",
        section=TRAJECTORIES,
        healthy="Absent",
        high=0.0,
    ),
    "env/retried": Guide(
        title="Played again",
        meaning="Trajectories played once more in a process of their own, because the one they were in died or hung.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    "memory/*/halved": Guide(
        title="Out of memory",
        meaning="How often memory ran out at this model so far; each time its micro-batches were halved.",
        section=OTHER,
        healthy="Absent. Set micro_batch_tokens to what the terminal said, and no step is computed twice.",
        high=0.0,
    ),
    "reward/unplaced": Guide(
        title="Rewards without a place",
        meaning="Rewards that belong to a turn that was not trained on and are lost.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    "reward/parts/*": Guide(
        title="Part of the reward", meaning="One named part of the reward, mean over the batch.", section=HEADLINE
    ),
    "agent_*/reward": Guide(
        title="Reward by agent",
        meaning="Mean reward given to one turn of this agent, before credit is shared out.",
        section=HEADLINE,
    ),
    "reward/min": Guide(title="Lowest reward", meaning="Of the batch.", section=OTHER),
    "reward/max": Guide(title="Highest reward", meaning="Of the batch.", section=OTHER),
    **POLICY_GUIDES,
    # Critic
    "critic_*/explained_variance": Guide(
        title="Explained variance",
        meaning="Share of the returns' variance that the critic foresaw: 1 all, 0 as good as their mean, below worse.",
        section=CRITIC,
        healthy="Rises above 0 within the warm-up. Stays below: critic_warmup longer, larger critic learning rate.",
        low=0.0,
        high=1.0,
    ),
    "critic_*/explained_variance/*": Guide(
        title="Explained variance of a role",
        meaning="The same over the turns of one rollout node, where several share the critic.",
        section=CRITIC,
        healthy="Alike for all. One at 0 or below: the critic does not tell its prompts apart; give it its own.",
        low=0.0,
        high=1.0,
    ),
    "critic_*/rmse": Guide(
        title="Error of the critic",
        meaning="Root of the mean squared difference of value and return.",
        section=CRITIC,
        healthy="Falls, or stays well below the spread of reward.",
    ),
    "critic_*/loss": Guide(title="Value loss", meaning="The critic's loss.", section=OTHER),
    "critic_*/clip_fraction": Guide(
        title="Clipped values", meaning="Share of values held at their bound.", section=OTHER, high=0.3
    ),
    "critic_*/grad_norm": Guide(
        title="Gradient norm of the critic", meaning="Before clipping, mean over the optimizer's steps.", section=CRITIC
    ),
    "agent_*/values/mean": Guide(
        title="Mean value",
        meaning="What the critic expects from here on, mean over the agent's tokens.",
        section=CRITIC,
        healthy="Near the mean return; constant for one agent: its critic has not understood its prompts.",
    ),
    "advantage*/mean": Guide(
        title="Mean advantage", meaning="Before it is normalised within each agent.", section=CRITIC, healthy="Near 0."
    ),
    "advantage*/std": Guide(
        title="Spread of advantage",
        meaning="Standard deviation over the batch's tokens.",
        section=CRITIC,
        healthy="Above 0",
        low=1e-8,
    ),
    "advantage*/returns_mean": Guide(title="Mean return", meaning="Target of the critic.", section=CRITIC),
    "advantage*/kl_in_reward": Guide(
        title="KL in the reward", meaning="KL to the reference that is taken off the reward, per token.", section=POLICY
    ),
    # Conversations
    "trajectory/count": Guide(title="Trajectories", meaning="How many this step trained on.", section=TRAJECTORIES),
    "trajectory/failed": Guide(
        title="Failed trajectories",
        meaning="Trajectories of this step that user code broke; they are left out and kept in failures/.",
        section=TRAJECTORIES,
        healthy="0; one in a hundred is bearable.",
        high=0.0,
    ),
    "trajectory/tokens": Guide(title="Tokens", meaning="Response tokens of the step.", section=TRAJECTORIES),
    "trajectory/rounds": Guide(title="Rounds", meaning="Mean rounds of a trajectory.", section=TRAJECTORIES),
    "trajectory/turns": Guide(title="Turns", meaning="Mean turns of a trajectory, all agents.", section=TRAJECTORIES),
    "trajectory/ended/*": Guide(
        title="How conversations end", meaning="Share of trajectories that ended for this reason.", section=TRAJECTORIES
    ),
    "agent_*/response_tokens": Guide(
        title="Length of responses",
        meaning="Mean tokens that the agent says in a turn.",
        section=TRAJECTORIES,
        healthy="Steady. Growing against the limit: see 'Cut responses'; falling to nothing: the agent falls silent.",
        unit="tokens",
    ),
    "agent_*/prompt_tokens": Guide(
        title="Length of prompts", meaning="Mean tokens that the agent reads.", section=TRAJECTORIES, unit="tokens"
    ),
    "agent_*/cut": Guide(
        title="Cut responses",
        meaning="Share of the agent's responses that reached max_tokens.",
        section=TRAJECTORIES,
        healthy="Under 0.2: a cut answer is judged on what it did not say; raise max_tokens.",
        high=0.2,
    ),
    "agent_*/empty": Guide(
        title="Empty responses",
        meaning="Share of the agent's responses without any text.",
        section=TRAJECTORIES,
        healthy="Near 0; one silent agent lives from the others' work.",
        high=0.05,
    ),
    "agent_*/repeats_self": Guide(
        title="Repeats itself",
        meaning="Share of the agent's runs of four tokens that it has said before in the conversation, in the same "
        "response or an earlier one.",
        section=TRAJECTORIES,
        healthy="Steady. Rising above half: it loops or has settled on one answer; raise temperature or entropy_coeff.",
        high=0.9,
    ),
    "agent_*/repeats_others": Guide(
        title="Repeats the others",
        meaning="Share of the agent's runs of four tokens, in turns after another agent's, that another agent has said "
        "before in the conversation; agents with other tokenizers are not compared.",
        section=TRAJECTORIES,
        healthy="Steady. Rising above half: it copies instead of working; hand on less, or reward each by itself.",
        high=0.9,
    ),
    "agent_*/turns": Guide(title="Turns by agent", meaning="Turns in this step.", section=OTHER),
    "env/*": Guide(
        title="Environment faults",
        meaning="Environments that could not be closed, or worker processes that were replaced.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    # The books
    "ledger/issued": Guide(
        title="Samples", meaning="Training samples played since the run began.", section=LEDGER
    ),
    "ledger/trained": Guide(
        title="Samples trained", meaning="Those that were part of at least one optimizer step.", section=LEDGER
    ),
    "ledger/dropped": Guide(
        title="Samples dropped",
        meaning="Those that never were; issued = trained + dropped + carried over, always.",
        section=LEDGER,
        healthy="A small share of the samples; the reasons stand beside it.",
    ),
    "ledger/dropped/*": Guide(title="Samples dropped, by reason", meaning="By what became of them.", section=LEDGER),
    "ledger/extra": Guide(
        title="Extra rollouts", meaning="Played for credit or a baseline; never trained on.", section=LEDGER
    ),
    "ledger/held_out": Guide(title="Held-out samples", meaning="Played for evaluations.", section=LEDGER),
    "ledger/tokens": Guide(
        title="Tokens so far",
        meaning="Generated by all agents since the run began, held-out problems and failed trajectories included.",
        section=LEDGER,
        unit="tokens",
    ),
    "ledger/prompt_tokens": Guide(
        title="Prompt tokens so far", meaning="Read by all agents before they spoke.", section=LEDGER, unit="tokens"
    ),
    "ledger/trained_tokens": Guide(
        title="Tokens trained so far", meaning="Response tokens that a policy was updated on.", section=LEDGER,
        unit="tokens",
    ),
    "ledger/*": Guide(
        title="Calls so far", meaning="Of environments (reset, step), of reward functions, of hooks.", section=LEDGER
    ),
    # Time
    "perf/seconds_total": Guide(
        title="Seconds so far",
        meaning="Steps, evaluations and checkpoints; a resumed run counts its earlier parts.",
        section=SPEED,
        unit="s",
    ),
    "perf/seconds_per_step": Guide(
        title="Seconds per step", meaning="From the first prompt to the last update.", section=SPEED, unit="s"
    ),
    "perf/seconds/*": Guide(
        title="Seconds by node", meaning="Time of one node in a step; `play` is all that is sampled.", section=SPEED,
        unit="s",
    ),
    "perf/went_on_without": Guide(
        title="Passes without the late",
        meaning="Times that the embedded engine went on although an environment or a hook was still at work: it took "
        "longer than rollout.settle_s.",
        section=SPEED,
        healthy="0: the same seed gives the same run, bit for bit. Above: responses may differ by rounding; raise "
        "rollout.settle_s if that matters.",
        high=0.0,
    ),
    "perf/server/*/retries": Guide(
        title="Server tried again",
        meaning="Tries of the server that speaks for this agent that came to nothing and were made again.",
        section=SPEED,
        healthy="0; look at the server's own log.",
    ),
    "perf/server/*/as_text": Guide(
        title="Server gets text",
        meaning="1 where prompts go to the server as text, 0 where they go as token ids.",
        section=SPEED,
    ),
    "perf/tokens_per_second": Guide(
        title="Tokens per second", meaning="Response tokens over the whole step's time.", section=SPEED, unit="1/s"
    ),
    "*/padding": Guide(
        title="Padding",
        meaning="Share of the computed token places that were padding.",
        section=OTHER,
        healthy="Under 0.5",
        high=0.5,
    ),
}  # fmt: skip
"""Pattern of the metric's name (`*`: any text) → its guide; the first that fits counts."""

_FALLBACK = Guide(title="", meaning="", section=OTHER)


@cache
def guide_of(name: str) -> Guide:
    """The guide of one metric; an empty one, under 'Everything else', where there is none."""
    return next((guide for pattern, guide in _patterns() if pattern.fullmatch(name) is not None), _FALLBACK)


@cache
def _patterns() -> list[tuple[re.Pattern[str], Guide]]:
    return [(re.compile(".*".join(map(re.escape, pattern.split("*")))), guide) for pattern, guide in _GUIDES.items()]


def as_json(name: str) -> dict[str, Any]:
    """The guide of a metric as the page reads it; its title is the metric's name where it has no guide."""
    guide = guide_of(name)
    rank = next((place for place, one in enumerate(_GUIDES.values()) if one is guide), len(_GUIDES))
    return asdict(guide) | {"title": guide.title or name, "known": guide is not _FALLBACK, "rank": rank}


def as_markdown() -> str:
    """All guides as a table for the docs, a row per pattern, in the order of the page."""
    lines = ["| metric | meaning | healthy |", "|---|---|---|"]
    for section in SECTIONS:
        for pattern, guide in _GUIDES.items():
            if guide.section == section:
                lines.append(f"| `{pattern}` | {guide.meaning} | {guide.healthy} |")
    return "\n".join(lines)
