"""What a model is, as far as weights that were saved must fit it: a flat record in JSON, equal for equal models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch.nn import Module

from dagrl.backends.hf_critic import HFCritic
from dagrl.backends.hf_trainer import HFPolicy

Identity = Mapping[str, Any]
"""Name of a field to a number, a text, a truth value or a list."""

_CONFIG_FIELDS = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim",
                  "num_attention_heads", "num_key_value_heads", "hidden_act", "tie_word_embeddings")  # fmt: skip
_ADAPTER_FIELDS = ("r", "lora_alpha", "target_modules")
_LORA = ".lora_"
"""In the names of weights that belong to an adapter, not to its base."""


def policy_identity(policy: HFPolicy) -> Identity:
    """Of an agent: network, adapter, tokenizer."""
    own = _network(policy.network.module) | _tokenizer(policy.tokenizer)
    if policy.adapter is None:
        return own
    config = policy.network.peft.peft_config[policy.adapter]
    fields = {name: getattr(config, name) for name in _ADAPTER_FIELDS}
    return own | {f"adapter {name}": _as_json(value) for name, value in fields.items()}


def critic_identity(critic: HFCritic) -> Identity:
    """Of a critic: its head, its backbone where that is trained with it, tokenizer."""
    backbone = {} if critic.backbone is None else _network(critic.backbone)
    shapes = [list(weight.shape) for weight in critic.head.parameters()]
    return {"value head": shapes} | backbone | _tokenizer(critic.tokenizer)


def _network(module: Module) -> dict[str, Any]:
    config: Any = module.config
    weights = [weight for name, weight in module.named_parameters() if _LORA not in name]
    values = {name: getattr(config.get_text_config(), name, None) for name in _CONFIG_FIELDS}
    known = {name: value for name, value in values.items() if value is not None}
    return known | {"dtype": str(weights[0].dtype), "num_weights": sum(weight.numel() for weight in weights)}


def _tokenizer(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocabulary": _digest(tokenizer.get_vocab()),
        "special tokens": _digest({name: str(token) for name, token in tokenizer.special_tokens_map.items()}),
        "chat template": _digest(tokenizer.chat_template),
    }


def _digest(value: Any) -> str:
    """The start of a hash, enough to tell two apart and to be read aloud."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _as_json(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset, list, tuple)) else value
