"""A tokenizer without a model: one token for each byte. For trying hooks where no model is at hand."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """261 tokens: bytes, padding, end, and the roles of a chat."""
    special = [PAD, END, "<|system|>", "<|user|>", "<|assistant|>"]
    symbols = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(symbols)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    make: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerBase = make(tokenizer_object=core, pad_token=PAD, eos_token=END)
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer
