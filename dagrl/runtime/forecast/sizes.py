"""How large a model is, from its config.json and the headers of its weight files; nothing is loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.runtime.memory_estimate import weight_shapes
from dagrl.workflow.sections import AdapterSpec

_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".h5", ".msgpack")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """A decoder, in numbers."""

    num_weights: int
    num_tensors: int
    layers: int
    hidden: int
    ffn: int
    """Width of the feed-forward part."""
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    is_tied: bool
    """The output head is the embedding."""
    num_side_bytes: int
    """Of tokenizer and config files, which a checkpoint holds too."""

    @property
    def num_head_weights(self) -> int:
        return self.vocab * self.hidden

    @property
    def num_backbone_weights(self) -> int:
        """All without the output head."""
        return self.num_weights - (0 if self.is_tied else self.num_head_weights)

    @property
    def num_body_weights(self) -> int:
        """Those that every token is multiplied with: neither embedding nor output head."""
        return self.num_backbone_weights - self.num_head_weights

    @property
    def kv_per_token(self) -> int:
        """Numbers that the keys and values of one token are."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def num_adapter_weights(self, adapter: AdapterSpec) -> int:
        """Of a LoRA adapter on all linear layers of a block; a list of target modules has fewer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "q_proj": (self.hidden, q),
            "k_proj": (self.hidden, kv),
            "v_proj": (self.hidden, kv),
            "o_proj": (q, self.hidden),
            "gate_proj": (self.hidden, self.ffn),
            "up_proj": (self.hidden, self.ffn),
            "down_proj": (self.ffn, self.hidden),
        }
        wanted = shapes if isinstance(adapter.target_modules, str) else adapter.target_modules
        return self.layers * adapter.r * sum(sum(shape) for name, shape in shapes.items() if name in wanted)


def read_size(folder: Path) -> ModelSize | None:
    """The size of the model in `folder`; None where its files do not tell."""
    shapes, config = weight_shapes(folder), _config(folder / "config.json")
    layers, hidden, heads = (config.get(key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    if not shapes or not (isinstance(layers, int) and isinstance(hidden, int) and isinstance(heads, int)):
        return None
    return ModelSize(
        num_weights=sum(math.prod(shape) for shape in shapes.values()),
        num_tensors=len(shapes),
        layers=layers,
        hidden=hidden,
        ffn=config.get("intermediate_size") or 4 * hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        vocab=config["vocab_size"],
        is_tied=not any("lm_head" in name for name in shapes),
        num_side_bytes=sum(file.stat().st_size for file in folder.iterdir() if file.suffix not in _WEIGHT_SUFFIXES),
    )


def _config(file: Path) -> Mapping[str, Any]:
    """The config of the language model; a model of text and images has it one level down."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content.get("text_config") or content
