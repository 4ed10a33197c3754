"""Times `marft_gae` and `gae` on 1,000,000 tokens in 10,000 trajectories, beside two plain ways to write it.

Run `python benchmarks/gae.py` in the repository root. The plain ways are measured on the first trajectories
alone and scaled up by tokens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagrl.algorithms import Links, TurnLayout, gae, marft_gae, reverse_linear_scan

NUM_TRAJECTORIES = 10_000
NUM_ROUNDS = 3
NUM_AGENTS = 2
NUM_TOKENS = 1_000_000
NUM_PLAIN_TRAJECTORIES = 500
REPEATS = 5
LINKS = Links(gamma=0.99, lam=0.95, gamma_agent=1.0, lam_agent=0.97, gamma_token=1.0, lam_token=0.99)

Batch = tuple[Tensor, Tensor, TurnLayout, Tensor]


def make_batch(num_trajectories: int, num_tokens: int) -> Batch:
    """Ragged random responses, about one turn in fifty empty, one trajectory in three truncated."""
    generator = torch.Generator().manual_seed(0)
    num_turns = num_trajectories * NUM_ROUNDS * NUM_AGENTS
    shares = torch.rand(num_turns, generator=generator).clamp(min=0.02) - 0.02
    lens = (shares / shares.sum() * num_tokens).long()
    lens[0] += num_tokens - int(lens.sum())
    turns_each = NUM_ROUNDS * NUM_AGENTS
    layout = TurnLayout(
        response_lens=lens,
        trajectory=torch.arange(num_trajectories).repeat_interleave(turns_each),
        round=torch.arange(NUM_ROUNDS).repeat_interleave(NUM_AGENTS).repeat(num_trajectories),
        agent_group=torch.arange(NUM_AGENTS).repeat(NUM_ROUNDS * num_trajectories),
    )
    rewards, values = torch.rand(2, num_tokens, generator=generator)
    is_truncated = torch.rand(num_trajectories, generator=generator) < 1 / 3
    return rewards, values, layout, is_truncated.float() * 0.5


def token_loop(batch: Batch) -> list[float]:
    """One Python step per token on lists of floats; agent and round links alike, for the time alone."""
    rewards, values, layout, _ = batch
    ends = set((layout.response_lens.cumsum(0) - 1).tolist())
    reward_list, value_list = rewards.tolist(), values.tolist()
    advantages = [0.0] * len(value_list)
    running = next_value = 0.0
    for token in reversed(range(len(value_list))):
        gamma, lam = (LINKS.gamma, LINKS.lam) if token in ends else (LINKS.gamma_token, LINKS.lam_token)
        delta = reward_list[token] + gamma * next_value - value_list[token]
        running = delta + gamma * lam * running
        advantages[token], next_value = running, value_list[token]
    return advantages


def tensor_loop(batch: Batch) -> Tensor:
    """One step per token on tensors, trajectory by trajectory, as most trainers do."""
    rewards, values, layout, _ = batch
    lens = torch.zeros(layout.num_trajectories, dtype=torch.long)
    lens.index_add_(0, layout.trajectory, layout.response_lens)
    advantages = torch.zeros_like(values)
    start = 0
    for length in lens.tolist():
        running = next_value = torch.zeros(())
        for token in reversed(range(start, start + length)):
            running = rewards[token] + LINKS.gamma * next_value - values[token] + LINKS.lam * running
            advantages[token], next_value = running, values[token]
        start += length
    return advantages


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Shortest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    batch = make_batch(NUM_TRAJECTORIES, NUM_TOKENS)
    small_tokens = NUM_TOKENS * NUM_PLAIN_TRAJECTORIES // NUM_TRAJECTORIES
    small = make_batch(NUM_PLAIN_TRAJECTORIES, small_tokens)
    scale = NUM_TOKENS / small_tokens
    print(f"{NUM_TOKENS:,} tokens, {NUM_TRAJECTORIES:,} trajectories, torch threads {torch.get_num_threads()}")
    deltas, decay = torch.rand(2, NUM_TOKENS, dtype=torch.float64)
    rows = {
        "marft_gae": seconds(lambda: marft_gae(*batch, LINKS)),
        "marft_gae, action level": seconds(lambda: marft_gae(*batch, LINKS, action_level=True)),
        "gae (each agent by itself)": seconds(lambda: gae(*batch, LINKS)),
        "scan alone, one segment of all tokens": seconds(lambda: reverse_linear_scan(deltas, decay)),
        f"Python loop over tokens (x{scale:g})": seconds(lambda: token_loop(small)) * scale,
        f"tensor loop per trajectory (x{scale:g})": seconds(lambda: tensor_loop(small), 1) * scale,
    }
    for name, duration in rows.items():
        print(f"{name:<40} {duration:8.3f} s")


if __name__ == "__main__":
    main()
