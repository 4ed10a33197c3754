"""Memory and disk: what models, keys and values, activations and logits take, and what a run leaves on the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagrl.runtime.forecast.rehearsal import TurnSize
from dagrl.runtime.forecast.sizes import ModelSize
from dagrl.runtime.memory_estimate import WIDTH, estimate
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.sections import RolloutSpec, TrainerSpec, UpdateSpec

_SMALL = 4
"""Bytes of a float32: moments, masters, logits."""
_TENSOR_NAMES = 260
"""Bytes that a saved tensor of an optimizer takes beside its numbers: its name, shape and place, twice."""
_STATE_BYTES = 16_000
"""Of random states, positions and the manifest of a checkpoint."""
_RESPONSE_BYTES, _PROMPT_BYTES, _TURN_BYTES = 28, 2, 60
"""On the disk per token and turn in trajectories/, compressed: about, for words compress more or less."""
_ROW_BYTES = 9_000
"""Of one step in metrics.jsonl, timings.jsonl, ledger.jsonl and TensorBoard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one agent at its worst moment."""

    weights: int
    training: int
    """Gradients and optimizer."""
    reference: int
    critic: int
    """Weights, gradients and optimizer of a critic that it owns."""
    kv_cache: int
    """Keys and values of the responses being given and of the prefixes kept."""
    activations: int
    """Kept for the backward pass of one micro-batch."""
    logits: int
    """Of one chunk, three times: logits, log-probs and their gradient."""

    @property
    def total(self) -> int:
        models = self.weights + self.training + self.reference + self.critic
        return models + self.kv_cache + self.activations + self.logits


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestTensor:
    what: str
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an agent's models have to carry at once."""

    turns: Sequence[TurnSize]
    """Rehearsed, of the agent."""
    num_rows: int
    """Responses given at the same time."""
    tokens: int
    """Of all its turns in a step."""
    kept_tokens: int
    """Of finished conversations in the prefix cache."""


def memory(group: AgentGroup, size: ModelSize, critic: ModelSize | None, load: Load) -> Memory:
    """At full length of every response."""
    own_critic = 0 if critic is None else critic.num_backbone_weights
    models = estimate(group, size.num_weights, own_critic)
    width = WIDTH[group.model.dtype]
    positions = _positions(group.actor, load)
    trained = positions * _kept_numbers(size, is_recomputed=group.model.gradient_checkpointing) * width
    return Memory(
        weights=models.policy,
        training=models.training,
        reference=models.reference,
        critic=models.critic,
        kv_cache=size.kv_per_token * width * (load.num_rows * _longest(load) + load.kept_tokens),
        activations=trained if group.is_trained or group.critic is not None else 0,
        logits=3 * _SMALL * size.vocab * _chunk(group.actor, load),
    )


def largest_tensor(group: AgentGroup, size: ModelSize, load: Load) -> LargestTensor:
    """The largest single block of numbers that the agent's work needs."""
    width, positions = WIDTH[group.model.dtype], _positions(group.actor, load)
    planes = (2 * size.layers, load.num_rows, size.kv_heads, _longest(load), size.head_dim)
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "logits of one chunk": ((_chunk(group.actor, load), size.vocab), _SMALL),
        "embedding": ((size.vocab, size.hidden), width),
        "keys and values": (planes, width),
        "feed-forward activations": ((positions, size.ffn), width),
    }
    found = [
        LargestTensor(what=what, shape=shape, num_bytes=_product(shape) * own) for what, (shape, own) in shapes.items()
    ]
    return max(found, key=lambda one: one.num_bytes)


def checkpoint_bytes(
    groups: Sequence[AgentGroup], sizes: Mapping[int, ModelSize], critics: Mapping[int, ModelSize]
) -> int:
    """Of one checkpoint: weights, tokenizers, optimizers, state."""
    total = _STATE_BYTES
    for group in groups:
        if group.is_trained:
            size = sizes[group.index]
            adapter = group.adapter
            trained = size.num_weights if adapter is None else size.num_adapter_weights(adapter)
            width = WIDTH[group.model.dtype] if adapter is None else _SMALL
            num_tensors = size.num_tensors if adapter is None else 14 * size.layers
            total += trained * (width + _moments(width)) + size.num_side_bytes + num_tensors * _state_names(width)
        if group.critic is not None and group.critic_model is not None and group.index in critics:
            total += _critic_bytes(group, critics[group.index])
    return total


def num_checkpoints(trainer: TrainerSpec, steps: int) -> int:
    """That are on the disk at the end, at most; without those that `save_minutes` adds."""
    written = 1 if not trainer.save_freq else 1 + (steps - 1) // trainer.save_freq
    best = trainer.keep_best if trainer.test_freq else 0
    return written if trainer.keep_last is None else min(written, trainer.keep_last + best)


def trajectory_bytes(turns: float, prompt_tokens: float, tokens: float) -> int:
    return round(_TURN_BYTES * turns + _PROMPT_BYTES * prompt_tokens + _RESPONSE_BYTES * tokens)


def log_bytes(steps: int) -> int:
    return _ROW_BYTES * steps


def load_of(turns: Sequence[TurnSize], rollout: RolloutSpec, num_turns: float, num_at_once: int) -> Load:
    """`num_turns`: of the agent in a step; `num_at_once`: trajectories in play."""
    tokens = sum(turn.prompt + turn.response for turn in turns) / max(len(turns), 1) * num_turns
    return Load(
        turns=turns,
        num_rows=min(rollout.max_batch_size, num_at_once),
        tokens=round(tokens),
        kept_tokens=min(rollout.prefix_cache_tokens, round(tokens)),
    )


def _critic_bytes(group: AgentGroup, size: ModelSize) -> int:
    assert group.critic is not None and group.critic_model is not None
    if group.critic.kind == "value_head":
        first = group.critic.head_hidden
        trained = size.hidden * first + first * 512 + 512
        return trained * 3 * _SMALL + size.num_side_bytes
    width = WIDTH[group.critic_model.dtype]
    names = size.num_tensors * _state_names(width)
    return size.num_backbone_weights * (width + _moments(width)) + size.num_side_bytes + names


def _moments(width: int) -> int:
    """Bytes of an optimizer's numbers for one weight of `width` bytes: two moments, and a master of low precision."""
    return 2 * _SMALL + (_SMALL if width < _SMALL else 0)


def _state_names(width: int) -> int:
    """Two moments, the count of steps, the master of low precision, and the weight itself."""
    return _TENSOR_NAMES * (3 + (width < _SMALL)) + 100


def _kept_numbers(size: ModelSize, *, is_recomputed: bool) -> int:
    """Numbers that a forward pass keeps of one token for the backward pass."""
    kv = size.kv_heads * size.head_dim
    layer = 8 * size.hidden + 2 * kv + 4 * size.ffn
    return size.layers * size.hidden + layer if is_recomputed else size.layers * layer


def _positions(spec: UpdateSpec, load: Load) -> int:
    return min(max(spec.micro_batch_tokens, _longest(load)), load.tokens)


def _chunk(spec: UpdateSpec, load: Load) -> int:
    return min(spec.logprob_chunk_tokens, _positions(spec, load))


def _longest(load: Load) -> int:
    return max((turn.prompt + turn.response for turn in load.turns), default=0)


def _product(shape: Sequence[int]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total
