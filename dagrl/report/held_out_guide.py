"""What held-out results mean, and where a healthy run keeps them."""

from __future__ import annotations

from collections.abc import Mapping

from dagrl.report.guide import HEADLINE, OTHER, TRAJECTORIES, Guide

HELD_OUT_GUIDES: Mapping[str, Guide] = {
    "val/accuracy": Guide(
        title="Held-out accuracy",
        meaning="Share of held-out problems that the team solves, mean over the samples of each that have a verdict.",
        section=HEADLINE,
        healthy="Rises. Flat while the training reward rises: learnt by heart, or the reward is fooled.",
    ),
    "val/accuracy_first_round": Guide(
        title="Held-out accuracy, first round",
        meaning="Share solved in the first round, before the environment has said anything.",
        section=HEADLINE,
        healthy="Rises with the accuracy; a wide gap means that the team lives from being told that it was wrong.",
    ),
    "val/reward": Guide(title="Held-out reward", meaning="Mean reward of a held-out trajectory.", section=HEADLINE),
    "val/failed": Guide(
        title="Held-out failures",
        meaning="Held-out trajectories that user code broke; the accuracy leaves them out, failures/ keeps them.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    "val/unknown": Guide(
        title="Held-out, unjudged",
        meaning="Held-out trajectories without a reward (the judge failed or ran out of time); the accuracy leaves "
        "them out.",
        section=TRAJECTORIES,
        healthy="0; look at the judge's time limit.",
        high=0.0,
    ),
    "val/problems": Guide(
        title="Held-out problems",
        meaning="Held-out problems with a verdict on at least one sample: those that the accuracy is over.",
        section=OTHER,
        healthy="All of them.",
    ),
    "val/without/*/accuracy": Guide(
        title="Held-out accuracy without an agent",
        meaning="After the training, the text of one rollout node being left out.",
        section=HEADLINE,
        healthy="Below the team's; equal to it, the team does as well without the agent.",
    ),
    "val/without/*/reward": Guide(
        title="Held-out reward without an agent", meaning="The same in rewards.", section=HEADLINE
    ),
    "val/*round_*/accuracy": Guide(
        title="Held-out accuracy by round",
        meaning="Share solved in this round or an earlier one.",
        section=HEADLINE,
        healthy="Rises from round to round; the same in all: further rounds bring nothing, lower max_rounds.",
    ),
    "val/*agent_*/reward": Guide(
        title="Held-out reward by agent", meaning="Mean reward of one held-out turn of the agent.", section=HEADLINE
    ),
    "val/*agent_*/turns": Guide(
        title="Held-out turns by agent", meaning="Turns of the agent in a held-out conversation.", section=TRAJECTORIES
    ),
    "val/*agent_*/response_tokens": Guide(
        title="Held-out length of responses",
        meaning="Mean tokens that the agent says in a held-out turn.",
        section=TRAJECTORIES,
        unit="tokens",
    ),
    "val/*agent_*/cut": Guide(
        title="Held-out cut responses",
        meaning="Share of the agent's held-out responses that reached max_tokens.",
        section=TRAJECTORIES,
        healthy="Under 0.2: a cut answer is judged on what it did not say.",
        high=0.2,
    ),
    "val/*pass_at_k": Guide(
        title="Held-out pass@k",
        meaning="Chance that one of the set's k samples is right, over the problems with k verdicts.",
        section=HEADLINE,
        healthy="Falling while the accuracy rises: the samples have become alike; raise entropy_coeff.",
    ),
    "val/*maj_at_k": Guide(
        title="Held-out maj@k",
        meaning="Share of problems whose most frequent final answer is right.",
        section=HEADLINE,
    ),
    "val/*/accuracy": Guide(
        title="Held-out accuracy by set",
        meaning="Of one set of trainer.eval; best_set says which is `val/accuracy`.",
        section=HEADLINE,
        healthy="Rises. One falls while the others rise: the team forgets what that set asks for.",
    ),
    "val/*/accuracy_first_round": Guide(
        title="Held-out accuracy by set, first round", meaning="Share solved in the first round.", section=HEADLINE
    ),
    "val/*/problems": Guide(
        title="Held-out problems by set", meaning="Problems of the set with a verdict.", section=OTHER
    ),
    "val/*/failed": Guide(
        title="Held-out failures by set",
        meaning="Held-out trajectories of the set that user code broke.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    "val/*/unknown": Guide(
        title="Held-out, unjudged, by set",
        meaning="Held-out trajectories of the set without a reward.",
        section=TRAJECTORIES,
        healthy="0",
        high=0.0,
    ),
    "val/*/reward": Guide(
        title="Held-out reward by set or data source", meaning="Mean reward on one.", section=HEADLINE
    ),
}  # fmt: skip
"""A part of the table in `metric_guide`."""
