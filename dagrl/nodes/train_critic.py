"""TRAIN_CRITIC: one joint update of a critic on the turns of all agents that share it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dagrl.algorithms import explained_variance, token_weights, value_loss
from dagrl.backends.base import MicroBatch, UpdateStats, ValueModel
from dagrl.experience import Experience, NonFinite, Updated
from dagrl.nodes.stream import Sums, minibatch_seed, minibatches
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node


class TrainCriticNode:
    """Several epochs of minibatches over the union of the sharers' turns; one optimizer."""

    def __init__(self, node: Node, critic: ValueModel, seed: int) -> None:
        self.node = node
        self._critic = critic
        self._seed = seed

    def run(self, experience: Experience, step: int) -> Metrics:
        turns = experience.turns_of(self.node.groups, only_trained=True)
        if not len(turns):
            return {"skipped": 1.0}
        sums, stats = Sums(), []
        spec = self.node.critic
        for epoch in range(spec.ppo_epochs):
            seed = minibatch_seed(self._seed, step, self.node.node_id, epoch)
            for batch in minibatches(experience, turns, spec.ppo_mini_batch_size, seed):
                fresh = Sums()
                stats.append(self._update(experience, batch, fresh))
                sums.merge(fresh)
                note_update(experience, "critic", batch, stats[-1])
        return {
            "loss": sum(stat.loss for stat in stats) / len(stats),
            "rmse": sums.ratio("sum_squared_error", "num_tokens") ** 0.5,
            "clip_fraction": sums.ratio("num_clipped", "num_tokens"),
            **_explained(experience, turns),
            **update_metrics(stats),
        }

    def _update(self, experience: Experience, turns: Tensor, sums: Sums) -> UpdateStats:
        old_values = experience.read(Column.VALUES, turns)
        returns = experience.read(Column.RETURNS, turns)
        weights = token_weights("token-mean", experience.turns.response_len[turns])
        spec = self.node.critic

        def loss(values: Tensor, micro: MicroBatch) -> Tensor:
            own_old, own_returns, own_weights = (
                column[micro.tokens].to(values.device) for column in (old_values, returns, weights)
            )
            if micro.is_first:
                sums.clear()
            result = value_loss(values, own_old, own_returns, clip=spec.cliprange_value, huber_delta=spec.huber_delta)
            sums.add(result.metrics)
            return (own_weights * result.loss_T).sum()

        return self._critic.update(experience.select(turns), loss)


def _explained(experience: Experience, turns: Tensor) -> Metrics:
    """Explained variance over all turns, and where several roles share the critic over those of each."""
    roles = [experience.node_ids[turn] for turn in turns.tolist()]
    chosen = {"explained_variance": turns}
    for name in sorted(set(roles)) if len(set(roles)) > 1 else ():
        places = [place for place, role in enumerate(roles) if role == name]
        chosen[f"explained_variance/{name}"] = turns[torch.tensor(places)]
    return {
        name: explained_variance(experience.read(Column.VALUES, own), experience.read(Column.RETURNS, own))
        for name, own in chosen.items()
    }


def note_update(experience: Experience, model: Updated, turns: Tensor, stats: UpdateStats) -> None:
    """Writes down that `turns` were part of an optimizer step, or whose loss or gradient kept it from being made."""
    if stats.is_finite:
        experience.note_update(model, turns)
        return
    experience.excuse_turns(turns, "nonfinite")
    suspects = turns if stats.suspects is None else turns[stats.suspects]
    tensor = "gradient" if math.isfinite(stats.loss) else "loss"
    experience.nonfinite.append(NonFinite(tensor=tensor, turns=suspects))


def update_metrics(stats: list[UpdateStats]) -> Metrics:
    """What the optimizer steps of one node have in common: means, and how many were left out."""
    return {
        "grad_norm": sum(stat.grad_norm for stat in stats) / len(stats),
        "lr": stats[-1].lr,
        "padding": sum(stat.padding for stat in stats) / len(stats),
        "optimizer_steps": float(len(stats)),
        "nonfinite_steps": float(sum(not stat.is_finite for stat in stats)),
    }
