"""The section `config.algorithm`, and the names that it knows: how rewards become advantages and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dagrl.workflow.fields import Fraction, NonNegative, Positive, PositiveInt, Spec

STREAM_ESTIMATORS = ("gae_marft", "gae", "reinforce_plus_plus")
"""Names of `algorithms.ESTIMATORS`, known here so that a file is checked without torch."""
RELATIVE_ESTIMATORS = ("grpo", "dr_grpo", "rloo", "reinforce_plus_plus_baseline", "opo", "maxrl", "cpgd")
"""Names of `algorithms.RELATIVE_ESTIMATORS`: a score beside the scores of its group."""
PLAYING_ESTIMATORS = ("remax",)
"""Those that have extra rollouts played."""
ROW_ESTIMATORS = (*RELATIVE_ESTIMATORS, "spiral", *PLAYING_ESTIMATORS)
"""Those that compare rows: what one node and branch said in a trajectory, or in one turn of it."""
ADV_ESTIMATORS = (*STREAM_ESTIMATORS, *ROW_ESTIMATORS)
WHITENED_ESTIMATORS = ("gae_marft", "gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
"""Those whose advantages are normalised unless `norm_adv` says otherwise."""
ESTIMATORS_WITH_CRITIC = ("gae_marft", "gae")
CHAINED_ESTIMATORS = ("gae_marft",)
SEQUENCE_LOSSES = ("gspo",)
"""Names of `algorithms.SEQUENCE_LOSSES`: one ratio per response."""
BATCH_LOSSES = ("m2po",)
"""Losses that look at a whole optimizer batch first, and whose ratio is to the sampler's log-probs."""
POLICY_LOSSES = ("ppo", "cispo", "cpgd", "sapo", *SEQUENCE_LOSSES, *BATCH_LOSSES)
M2_MODES = ("paper", "authors", "astraflow")
LOSS_AGG_MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
KL_KINDS = ("k1", "k2", "k3", "abs")


PAPER_NAMES: Mapping[str, Mapping[str, Any]] = {
    "dr_mas": {"adv_estimator": "grpo", "group_by": ["prompt", "agent"], "advantage_level": "trajectory"},
    "magrpo": {"adv_estimator": "dr_grpo", "group_by": ["prompt", "agent"], "advantage_level": "trajectory"},
    "at_grpo": {"adv_estimator": "grpo", "group_by": ["prompt", "agent", "turn"], "advantage_level": "turn"},
    "m_grpo": {
        "adv_estimator": "grpo",
        "group_by": ["prompt", "agent"],
        "advantage_level": "turn",
        "gamma": 0.0,
        "row_weight": "sample",
    },
}
"""What multi-agent papers call a setting of these keys. Dr. MAS (arXiv 2602.08847), MAGRPO (arXiv 2508.04652), AT-GRPO
(arXiv 2510.11062); M-GRPO (arXiv 2511.13288), where every call of a sub-agent is compared by its own reward with all
calls of the prompt's samples. Samples weigh the same, however often they call: where the paper doubles and drops calls
until each sample has as many, here each call has the weight of its copies."""


WEIGHED_ESTIMATORS = ("grpo", "dr_grpo")
"""Those that `row_weight: sample` is defined for."""


def spelt_out(said: Any) -> Any:
    """The section with a paper's name replaced by its keys. Raises ValueError where one contradicts it."""
    name = said.get("adv_estimator") if isinstance(said, Mapping) else None
    if not isinstance(name, str) or name not in PAPER_NAMES:
        return said
    meant = PAPER_NAMES[name]
    for key, value in meant.items():
        told = said.get(key, value)
        told = list(told) if isinstance(told, tuple) else told
        if key != "adv_estimator" and told != value:
            raise ValueError(f"{name} means {key} {value}, not {told}; take one of the two away")
    return {**said, **meant}


class KlCtrlSpec(Spec):
    """Controller of the KL coefficient of the reward or of the loss."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """fixed keeps `kl_coef`; adaptive steers the KL to `target_kl` (Ziegler et al. 2019)."""
    kl_coef: NonNegative = 0.001
    """What the KL is multiplied with, at first if adaptive."""
    target_kl: Positive = 0.1
    """KL that adaptive steers to, in nats per token."""
    horizon: Positive = 10000.0
    """How slowly adaptive reacts, in trajectories; tens of steps' worth are usual."""


class AlgorithmSpec(Spec):
    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, said: Any) -> Any:
        return spelt_out(said)

    @model_validator(mode="after")
    def _check_row_weight(self) -> Self:
        if self.row_weight == "sample" and self.adv_estimator not in WEIGHED_ESTIMATORS:
            known = " and ".join(WEIGHED_ESTIMATORS)
            raise ValueError(f"row_weight: sample is for {known}, not for {self.adv_estimator}")
        return self

    adv_estimator: str = "gae_marft"
    """gae_marft · gae · reinforce_plus_plus · grpo · dr_grpo · rloo · reinforce_plus_plus_baseline · opo · maxrl ·
    cpgd · spiral · remax (one greedy rollout of each prompt) · `file.py:function`; or a paper's name for some of these
    keys: dr_mas · magrpo · at_grpo · m_grpo."""
    group_by: tuple[Literal["prompt", "agent", "node", "turn"], ...] = ("prompt", "agent")
    """Whom grpo and its relatives compare: rows that agree in all of these. [prompt] is GRPO, [prompt, agent] Dr. MAS
    and MAGRPO, [prompt, agent, turn] AT-GRPO; node tells the roles of one policy apart, turn is the round."""
    advantage_level: Literal["trajectory", "turn"] = "trajectory"
    """What they compare: trajectory the sum of a node's rewards in a trajectory; turn each of its turns, by its reward
    and those of the node's later turns, discounted by `gamma` (0: by its own alone)."""
    row_weight: Literal["row", "sample"] = "row"
    """row: all rows of a group weigh the same; sample: all samples do, however many rows (calls of an agent) each has,
    both in the group's mean and deviation and in the loss. For grpo and dr_grpo."""
    gamma: Fraction = 1.0
    """Discount from round to round."""
    lam: Fraction = 1.0
    """λ of GAE from round to round; 1 trusts the rewards alone, 0 the next value alone."""
    gamma_agent: Fraction = 1.0
    """Discount from agent to agent within a round."""
    lam_agent: Fraction = 1.0
    """λ from agent to agent within a round."""
    gamma_token: Fraction = 1.0
    """Discount from token to token within a response."""
    lam_token: Fraction = 1.0
    """λ from token to token within a response."""
    action_level: bool = False
    """True treats a whole response as one action (MARFT-A)."""
    action_logprob: Literal["sum", "mean", "none"] = "sum"
    """Log-prob of an action: sum or mean over its tokens, all actions weigh the same; none: a ratio per token."""
    reward_mode: Literal["chained", "team", "per_agent"] | None = None
    """chained: only the last turn carries the team's reward; team: every agent's last turn does (for estimators that
    compare rows that of each of its nodes and branches); per_agent: each its own. By default `chained` for estimators
    that chain, `team` for the others."""
    norm_adv: Literal["none", "batch", "agent"] | None = None
    """Advantages to mean 0 and deviation 1 over the trained tokens of the batch, or of each agent; none leaves them. By
    default batch for GAE and REINFORCE++, none for those that compare within groups, spiral and remax."""
    use_kl_in_reward: bool = False
    """Takes the KL to the reference off the reward of every token; needs a REFERENCE node."""
    kl_penalty: Literal["k1", "k2", "k3", "abs"] = "k1"
    """Estimator of that KL; abs is a distance, not an estimate."""
    kl_ctrl: KlCtrlSpec = KlCtrlSpec()
    """The coefficient of that KL."""
    policy_loss: str = "ppo"
    """ppo · gspo (a ratio per response) · cispo · cpgd · sapo · m2po · `file.py:function`."""
    m2_threshold: Positive = 0.04
    """m2po: bound on the mean squared log-ratio to the sampler, over the tokens that a clip could act on."""
    m2_mode: Literal["paper", "authors", "astraflow"] = "paper"
    """m2po: paper leaves tokens out (algorithm 1); authors and astraflow clip as the two published programs do."""
    loss_agg_mode: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] = (
        "token-mean"
    )
    """How the losses of tokens become one number over an optimizer batch; a sequence is one response."""
    loss_horizon: PositiveInt | None = None
    """Constant that `seq-mean-token-sum-norm` divides by; `rollout.sampling.max_tokens` if not given."""
    update_order: Literal["simultaneous", "cycle", "sequential"] | None = None
    """`cycle` where a node has `train_cycle`, else `simultaneous`; `sequential` updates agent by agent with
    HAPPO-style importance weights."""
    sequential_cap: Annotated[float, Field(ge=1.0)] = 10.0
    """Largest importance weight of `sequential` (and 1 over it the smallest)."""
