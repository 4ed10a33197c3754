"""What the metrics of policies and their updates mean, and where a healthy run keeps them."""

from __future__ import annotations

from collections.abc import Mapping

from dagrl.report.guide import OTHER, POLICY, Guide

POLICY_GUIDES: Mapping[str, Guide] = {
    "agent_*/policy/entropy": Guide(
        title="Entropy",
        meaning="Mean entropy of the policy's next-token distribution, in nats: how undecided the agent is.",
        section=POLICY,
        healthy="Falls slowly. Near 0 early on: it has collapsed and explores no more; raise entropy_coeff or "
        "clip_ratio_high, lower the learning rate. Rising without end: the learning rate is too large.",
        unit="nats",
    ),
    "agent_*/actor/train_entropy": Guide(
        title="Entropy while training",
        meaning="The same as entropy, during the update.",
        section=OTHER,
        unit="nats",
    ),
    "agent_*/actor/kl": Guide(
        title="KL of one update",
        meaning="How far the update moved the policy from the one that sampled (k3 estimate, per token).",
        section=POLICY,
        healthy="0.0001 to 0.03. Larger: lower the learning rate or ppo_epochs, set target_kl. 0: nothing is learnt.",
        high=0.03,
        unit="nats",
    ),
    "agent_*/actor/kl_loss": Guide(
        title="KL to the reference",
        meaning="Distance of the policy from the reference model, per token.",
        section=POLICY,
        healthy="Grows slowly; a jump goes with broken text. Raise kl_loss_coef to hold it.",
        unit="nats",
    ),
    "agent_*/actor/ratio_mean": Guide(
        title="Mean ratio",
        meaning="Mean of new over old probability of the sampled tokens.",
        section=POLICY,
        healthy="0.95 to 1.05",
        low=0.95,
        high=1.05,
    ),
    "agent_*/actor/clip_fraction_low": Guide(
        title="Clipped below",
        meaning="Share of tokens whose ratio was held at the lower bound, and so gave no gradient.",
        section=POLICY,
        healthy="Under 0.2; above, the updates are too large.",
        high=0.2,
    ),
    "agent_*/actor/clip_fraction_high": Guide(
        title="Clipped above",
        meaning="Share of tokens whose ratio was held at the upper bound.",
        section=POLICY,
        healthy="Under 0.2; above, the updates are too large.",
        high=0.2,
    ),
    "agent_*/actor/clip_fraction_dual": Guide(
        title="Clipped twice",
        meaning="Share of tokens with a negative advantage whose loss was held at clip_ratio_c.",
        section=OTHER,
        high=0.1,
    ),
    "agent_*/actor/m2_before": Guide(
        title="Second moment",
        meaning="m2po: mean squared log-ratio to the sampler over the tokens that a clip could act on.",
        section=POLICY,
        healthy="Near 0 on policy; far above m2_threshold: the samples are too old.",
    ),
    "agent_*/actor/m2_after": Guide(
        title="Second moment kept",
        meaning="m2po: the same over the tokens that were left in.",
        section=OTHER,
        healthy="At most m2_threshold with m2_mode paper.",
    ),
    "agent_*/actor/m2_region": Guide(
        title="Trust region", meaning="m2po: share of the tokens that a clip could act on.", section=OTHER
    ),
    "agent_*/actor/m2_masked": Guide(
        title="Masked by M2PO",
        meaning="m2po: share of all tokens that were left out.",
        section=POLICY,
        healthy="Well under 0.01 in the paper, even with old samples.",
    ),
    "agent_*/actor/kl_loss_coef": Guide(
        title="Weight of the KL", meaning="Weight of the KL to the reference in the loss.", section=OTHER
    ),
    "agent_*/actor/policy_loss": Guide(
        title="Policy loss",
        meaning="The loss that was minimised. Its size says little: advantages are centred anew at each step.",
        section=OTHER,
    ),
    "agent_*/actor/grad_norm": Guide(
        title="Gradient norm of the policy",
        meaning="Norm of the gradient before clipping, mean over the optimizer's steps.",
        section=POLICY,
        healthy="Steady. Spikes: look at that step's conversations, lower the learning rate.",
    ),
    "agent_*/actor/gradient/norm": Guide(
        title="Gradient over the step",
        meaning="Norm of the gradient of the loss over all turns of the step, at the weights that it begins with "
        "(trainer.role_gradients_freq).",
        section=OTHER,
    ),
    "agent_*/actor/gradient/norm/*": Guide(
        title="Gradient of a role",
        meaning="Norm of the part of it that comes from the turns of one rollout node; the parts sum to the whole.",
        section=POLICY,
        healthy="Of one order for all roles. One far larger: it decides where the shared weights go.",
    ),
    "agent_*/actor/gradient/cosine/*": Guide(
        title="Roles pull alike",
        meaning="Cosine between the gradients of two roles that share the policy.",
        section=POLICY,
        healthy="0 or above. Below 0 for long: what one role learns the other unlearns; give them policies or adapters "
        "of their own.",
        low=-0.2,
    ),
    "agent_*/policy/sampler_gap_mean": Guide(
        title="Sampler and trainer apart (mean)",
        meaning="Mean difference between a token's log-prob when sampled and when computed again for training.",
        section=POLICY,
        healthy="Under 1e-4 in float32 with the embedded engine, under 0.02 in bfloat16 with another engine.",
        high=0.02,
        unit="nats",
    ),
    "agent_*/policy/sampler_gap_max": Guide(
        title="Sampler and trainer apart (max)",
        meaning="Largest difference of that kind in the batch; a wrong token or mask shows here.",
        section=OTHER,
        healthy="Under 1",
        high=1.0,
        unit="nats",
    ),
    "*/nonfinite_steps": Guide(
        title="Updates left out",
        meaning="Optimizer steps that were left out because a gradient was NaN or infinite.",
        section=POLICY,
        healthy="0",
        high=0.0,
    ),
    "agent_*/actor/early_stop": Guide(
        title="Stopped by target_kl", meaning="1 where the epochs ended early as the KL was large.", section=OTHER
    ),
    "*/lr": Guide(title="Learning rate", meaning="Of the optimizer's last step.", section=OTHER),
    "*/optimizer_steps": Guide(title="Optimizer steps", meaning="Updates of the weights in this step.", section=OTHER),
}
"""A part of the table in `metric_guide`."""
