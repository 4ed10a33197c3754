"""Forward passes over ragged sequences: the only place where a batch is padded, for as long as the pass lasts.

Rows are padded on the right. Attention is causal, so no real token sees a padded one and no mask is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dagrl.backends.base import MicroBatch, Scores, UpdateStats
from dagrl.backends.logprobs import token_logprobs
from dagrl.backends.memory import Budget, MicroPlan, within_memory
from dagrl.backends.network import Network
from dagrl.backends.optimizer import Optimizer, StepStats
from dagrl.backends.packing import padding_fraction, plan
from dagrl.experience import Sequences, ranges


def plan_scoring(sequences: Sequences, budget: Budget, among: Tensor | None = None) -> MicroPlan:
    """For a policy: turns without a response are left out, and the last token is not put in; `among` ([m] positions)
    are the only ones then."""
    spoken = sequences.response_lens > 0
    chosen = spoken.nonzero().flatten() if among is None else among[spoken[among]]
    return _plan(sequences, chosen, sequences.lengths[chosen] - 1, budget)


def plan_values(sequences: Sequences, budget: Budget) -> MicroPlan:
    """For a critic: every turn, every token."""
    chosen = torch.arange(len(sequences))
    return _plan(sequences, chosen, sequences.lengths, budget)


def response_logprobs(
    network: Network, sequences: Sequences, batch: MicroBatch, budget: Budget, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """([M] log-probs, [M] entropy) of the response tokens of `batch`, float32, on the CPU, with their graph."""
    lengths = sequences.lengths[batch.turns] - 1
    ids = padded(sequences, batch.turns, lengths)
    sights = network.sights(sequences, batch.turns)
    hidden = network.hidden(ids.to(network.device), sights=sights, use_cache=False)
    prompt_lens, response_lens = sequences.prompt_lens[batch.turns], sequences.response_lens[batch.turns]
    picked = pick(hidden, prompt_lens - 1, response_lens)
    targets = sequences.input_ids[ranges(sequences.offsets[batch.turns] + prompt_lens, response_lens)]
    logprobs, entropy = token_logprobs(
        picked,
        network.head,
        targets.to(network.device),
        torch.repeat_interleave(sequences.temperatures[batch.turns], response_lens).to(network.device),
        chunk_tokens=budget.logprob_chunk_tokens,
        entropy_gradient=entropy_gradient,
    )
    return logprobs.cpu(), entropy.cpu()


@torch.no_grad()
def score(network: Network, sequences: Sequences, budget: Budget) -> Scores:
    """Log-probs and entropy of every response token under the weights that are switched on."""
    total = int(sequences.response_lens.sum())
    logprobs, entropy = torch.zeros(total), torch.zeros(total)

    def work(micro_plan: MicroPlan) -> float:
        for batch in micro_plan.batches:
            values = response_logprobs(network, sequences, batch, budget)
            logprobs[batch.tokens], entropy[batch.tokens] = values[0].float(), values[1].float()
        return micro_plan.padding

    padding = within_memory(budget, lambda: plan_scoring(sequences, budget), work)
    return Scores(logprobs=logprobs, entropy=entropy, padding=padding)


def optimize(
    budget: Budget, plan: Callable[[], MicroPlan], shares: Callable[[MicroPlan], Iterator[Tensor]], optimizer: Optimizer
) -> UpdateStats:
    """One optimizer step on the sum of `shares`, the losses of the micro-batches, each made when it is asked for.

    A loss or gradient that is not finite ends it without a step and without gradients left over. Where memory runs out
    the gradients are gathered again from the first micro-batch, before any step was made.
    """

    def gather(micro_plan: MicroPlan) -> tuple[MicroPlan, list[float]]:
        optimizer.discard()
        losses: list[float] = []
        for share in shares(micro_plan):
            losses.append(float(share.detach()))
            if not math.isfinite(losses[-1]):
                break
            torch.autograd.backward(share)
            optimizer.collect()
        return micro_plan, losses

    micro_plan, losses = within_memory(budget, plan, gather)
    suspects = None
    if math.isfinite(losses[-1]):
        step = optimizer.step()
    else:
        step = StepStats(grad_norm=math.nan, lr=optimizer.lr, is_finite=False)
        suspects = micro_plan.batches[len(losses) - 1].turns
        optimizer.discard()
    return UpdateStats(
        loss=sum(losses),
        grad_norm=step.grad_norm,
        lr=step.lr,
        padding=micro_plan.padding,
        num_micro_batches=len(micro_plan.batches),
        is_finite=step.is_finite,
        suspects=suspects,
    )


def padded(sequences: Sequences, turns: Tensor, lengths: Tensor) -> Tensor:
    """[m, L] int64: the first `lengths` ids of each of `turns`, padded on the right with 0."""
    ids = torch.zeros(len(turns), int(lengths.max()), dtype=torch.int64)
    rows = torch.repeat_interleave(torch.arange(len(turns)), lengths)
    ids[rows, ranges(torch.zeros_like(lengths), lengths)] = sequences.input_ids[
        ranges(sequences.offsets[turns], lengths)
    ]
    return ids


def pick(hidden: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
    """[sum(lengths), d]: of each row of `hidden` [m, L, d] the positions start, start + 1, …, row by row."""
    width = hidden.shape[1]
    positions = ranges(torch.arange(len(starts)) * width + starts, lengths)
    return hidden.reshape(-1, hidden.shape[-1])[positions.to(hidden.device)]


def enable_checkpointing(module: Any) -> None:
    """Makes `module` compute its layers again in the backward pass, whenever it is in training mode."""
    if any(getattr(part, "gradient_checkpointing", False) for part in module.modules()):
        return
    # The first name came after transformers 5.16; the second goes with 6.
    enable = getattr(module, "activation_checkpointing_enable", None) or module.gradient_checkpointing_enable
    enable({"use_reentrant": False})


@contextmanager
def training_mode(module: Any) -> Iterator[None]:
    """For one update; without it transformers does no gradient checkpointing. All dropouts are 0, see loading."""
    module.train()
    try:
        yield
    finally:
        module.eval()


def _plan(sequences: Sequences, chosen: Tensor, lengths: Tensor, budget: Budget) -> MicroPlan:
    parts = plan(lengths, budget.micro_batch_tokens)
    batches = [
        MicroBatch(turns=chosen[rows], tokens=sequences.tokens_of(chosen[rows]), is_first=number == 0)
        for number, rows in enumerate(parts)
    ]
    largest = max((int(lengths[rows].max()) * len(rows) for rows in parts), default=0)
    return MicroPlan(batches, padding_fraction(lengths, parts), largest)
