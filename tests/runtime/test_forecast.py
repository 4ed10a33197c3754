"""A forecast by hand: sizes, operations, memory, disk, budgets, who trains when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2Config, Qwen2ForCausalLM

from dagrl.runtime.forecast import arithmetic, footprint
from dagrl.runtime.forecast.rehearsal import TurnSize
from dagrl.runtime.forecast.sizes import ModelSize, read_size
from dagrl.runtime.forecast.verdicts import verdicts
from dagrl.runtime.forecast.whole import Forecast, schedule
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.sections import AdapterSpec, TrainerSpec
from tests.tiny_project import write_project

SIZE = ModelSize(
    num_weights=1000, num_tensors=10, layers=2, hidden=8, ffn=16, heads=2, kv_heads=1, head_dim=4, vocab=20,
    is_tied=False, num_side_bytes=100,
)  # fmt: skip


def turn(prompt: int, response: int) -> TurnSize:
    return TurnSize(group=0, prompt=prompt, response=response, is_trained=True)


@pytest.mark.parametrize("tied", [True, False])
def test_a_models_size_is_what_the_model_itself_says_and_no_weight_is_read(tmp_path, tied: bool) -> None:
    config = Qwen2Config(
        vocab_size=30, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=tied,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(tmp_path)
    size = read_size(tmp_path)
    assert size.num_weights == sum(weight.numel() for weight in model.parameters())
    assert size.num_backbone_weights == sum(weight.numel() for weight in model.model.parameters())
    assert size.num_body_weights == sum(w.numel() for n, w in model.model.named_parameters() if "embed" not in n)
    assert (size.layers, size.kv_per_token, size.is_tied) == (3, 3 * 2 * 2 * 4, tied)
    assert read_size(tmp_path / "nowhere") is None


def test_operations_of_a_forward_pass_are_those_that_torch_counts(tmp_path) -> None:
    config = Qwen2Config(
        vocab_size=30, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(tmp_path)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.model(input_ids=torch.zeros(1, 20, dtype=torch.int64), use_cache=False)
    ours = arithmetic.forward(read_size(tmp_path), [turn(12, 8)])
    upper_half = 2 * 2 * 16 * 20 * 20  # of the square, which eager attention computes too
    vectors = sum(weight.numel() for weight in model.model.parameters() if weight.dim() == 1)  # added, not multiplied
    assert ours + upper_half - 2 * vectors * 20 == counter.get_total_flops()


def test_operations_by_hand() -> None:
    body = 2 * SIZE.num_body_weights * 5 + 2 * 2 * 8 * 25
    assert arithmetic.forward(SIZE, [turn(3, 2)]) == body
    assert arithmetic.head(SIZE, [turn(3, 2), turn(1, 4)]) == 2 * 160 * 6
    assert arithmetic.training(10.0, 1.0) == 10 * 3 + 4
    assert arithmetic.training(10.0, 1.0, recomputes=True) == 10 * 4 + 4
    assert arithmetic.training(10.0, 1.0, trains_weights=False) == 10 * 2 + 3
    assert arithmetic.training(10.0, 1.0, is_frozen=True) == 10


def test_an_adapters_weights_by_hand() -> None:
    per_layer = 4 * ((8 + 8) + (8 + 4) + (8 + 4) + (8 + 8) + (8 + 16) + (8 + 16) + (16 + 8))
    assert SIZE.num_adapter_weights(AdapterSpec(r=4)) == 2 * per_layer
    assert SIZE.num_adapter_weights(AdapterSpec(r=4, target_modules=["q_proj"])) == 2 * 4 * 16


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 1),
        ({"save_freq": 3}, 4),
        ({"save_freq": 3, "keep_last": 2}, 2),
        ({"save_freq": 3, "keep_last": 2, "test_freq": 3}, 3),
        ({"save_freq": 5}, 2),
    ],
)
def test_how_many_checkpoints_are_left_after_ten_steps(settings: dict[str, int], count: int) -> None:
    assert footprint.num_checkpoints(TrainerSpec(**settings), 10) == count


def test_keys_and_values_and_logits_by_hand(tmp_path) -> None:
    workflow = load_workflow(write_project(tmp_path), ["config.actor.logprob_chunk_tokens=6"])
    rollout = SimpleNamespace(max_batch_size=3, prefix_cache_tokens=7)
    load = footprint.load_of([turn(3, 2), turn(6, 4)], rollout, 8.0, 100)
    assert (load.num_rows, load.tokens, load.kept_tokens) == (3, 60, 7)
    found = footprint.memory(workflow.groups[0], SIZE, None, load)
    assert found.kv_cache == 2 * 2 * 1 * 4 * 4 * (3 * 10 + 7)
    assert found.logits == 3 * 4 * 20 * 6
    assert found.weights == 1000 * 4
    assert found.training == 1000 * 12
    largest = footprint.largest_tensor(workflow.groups[0], SIZE, load)
    assert (largest.what, largest.shape, largest.num_bytes) == ("feed-forward activations", (60, 16), 60 * 16 * 4)


def test_who_trains_when_follows_cycle_and_warm_up(tmp_path) -> None:
    cycles = [f"nodes.{name}.agent_options.train_cycle=2" for name in ("train_0", "train_1")]
    workflow = load_workflow(write_project(tmp_path), [*cycles, "config.trainer.critic_warmup=1"])
    blocks = [(block.first, block.last, block.trains) for block in schedule(workflow, 6)]
    assert blocks == [
        (1, 1, ("critic_0",)),
        (2, 2, ("critic_0", "train_0")),
        (3, 4, ("critic_0", "train_1")),
        (5, 6, ("critic_0", "train_0")),
    ]


def test_budgets_that_cannot_fit_and_those_that_end_the_run_are_told(tmp_path) -> None:
    found = Forecast(
        dag_id="x", steps=10, trajectories=4, num_rows=4, rehearsed_rows=4, device="cpu",
        at_most={"tokens": 1000, "env_calls": 80, "judge_calls": 40},
        limits={"tokens": 99, "env_calls": 35, "judge_calls": 41},
    )  # fmt: skip
    told = verdicts(found, tmp_path)
    assert told == [
        "stop_when.tokens cannot fit: tokens 1,000 of 99; one step is more than the whole budget",
        "stop_when.env_calls ends the run about step 4 of 10: the whole would be env_calls 80 of 35",
    ]


def test_memory_and_disk_that_do_not_suffice_are_told(tmp_path) -> None:
    huge = footprint.Memory(weights=2**60, training=0, reference=0, critic=0, kv_cache=0, activations=0, logits=0)
    found = Forecast(
        dag_id="x", steps=1, trajectories=4, num_rows=4, rehearsed_rows=4, device="cpu",
        memory={"a": huge}, checkpoint_bytes=2**60, num_checkpoints=1,
    )  # fmt: skip
    memory, disk = verdicts(found, tmp_path / "not" / "there")
    assert memory.startswith("memory: about 1073741824.0 GiB on cpu, which has")
    assert disk.startswith("disk: about 1073741824.0 GiB")
