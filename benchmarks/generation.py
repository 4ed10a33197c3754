"""Times the embedded engine beside transformers' own `generate` and `generate_batch` on one small model.

Run `OMP_NUM_THREADS=2 python benchmarks/generation.py` in the repository root, on a quiet machine. Rounds are
interleaved in one process; the figures are medians with minimum and maximum. "ragged" gives every response its own
length, which `generate` cannot know: it runs until the longest is done, and only the tokens asked for are counted.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config
from transformers.generation.configuration_utils import ContinuousBatchingConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagrl.backends.hf_generator import HFGenerator
from dagrl.backends.hf_trainer import HFPolicy
from dagrl.backends.memory import Budget
from dagrl.backends.network import Network
from dagrl.types import GenerationRequest, SamplingParams

NUM_PROMPTS = 32
SAMPLES = 4
VOCABULARY = 512
LONGEST = 160
ROUNDS = 5
ROUNDS_OF_GENERATE_BATCH = 1
"""It is too slow on a CPU for more."""

Lengths = Sequence[int]


class NoTokenizer:
    """The engine asks for an end token and, with stop strings, for text; here there are neither."""

    eos_token_id = None


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
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return AutoModelForCausalLM.from_config(config).eval()


def make_prompts() -> list[list[int]]:
    rng = random.Random(0)
    prompts = [[rng.randrange(1, VOCABULARY) for _ in range(rng.randrange(40, 100))] for _ in range(NUM_PROMPTS)]
    return [prompt for prompt in prompts for _ in range(SAMPLES)]


def with_engine(model: Any) -> Callable[[Sequence[list[int]], Lengths], None]:
    budget = Budget(micro_batch_tokens=8192, logprob_chunk_tokens=2048)
    policy = HFPolicy(Network(model, name="benchmark"), tokenizer=NoTokenizer(), budget=budget, optimizer=None)
    engine = HFGenerator({0: policy}, {0: "benchmark"}, max_rows=256, cache_tokens=0)

    def run(prompts: Sequence[list[int]], lengths: Lengths) -> None:
        async def ask() -> None:
            requests = [
                GenerationRequest(
                    agent_group=0, prompt_ids=tuple(prompt), params=SamplingParams(max_tokens=length), seed=seed
                )
                for seed, (prompt, length) in enumerate(zip(prompts, lengths))
            ]
            await asyncio.gather(*map(engine.generate, requests))

        asyncio.run(ask())

    return run


def with_generate(model: Any) -> Callable[[Sequence[list[int]], Lengths], None]:
    def run(prompts: Sequence[list[int]], lengths: Lengths) -> None:
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        model.generate(
            ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=max(lengths), output_logits=True
        )

    return run


def with_generate_batch(model: Any) -> Callable[[Sequence[list[int]], Lengths], None]:
    settings = ContinuousBatchingConfig(
        num_blocks=256, page_size=128, max_batch_tokens=4096, max_requests_per_batch=256, return_logprobs=True
    )

    def run(prompts: Sequence[list[int]], lengths: Lengths) -> None:
        config = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=max(lengths), pad_token_id=0, eos_token_id=-1)
        found = model.generate_batch(
            list(prompts), generation_config=config, continuous_batching_config=settings, warmup=False
        )
        assert len(found) == len(prompts), "generate_batch did not answer every prompt"

    return run


def seconds(
    run: Callable[[Sequence[list[int]], Lengths], None], prompts: Sequence[list[int]], lengths: Lengths
) -> float:
    start = time.perf_counter()
    with torch.no_grad():
        run(prompts, lengths)
    return time.perf_counter() - start


def report(name: str, times: Sequence[float], own: Sequence[float], num_tokens: int) -> None:
    ratios = [theirs / ours for theirs, ours in zip(times, own)]
    print(
        f"  {name:16s} {statistics.median(times):7.2f} s  {num_tokens / statistics.median(times):8.0f} tokens/s  "
        f"time / engine's {statistics.median(ratios):6.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    )


def compare(title: str, lengths: Lengths, prompts: Sequence[list[int]], runs: dict[str, Any]) -> None:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        seconds(run, prompts[:8], [4] * 8)
    for number in range(ROUNDS):
        for name, run in runs.items():
            if name != "generate_batch" or number < ROUNDS_OF_GENERATE_BATCH:
                times[name].append(seconds(run, prompts, lengths))
    print(f"{title}: {len(prompts)} responses, {sum(lengths)} tokens")
    for name, measured in times.items():
        report(name, measured, times["engine"], sum(lengths))


def main() -> None:
    model, prompts, rng = make_model(), make_prompts(), random.Random(1)
    runs = {"engine": with_engine(model), "generate": with_generate(model)}
    if "--generate-batch" in sys.argv:
        runs["generate_batch"] = with_generate_batch(make_model())
    print(f"{torch.get_num_threads()} threads; {Path('/proc/pressure/cpu').read_text().splitlines()[0]}")
    compare("equal lengths", [LONGEST // 2] * len(prompts), prompts, runs)
    compare("ragged", [rng.randrange(8, LONGEST) for _ in prompts], prompts, runs)
    print(Path("/proc/pressure/cpu").read_text().splitlines()[0])


if __name__ == "__main__":
    main()
