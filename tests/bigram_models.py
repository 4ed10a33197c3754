"""The smallest real models behind the protocols: a table of logits and a table of values, trained by plain SGD.

They let the nodes' arithmetic be checked against a few lines of padded code, without a transformer in between.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dagrl.backends.base import MicroBatch, PolicyLoss, Scores, UpdateStats, ValueLoss, Values
from dagrl.experience import Sequences


class _Table:
    def __init__(self, table: Tensor, *, lr: float, turns_per_micro_batch: int) -> None:
        self.table = table.clone().requires_grad_()
        self._lr = lr
        self._size = turns_per_micro_batch
        self.version = 0

    def _micro_batches(self, sequences: Sequences) -> list[MicroBatch]:
        parts = torch.arange(len(sequences)).split(self._size)
        return [MicroBatch(turns=part, tokens=sequences.tokens_of(part)) for part in parts]

    def _step(self, losses: list[Tensor]) -> UpdateStats:
        total = torch.stack(losses).sum()
        (gradient,) = torch.autograd.grad(total, self.table)
        with torch.no_grad():
            self.table -= self._lr * gradient
        self.version += 1
        return UpdateStats(
            loss=float(total.detach()), grad_norm=float(gradient.norm()), lr=self._lr, padding=0.0,
            num_micro_batches=len(losses), is_finite=True,
        )  # fmt: skip

    def save(self, folder: Any) -> None:
        raise NotImplementedError

    def load(self, folder: Any) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        return None


class BigramPolicy(_Table):
    """p(next | previous) = softmax(table[previous] / temperature)."""

    def score(self, sequences: Sequences) -> Scores:
        with torch.no_grad():
            logprobs, entropy = self._logprobs(sequences, torch.arange(len(sequences)))
        return Scores(logprobs=logprobs, entropy=entropy, padding=0.0)

    def update(self, sequences: Sequences, loss: PolicyLoss, *, entropy_gradient: bool = False) -> UpdateStats:
        losses = []
        for micro in self._micro_batches(sequences):
            logprobs, entropy = self._logprobs(sequences, micro.turns)
            losses.append(loss(logprobs, entropy if entropy_gradient else entropy.detach(), micro))
        return self._step(losses)

    def gradient_products(
        self, sequences: Sequences, loss: PolicyLoss, parts: Any, *, entropy_gradient: bool = False
    ) -> Tensor:
        rows = []
        for part in parts:
            logprobs, entropy = self._logprobs(sequences, part)
            micro = MicroBatch(turns=part, tokens=sequences.tokens_of(part), is_first=True)
            share = loss(logprobs, entropy if entropy_gradient else entropy.detach(), micro)
            rows.append(torch.autograd.grad(share, self.table)[0].flatten().double())
        return torch.stack(rows) @ torch.stack(rows).T

    def _logprobs(self, sequences: Sequences, turns: Tensor) -> tuple[Tensor, Tensor]:
        previous, following, temperatures = contexts(sequences, turns)
        logprobs = torch.log_softmax(self.table[previous] / temperatures[:, None], dim=-1)
        chosen = logprobs.gather(1, following[:, None]).squeeze(1)
        return chosen, -(logprobs.exp() * logprobs).sum(-1)


class BigramCritic(_Table):
    """The value of a state is table[last token]."""

    def values(self, sequences: Sequences) -> Values:
        previous, _, _ = contexts(sequences, torch.arange(len(sequences)))
        last = sequences.input_ids[sequences.offsets[1:] - 1]
        table = self.table.detach()
        return Values(values=table[previous], last_values=table[last], padding=0.0)

    def update(self, sequences: Sequences, loss: ValueLoss) -> UpdateStats:
        losses = []
        for micro in self._micro_batches(sequences):
            previous, _, _ = contexts(sequences, micro.turns)
            losses.append(loss(self.table[previous], micro))
        return self._step(losses)


def contexts(sequences: Sequences, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Previous id, id and temperature of every response token of `turns`."""
    previous, following, temperatures = [], [], []
    for turn in turns.tolist():
        begin, end = int(sequences.offsets[turn]), int(sequences.offsets[turn + 1])
        ids = sequences.input_ids[begin:end]
        first = int(sequences.prompt_lens[turn])
        previous.append(ids[first - 1 : -1])
        following.append(ids[first:])
        temperatures.append(sequences.temperatures[turn].expand(len(ids) - first))
    return torch.cat(previous), torch.cat(following), torch.cat(temperatures)
