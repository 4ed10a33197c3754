"""Policies and references on Hugging Face models: scoring, one optimizer step at a time, saving."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dagrl.backends import adapters
from dagrl.backends.base import PolicyLoss, Scores, UpdateStats
from dagrl.backends.forward import (
    enable_checkpointing,
    optimize,
    plan_scoring,
    response_logprobs,
    score,
    training_mode,
)
from dagrl.backends.loading import restore_weights
from dagrl.backends.memory import Budget, MicroPlan, within_memory
from dagrl.backends.network import Network
from dagrl.backends.optimizer import Gradient, Optimizer, products_of
from dagrl.experience import Sequences


class HFReference:
    """The initial weights: a frozen network, or the base of an adapter with the adapter off."""

    def __init__(self, network: Network, *, budget: Budget) -> None:
        self._network = network
        self.budget = budget

    def score(self, sequences: Sequences) -> Scores:
        self._network.use(None)
        return score(self._network, sequences, self.budget)


class HFPolicy:
    """One agent's policy: all weights of a network, or one LoRA adapter on it."""

    def __init__(
        self,
        network: Network,
        *,
        tokenizer: Any,
        budget: Budget,
        optimizer: Optimizer | None,
        adapter: str | None = None,
        has_checkpointing: bool = False,
    ) -> None:
        self.network = network
        self.adapter = adapter
        self.tokenizer = tokenizer
        self.budget = budget
        self._optimizer = optimizer
        if has_checkpointing:
            enable_checkpointing(network.module)

    @property
    def version(self) -> int:
        return 0 if self._optimizer is None else self._optimizer.version

    @property
    def num_optimizer_bytes(self) -> int:
        """Memory of moments and master weights."""
        return 0 if self._optimizer is None else self._optimizer.num_bytes

    def score(self, sequences: Sequences) -> Scores:
        self.network.use(self.adapter)
        return score(self.network, sequences, self.budget)

    def update(self, sequences: Sequences, loss: PolicyLoss, *, entropy_gradient: bool = False) -> UpdateStats:
        """One optimizer step; turns without a response are left out."""
        assert self._optimizer is not None, f"the policy of {self.network.name} is frozen"
        self.network.use(self.adapter)
        assert bool((sequences.response_lens > 0).any()), "an update needs at least one response token"
        with training_mode(self.network.module):
            stats = optimize(
                self.budget,
                lambda: plan_scoring(sequences, self.budget),
                lambda micro_plan: self._shares(sequences, micro_plan, loss, entropy_gradient),
                self._optimizer,
            )
        if stats.is_finite:
            self.network.note_change(self.adapter)
        return stats

    def gradient_products(
        self, sequences: Sequences, loss: PolicyLoss, parts: Sequence[Tensor], *, entropy_gradient: bool = False
    ) -> Tensor:
        """[P, P] float64: dot products of the gradients of the loss on each of `parts`; nothing is changed."""
        optimizer = self._optimizer
        assert optimizer is not None, f"the policy of {self.network.name} is frozen"
        self.network.use(self.adapter)
        budget = copy.copy(self.budget)  # what memory teaches here must not change how the update is computed

        def gather(micro_plan: MicroPlan) -> Gradient:
            optimizer.discard()
            for share in self._shares(sequences, micro_plan, loss, entropy_gradient):
                torch.autograd.backward(share)
                optimizer.collect()
            return optimizer.take_gradients()

        with training_mode(self.network.module):
            gradients = [
                within_memory(budget, partial(plan_scoring, sequences, budget, among=part), gather) for part in parts
            ]
        return products_of(gradients)

    def save(self, folder: Path) -> None:
        """Weights, tokenizer and, where images are read, their processor; an adapter is saved by itself, with the place
        of its base written down."""
        if self.adapter is None:
            self.network.module.save_pretrained(folder)
        else:
            adapters.save(self.network, self.adapter, folder)
        self.tokenizer.save_pretrained(folder)
        if self.network.vision is not None:
            self.network.vision.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the weights that `save` wrote; optimizer and version come by `load_state_dict`, after this."""
        if self.adapter is None:
            restore_weights(self.network.module, folder)
        else:
            adapters.restore(self.network, self.adapter, folder)
        self.network.note_change(self.adapter)
        if self._optimizer is not None:
            self._optimizer.reread()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._optimizer is None else self._optimizer.state_dict() | self.budget.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state)
            self.budget.load_state_dict(state)
            self.network.note_change(self.adapter)

    def _shares(
        self, sequences: Sequences, micro_plan: MicroPlan, loss: PolicyLoss, entropy_gradient: bool
    ) -> Iterator[Tensor]:
        for batch in micro_plan.batches:
            logprobs, entropy = response_logprobs(
                self.network, sequences, batch, self.budget, entropy_gradient=entropy_gradient
            )
            yield loss(logprobs, entropy, batch)
