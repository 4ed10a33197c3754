"""One causal language model in memory: hidden states and head, and which LoRA adapter is switched on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor

from dagrl.backends.logprobs import Head
from dagrl.backends.vision import ImageProcessor, Sight, hidden_states
from dagrl.errors import DagrlError
from dagrl.experience import Sequences
from dagrl.types import Image

_PROBE_TOKENS = 5
_PROBE_TOLERANCE = 2e-2
"""Relative to the largest logit; room for bfloat16, far below what a forgotten scale or bias would do."""


class Network:
    """A Hugging Face causal language model, shared by whoever works with the same weights.

    `changes` counts, for the base (None) and each adapter by name, how often its weights were changed; keys and values
    computed before a change are of no use after it.
    """

    def __init__(self, module: Any, *, name: str, vision: ImageProcessor | None = None) -> None:
        """`vision`: where the model reads images too."""
        self.module = module
        self.vision = vision
        self.name = name
        self.device: torch.device = next(module.parameters()).device
        self.changes: dict[str | None, int] = {None: 0}
        self._tuners: list[BaseTunerLayer] = []
        self._active: str | None = None
        self._peft: Any = None
        self.head = head_of(module)
        _check_head(self)

    @property
    def config(self) -> Any:
        return self.module.config

    @property
    def has_adapters(self) -> bool:
        return self._peft is not None

    @property
    def peft(self) -> Any:
        """peft's model around the module; there once an adapter was attached."""
        assert self._peft is not None, f"{self.name} has no adapter"
        return self._peft

    def attach(self, adapter: str, peft: Any) -> None:
        """Tells that `peft` has put the layers of `adapter` into the module."""
        self._peft = peft
        self._tuners = [layer for layer in self.module.modules() if isinstance(layer, BaseTunerLayer)]
        self.changes[adapter] = 0
        self._switch(adapter)

    def use(self, adapter: str | None) -> None:
        """Switches `adapter` on and all others off; None leaves the bare base."""
        if adapter != self._active:
            self._switch(adapter)

    def hidden(self, input_ids: Tensor, **arguments: Any) -> Tensor:
        """[B, L, d] last hidden states, after the final norm, of `input_ids` [B, L]; `sights` tells what rows show."""
        return hidden_states(self.module.base_model, self.vision, input_ids, **arguments)

    def sight(self, prompt_ids: Sequence[int], images: Sequence[Image]) -> Sight | None:
        """What a prompt shows; None where it shows nothing."""
        assert self.vision is not None or not images, f"{self.name} reads no images"
        return None if self.vision is None else self.vision.sight(self.module.base_model, prompt_ids, images)

    def sights(self, sequences: Sequences, turns: Tensor) -> list[Sight | None] | None:
        """The same of `turns`; None where none of them shows anything."""
        return None if self.vision is None else self.vision.sights(self.module.base_model, sequences, turns)

    def note_change(self, adapter: str | None) -> None:
        self.changes[adapter] += 1

    def _switch(self, adapter: str | None) -> None:
        for layer in self._tuners:
            layer.enable_adapters(adapter is not None)
            if adapter is not None:
                layer.set_adapter(adapter)
        self._active = adapter


def head_of(module: Any) -> Head:
    """The head of a causal language model, with what its config says happens to the logits."""
    output = module.get_output_embeddings()
    if output is None or not hasattr(output, "weight"):
        raise DagrlError("the model has no language model head", where=type(module).__name__)
    config = module.config.get_text_config()
    scale = getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)
    return Head(
        weight=output.weight,
        bias=getattr(output, "bias", None),
        scale=(1.0 if scale is None else float(scale)) / (1.0 if divisor is None else float(divisor)),
        softcap=getattr(config, "final_logit_softcapping", None),
    )


@torch.no_grad()
def _check_head(network: Network) -> None:
    """Refuses a model that computes its logits in a way `Head` does not know."""
    ids = torch.arange(_PROBE_TOKENS, device=network.device)[None] % network.config.get_text_config().vocab_size
    expected = network.module(input_ids=ids, use_cache=False).logits.float()
    got = network.head.logits(network.hidden(ids, use_cache=False)).float()
    if (expected - got).abs().max() > _PROBE_TOLERANCE * expected.abs().max().clamp_min(1.0):
        raise DagrlError(
            f"{type(network.module).__name__} computes its logits in a way that is not known here",
            where=network.name,
            how="use a model whose logits are its head applied to the last hidden states",
        )
