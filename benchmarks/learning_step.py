"""Times one optimizer step of PPO beside plain torch on a padded batch: same weights, same turns, same numbers out.

Run `OMP_NUM_THREADS=1 python benchmarks/learning_step.py` in the repository root. Rounds are interleaved in one
process; the figures are medians with minimum and maximum, of the time and of the CPU time, which a busy machine
lengthens less. Plain torch pads all turns of the minibatch to the longest and takes the logits of every position, as a
first version of such a trainer does. Before anything is timed, gradient norms and weights after a step are compared.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagrl.algorithms import Clip, ppo_loss, token_weights
from dagrl.backends.base import MicroBatch
from dagrl.backends.forward import Budget
from dagrl.backends.hf_trainer import HFPolicy
from dagrl.backends.network import Network
from dagrl.backends.optimizer import Optimizer
from dagrl.experience import Sequences, cumulative
from dagrl.workflow.sections import OptimSpec, UpdateSpec

NUM_TURNS = 64
LONGEST = 256
"""Response tokens."""
VOCABULARY = 4096
ROUNDS = 5
CLIP = Clip(low=0.2, high=0.2)
OPTIM = OptimSpec(lr=1e-4)
LENGTHS = {
    "equal lengths": lambda generator: torch.full((NUM_TURNS,), LONGEST // 4),
    "ragged": lambda generator: ragged(generator),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Turns to learn from, as the stream has them."""

    sequences: Sequences
    old_logprobs: Tensor
    """[T] float32, of the response tokens."""
    advantages: Tensor
    weights: Tensor
    """What each token counts in the loss."""


def ragged(generator: torch.Generator) -> Tensor:
    """[n]: most responses short, a few as long as is allowed, as sampled ones are."""
    lengths = (LONGEST / 8 * torch.exp(torch.randn(NUM_TURNS, generator=generator))).long().clamp(4, LONGEST)
    lengths[0] = LONGEST
    return lengths


def make_model() -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    return AutoModelForCausalLM.from_config(config)


def make_batch(response_lens: Tensor, generator: torch.Generator) -> Batch:
    prompt_lens = torch.randint(24, 64, (NUM_TURNS,), generator=generator)
    offsets = cumulative(prompt_lens + response_lens)
    num_tokens = int(response_lens.sum())
    return Batch(
        sequences=Sequences(
            input_ids=torch.randint(1, VOCABULARY, (int(offsets[-1]),), generator=generator),
            offsets=offsets,
            prompt_lens=prompt_lens,
            response_lens=response_lens,
            temperatures=torch.ones(NUM_TURNS),
        ),
        old_logprobs=-8.3 + 0.1 * torch.randn(num_tokens, generator=generator),
        advantages=torch.randn(num_tokens, generator=generator),
        weights=token_weights("token-mean", response_lens),
    )


class WithDagrl:
    """The update of the `transformers` engine, as TRAIN_ACTOR calls it, with the default budgets."""

    def __init__(self, model: Any) -> None:
        spec = UpdateSpec()
        budget = Budget(micro_batch_tokens=spec.micro_batch_tokens, logprob_chunk_tokens=spec.logprob_chunk_tokens)
        optimizer = Optimizer(list(model.parameters()), OPTIM, total_steps=None)
        network = Network(model.eval(), name="benchmark")
        self._policy = HFPolicy(network, tokenizer=None, budget=budget, optimizer=optimizer)

    def step(self, batch: Batch) -> float:
        """The gradient's norm before clipping."""

        def loss(logprobs: Tensor, entropy: Tensor, micro: MicroBatch) -> Tensor:
            own = (column[micro.tokens] for column in (batch.old_logprobs, batch.advantages, batch.weights))
            old, advantages, weights = own
            return (weights * ppo_loss(logprobs, old, advantages, CLIP).loss_T).sum()

        return self._policy.update(batch.sequences, loss).grad_norm


class WithTorch:
    """Padded ids, all logits, a mask."""

    def __init__(self, model: Any) -> None:
        self._model = model.train()
        self._adam = torch.optim.AdamW(model.parameters(), lr=OPTIM.lr, weight_decay=0.0, fused=True)

    def step(self, batch: Batch) -> float:
        ids, is_token, is_response = self._padded(batch.sequences)
        logits = self._model(input_ids=ids, attention_mask=is_token.long(), use_cache=False).logits[:, :-1]
        logprobs = torch.log_softmax(logits.float(), -1).gather(2, ids[:, 1:, None]).squeeze(2)
        mask = is_response[:, 1:]
        old, advantages, weights = (torch.zeros(mask.shape) for _ in range(3))
        old[mask], advantages[mask], weights[mask] = batch.old_logprobs, batch.advantages, batch.weights
        ratio = torch.exp(logprobs - old)
        clipped = ratio.clamp(1 - CLIP.low, 1 + CLIP.high)
        loss = (weights * torch.maximum(-advantages * ratio, -advantages * clipped)).sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), OPTIM.grad_clip or float("inf"))
        self._adam.step()
        self._adam.zero_grad()
        return float(norm)

    def _padded(self, sequences: Sequences) -> tuple[Tensor, Tensor, Tensor]:
        lengths = sequences.lengths
        place = torch.arange(int(lengths.max()))
        is_token = place < lengths[:, None]
        ids = torch.zeros(is_token.shape, dtype=torch.int64)
        ids[is_token] = sequences.input_ids
        return ids, is_token, is_token & (place >= sequences.prompt_lens[:, None])


def check(batch: Batch) -> None:
    """Both ways take the same step."""
    model = make_model()
    models = [model, copy.deepcopy(model)]
    norms = [way(one).step(batch) for way, one in zip((WithDagrl, WithTorch), models)]
    largest = max(float((a - b).detach().abs().max()) for a, b in zip(models[0].parameters(), models[1].parameters()))
    assert abs(norms[0] - norms[1]) < 1e-3 * norms[1], f"gradient norms {norms}"
    assert largest < 0.2 * OPTIM.lr, f"weights differ by {largest} after a step of at most {OPTIM.lr}"
    print(f"  the same step: gradient norms {norms[0]:.6f} and {norms[1]:.6f}, weights apart by at most {largest:.1e}")


def measured(step: Callable[[Batch], float], batch: Batch) -> tuple[float, float]:
    """(seconds, CPU seconds) of a step."""
    start, cpu = time.perf_counter(), time.process_time()
    step(batch)
    return time.perf_counter() - start, time.process_time() - cpu


def spread(values: list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def compare(title: str, batch: Batch) -> None:
    lengths = batch.sequences.lengths
    share = 1 - int(lengths.sum()) / (NUM_TURNS * int(lengths.max()))
    print(f"{title}: {NUM_TURNS} turns, {int(lengths.sum()):,} tokens; padded to the longest {share:.0%} are padding")
    check(batch)
    ways = {"dagrl": WithDagrl(make_model()), "padded torch": WithTorch(make_model())}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for way in ways.values():
        way.step(batch)
    for _ in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(measured(way.step, batch))
    for name, pairs in times.items():
        ratios = [pair[1] / own[1] for pair, own in zip(pairs, times["dagrl"])]
        wall, cpu = ([pair[part] for pair in pairs] for part in (0, 1))
        print(f"  {name:13s} {spread(wall)} s, CPU {spread(cpu)} s, CPU time / dagrl's {spread(ratios)}")


def main() -> None:
    print(f"{torch.get_num_threads()} threads; {Path('/proc/pressure/cpu').read_text().splitlines()[0]}")
    for title, lengths in LENGTHS.items():
        generator = torch.Generator().manual_seed(1)
        compare(title, make_batch(lengths(generator), generator))


if __name__ == "__main__":
    main()
