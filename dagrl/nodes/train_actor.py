"""TRAIN_ACTOR: one agent's policy update of a step, PPO and its relatives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from dagrl.algorithms import (
    Clip,
    KLController,
    correction_weights,
    kl_estimate,
    norms_and_cosines,
    sequential_factor,
    token_to_turn,
    token_weights,
)
from dagrl.backends.base import MicroBatch, PolicyLoss, PolicyModel, UpdateStats
from dagrl.experience import Experience, Sequences
from dagrl.nodes.objectives import PolicyObjective
from dagrl.nodes.stream import Sums, layout_of, minibatch_seed, minibatches
from dagrl.nodes.train_critic import note_update, update_metrics
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node, old_logprobs_column


class TrainActorNode:
    """Several epochs of minibatches over one agent's turns."""

    def __init__(
        self,
        node: Node,
        policy: PolicyModel,
        *,
        policy_loss: PolicyObjective,
        kl_controller: KLController,
        loss_horizon: int,
        seed: int,
        role_gradients_freq: int = 0,
    ) -> None:
        """`role_gradients_freq`: steps between measurements of each role's gradient; 0 never."""
        self.node = node
        self._policy = policy
        self._policy_loss = policy_loss
        self._kl = kl_controller
        self._loss_horizon = loss_horizon
        self._seed = seed
        self._role_gradients_freq = role_gradients_freq

    def run(self, experience: Experience, step: int) -> Metrics:
        turns = self._turns(experience)
        if not len(turns):
            return {"skipped": 1.0}
        importance = self._importance(experience)
        is_measured = self._role_gradients_freq > 0 and step % self._role_gradients_freq == 0
        gradients = self._role_gradients(experience, turns, importance) if is_measured else {}
        sums, stats, early_stop = self._epochs(experience, turns, importance, step)
        if self.node.algorithm.update_order == "sequential":
            every_turn = experience.turns_of(self.node.groups)
            scores = self._policy.score(experience.select(every_turn))
            experience.write(Column.NEW_LOGPROBS, every_turn, scores.logprobs)
        metrics = self._metrics(sums, stats, early_stop)
        if self.node.actor.use_kl_loss and math.isfinite(metrics["kl_loss"]):
            self._kl.update(metrics["kl_loss"], len(experience.trajectories))
        return metrics | gradients

    def state_dict(self) -> dict[str, Any]:
        return self._kl.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kl.load_state_dict(state)

    def _turns(self, experience: Experience) -> Tensor:
        turns = experience.turns_of(self.node.groups, only_trained=True)
        if not self.node.actor.overlong_filtering:
            return turns
        is_cut = experience.turns.is_cut[turns]
        experience.excuse_turns(turns[is_cut], "overlong")
        return turns[~is_cut]

    def _epochs(
        self, experience: Experience, turns: Tensor, importance: Tensor, step: int
    ) -> tuple[Sums, list[UpdateStats], bool]:
        sums, stats = Sums(), []
        spec = self.node.actor
        for epoch in range(spec.ppo_epochs):
            seed = minibatch_seed(self._seed, step, self.node.node_id, epoch)
            for batch in minibatches(experience, turns, spec.ppo_mini_batch_size, seed):
                fresh = Sums()
                stats.append(self._update(experience, batch, importance, fresh))
                note_update(experience, "policy", batch, stats[-1])
                sums.merge(fresh)
                if spec.target_kl is not None and fresh.ratio("sum_kl_k3", "num_ratios") > spec.target_kl:
                    experience.excuse_turns(turns, "early_stop")
                    return sums, stats, True
        return sums, stats, False

    def _role_gradients(self, experience: Experience, turns: Tensor, importance: Tensor) -> Metrics:
        """Norms and cosines of the gradients of each role's part of the loss over all turns of the step, at the weights
        that the step begins with; nothing where the policy has one role in it."""
        roles = [experience.node_ids[turn] for turn in turns.tolist()]
        names = sorted(set(roles))
        if len(names) < 2:
            return {}
        batch, loss, _ = self._objective(experience, turns, importance, Sums())
        parts = [torch.tensor([place for place, role in enumerate(roles) if role == name]) for name in names]
        has_entropy = self.node.actor.entropy_coeff != 0.0
        products = self._policy.gradient_products(batch, loss, parts, entropy_gradient=has_entropy)
        norms, cosines = norms_and_cosines(products)
        metrics = {"gradient/norm": float(products.sum().clamp_min(0.0).sqrt())}
        metrics |= {f"gradient/norm/{name}": float(norm) for name, norm in zip(names, norms, strict=True)}
        for first, second in combinations(range(len(names)), 2):
            metrics[f"gradient/cosine/{names[first]}/{names[second]}"] = float(cosines[first, second])
        return metrics

    def _update(self, experience: Experience, turns: Tensor, importance: Tensor, sums: Sums) -> UpdateStats:
        batch, loss, reported = self._objective(experience, turns, importance, sums)
        has_entropy = self.node.actor.entropy_coeff != 0.0
        stats = self._policy.update(batch, loss, entropy_gradient=has_entropy)
        sums.add(reported)
        return stats

    def _objective(
        self, experience: Experience, turns: Tensor, importance: Tensor, sums: Sums
    ) -> tuple[Sequences, PolicyLoss, Mapping[str, Tensor | float]]:
        """The turns of an optimizer batch, their loss, and sums to report; the loss adds what it sees to `sums`."""
        lens, batch = experience.turns.response_len[turns], experience.select(turns)
        columns = {
            "old": experience.read(old_logprobs_column(self.node.actor), turns),
            "advantages": experience.read(Column.ADVANTAGES, turns) * importance[turns][token_to_turn(lens)],
            "weights": token_weights(self.node.algorithm.loss_agg_mode, lens, horizon=self._loss_horizon),
        }
        columns["policy_weights"] = self._policy_loss.weights(lens, columns["weights"])
        chosen, told = self._policy_loss.over_batch(columns, lambda: self._policy.score(batch).logprobs)
        columns |= chosen
        reported: dict[str, Tensor | float] = {**told}
        if self.node.actor.rollout_correction != "none":
            correction, corrected = self._correction(experience, turns, lens)
            columns["policy_weights"] = columns["policy_weights"] * correction
            reported |= corrected
        if self.node.actor.use_kl_loss:
            columns["ref"] = experience.read(Column.REF_LOGPROBS, turns)

        def loss(logprobs: Tensor, entropy: Tensor, micro: MicroBatch) -> Tensor:
            if micro.is_first:
                sums.clear()
            own = {name: column[micro.tokens].to(logprobs.device) for name, column in columns.items()}
            return self._loss(logprobs, entropy, own, lens[micro.turns].to(logprobs.device), sums)

        return batch, loss, reported

    def _loss(self, logprobs: Tensor, entropy: Tensor, own: Mapping[str, Tensor], lens: Tensor, sums: Sums) -> Tensor:
        """This micro-batch's share of policy loss - entropy bonus + KL loss; `own` holds its tokens' columns."""
        spec = self.node.actor
        policy = self._policy_loss.of(logprobs, own, lens, self._clip)
        total = (own["policy_weights"] * policy.loss_T).sum()
        sums.add({"policy_loss": total.detach(), "sum_entropy": entropy.detach().sum(), "tokens": len(logprobs)})
        sums.add(policy.metrics)
        if spec.entropy_coeff != 0.0:
            total = total - spec.entropy_coeff * (own["weights"] * entropy).sum()
        if spec.use_kl_loss:
            kl = kl_estimate(logprobs, own["ref"], spec.kl_loss_type)
            sums.add({"sum_kl_loss": kl.detach().sum()})
            total = total + self._kl.coef * (own["weights"] * kl).sum()
        return total

    def _correction(
        self, experience: Experience, turns: Tensor, lens: Tensor
    ) -> tuple[Tensor, dict[str, Tensor | float]]:
        """[M] weight of each token's policy loss for the sampler's having been another policy, and sums over them."""
        spec = self.node.actor
        old = experience.read(Column.OLD_LOGPROBS, turns)
        rollout = experience.read(Column.ROLLOUT_LOGPROBS, turns)
        gap = self._policy_loss.gap(old - rollout, lens)
        weights = correction_weights(spec.rollout_correction, gap, spec.rollout_correction_cap)
        num_bounded = (weights != gap.exp()).sum()
        return weights, {"sum_correction": weights.sum(), "num_corrected": num_bounded, "corrections": len(gap)}

    def _importance(self, experience: Experience) -> Tensor:
        """[K] factor on the advantages: HAPPO's where other agents were updated before in this step, else 1."""
        ones = torch.ones(len(experience.turns))
        updated = experience.written.get(Column.NEW_LOGPROBS)
        if updated is None:
            return ones
        turns = experience.turns_of(range(int(experience.turns.agent_group.max()) + 1))
        layout, _ = layout_of(experience, turns)
        tokens = experience.sequences.tokens_of(turns)
        ones[turns] = sequential_factor(
            experience.columns[Column.NEW_LOGPROBS][tokens],
            experience.columns[old_logprobs_column(self.node.actor)][tokens],
            layout,
            set(experience.turns.agent_group[updated].tolist()),
            self.node.algorithm.sequential_cap,
        )
        return ones

    @property
    def _clip(self) -> Clip:
        spec = self.node.actor
        low = spec.clip_ratio if spec.clip_ratio_low is None else spec.clip_ratio_low
        high = spec.clip_ratio if spec.clip_ratio_high is None else spec.clip_ratio_high
        return Clip(low=low, high=high, dual=spec.clip_ratio_c)

    def _metrics(self, sums: Sums, stats: list[UpdateStats], early_stop: bool) -> Metrics:
        metrics = {
            "policy_loss": sums["policy_loss"] / len(stats),
            "kl": sums.ratio("sum_kl_k3", "num_ratios"),
            "ratio_mean": sums.ratio("sum_ratio", "num_ratios"),
            "clip_fraction_low": sums.ratio("num_clipped_low", "num_ratios"),
            "clip_fraction_high": sums.ratio("num_clipped_high", "num_ratios"),
            "clip_fraction_dual": sums.ratio("num_clipped_dual", "num_ratios"),
            "train_entropy": sums.ratio("sum_entropy", "tokens"),
            "early_stop": float(early_stop),
            **update_metrics(stats),
        }
        if self.node.actor.rollout_correction != "none":
            metrics["rollout_weight_mean"] = sums.ratio("sum_correction", "corrections")
            metrics["rollout_weight_bounded"] = sums.ratio("num_corrected", "corrections")
        if sums["num_m2_tokens"]:
            metrics["m2_before"] = sums.ratio("sum_m2_before", "num_m2_region")
            metrics["m2_after"] = sums.ratio("sum_m2_after", "num_m2_kept")
            metrics["m2_region"] = sums.ratio("num_m2_region", "num_m2_tokens")
            metrics["m2_masked"] = sums.ratio("num_m2_masked", "num_m2_tokens")
        if self.node.actor.use_kl_loss:
            metrics["kl_loss"] = sums.ratio("sum_kl_loss", "tokens")
            metrics["kl_loss_coef"] = self._kl.coef
        return metrics
