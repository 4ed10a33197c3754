"""What each role does in the conversations of a step: a role is a rollout node, and several may share a policy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dagrl.experience import Experience
from dagrl.types import SOLVED, Metrics, StopReason


def role_metrics(experience: Experience, roles: Sequence[str]) -> Metrics:
    """Numbers under `role/<node>/…` of a team of several; nothing where one speaks alone."""
    count = len(experience.trajectories)
    if len(roles) < 2 or not count:
        return {}
    metrics: Metrics = {}
    owners = experience.turns.trajectory
    rewards = _rewards(experience)[owners]
    solved, unsolved = rewards >= SOLVED, rewards < SOLVED
    for role in roles:
        own = _of(role, experience)
        metrics[f"role/{role}/spoke"] = len(torch.unique(owners[own])) / count
        metrics[f"role/{role}/turns"] = float(own.sum()) / count
        metrics[f"role/{role}/tokens"] = float(experience.turns.response_len[own].sum()) / count
        for name, chosen in (("reward_solved", own & solved), ("reward_unsolved", own & unsolved)):
            if bool(chosen.any()):
                metrics[f"role/{role}/{name}"] = float(experience.turns.reward[chosen].double().mean())
    return metrics


def trained_shares(experience: Experience, roles: Sequence[str]) -> Metrics:
    """Of the response tokens that policies were updated on in a step, the share of each role."""
    counts = experience.updates.get("policy")
    if len(roles) < 2 or counts is None:
        return {}
    lens = torch.where(counts > 0, experience.turns.response_len, 0)
    total = int(lens.sum())
    return {f"role/{role}/trained_share": int(lens[_of(role, experience)].sum()) / total for role in roles if total}


def ending_metrics(experience: Experience, roles: Sequence[str], max_rounds: int) -> Metrics:
    """How long conversations are, how many are solved, and who ends them before their last round."""
    trajectories = experience.trajectories
    if not trajectories:
        return {}
    totals = torch.zeros(len(trajectories), dtype=torch.int64)
    totals.index_add_(0, experience.turns.trajectory, experience.turns.response_len)
    metrics = {
        "trajectory/conversation_tokens": float(totals.double().mean()),
        "trajectory/conversation_tokens_max": float(totals.max()),
        "trajectory/solved": float((_rewards(experience) >= SOLVED).double().mean()),
    }
    if max_rounds == 1:
        return metrics
    early = [one for one in trajectories if one.stop_reason is StopReason.TERMINATED and one.num_rounds < max_rounds]
    metrics["trajectory/ended_early"] = len(early) / len(trajectories)
    enders = [one.turns[-1].node_id for one in early if one.turns]
    return metrics | {f"role/{role}/ended_early": enders.count(role) / len(trajectories) for role in roles}


def _rewards(experience: Experience) -> Tensor:
    """[N] float32, as the trajectory log has it; NaN where there is none."""
    return torch.tensor([one.reward for one in experience.trajectories], dtype=torch.float32)


def _of(role: str, experience: Experience) -> Tensor:
    """[K] bool: the turns of a role."""
    return torch.tensor([node_id == role for node_id in experience.node_ids], dtype=torch.bool)
