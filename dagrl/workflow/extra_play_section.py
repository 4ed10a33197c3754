"""What CREDIT and DYNAMIC_SAMPLING nodes are told: the parts of `agent_options` that ask for more play in a step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dagrl.workflow.fields import Count, NonNegative, PositiveInt, Spec

CreditRule = Literal["shared", "difference", "leave_one_out", "siblings", "shapley", "judge"]


class CreditSpec(Spec):
    """Of a CREDIT node. Its players are the rollout nodes whose agent is trained."""

    rule: CreditRule = "shared"
    """shared: everyone gets the team's reward. difference: the team's reward less what it would have been had the
    agent's text been replaced. leave_one_out: less the mean over `samples` rollouts of the prompt that the agent was
    replaced in. siblings: less the mean over `samples` other draws of the agent's turn in the same transcript (C3).
    shapley: its mean contribution over all coalitions, exact up to four players, over `permutations` beyond. judge:
    what the function in `executable_ref` says, or a model whose `url` and `model` stand in `reward_kwargs`."""
    instead: Literal["nothing", "initial", "text"] = "nothing"
    """What difference, leave_one_out and shapley put in place of an agent's text: nothing, what its initial weights
    say, or `text`."""
    text: str | None = None
    """The text that `instead: text` puts there."""
    samples: PositiveInt = 1
    """Rollouts that a leave_one_out or siblings baseline is the mean of; for leave_one_out at most `rollout.n`."""
    permutations: PositiveInt = 8
    """Orders that shapley draws for each sample where there are more than four players."""
    team_share: NonNegative = 0.0
    """Every player also gets so much of the team's reward; CCPO's reward is that with a share of 1 over its weight."""


class DynamicSamplingSpec(Spec):
    """Of a DYNAMIC_SAMPLING node."""

    group_by: tuple[Literal["prompt", "agent", "node", "turn"], ...] | None = None
    """What must differ in reward to be kept; `algorithm.group_by` if not given."""
    max_extra_batches: Count = 4
    """How often a step may ask for more prompts; then it trains on what there is."""
    oversample: Annotated[float, Field(ge=1.0)] = 1.0
    """So many times the prompts that are missing are asked for at once."""
    surplus: Literal["carry", "abort"] = "carry"
    """What becomes of prompts beyond the batch. carry: they are played to their end, and those with signal wait for the
    next step. abort: as soon as the first prompts fill the batch, the play of those after them ends, however far it is,
    and they are dropped."""
