"""Critics on Hugging Face models: a backbone of its own with a scalar head, or a small head on a frozen base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dagrl.backends.base import MicroBatch, UpdateStats, ValueLoss, Values
from dagrl.backends.forward import (
    enable_checkpointing,
    optimize,
    padded,
    pick,
    plan_values,
    training_mode,
)
from dagrl.backends.loading import restore_weights
from dagrl.backends.memory import Budget, MicroPlan, within_memory
from dagrl.backends.network import Network
from dagrl.backends.optimizer import Optimizer
from dagrl.backends.vision import ImageProcessor, Sight, hidden_states
from dagrl.experience import Sequences
from dagrl.workflow.sections import OptimSpec

HEAD_FILE = "value_head.safetensors"
_SECOND_LAYER = 512
"""Width of the second layer of MARFT's value head (github.com/jwliao-ai/MARFT): hidden -> 1024 -> 512 -> 1."""

Hidden = Callable[[Tensor, list[Sight | None] | None], Tensor]
"""([B, L] ids on the device, what each row shows) -> [B, L, d] last hidden states."""


def scalar_head(width: int, device: torch.device) -> nn.Linear:
    """One linear layer from hidden states to a value, float32, zero at the start: every value begins at 0."""
    head = nn.Linear(width, 1, device=device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def mlp_head(width: int, head_hidden: int, device: torch.device, *, seed: int) -> nn.Module:
    """MARFT's head for a frozen base: `width` -> `head_hidden` -> 512 -> 1, ReLU, float32; its last layer is zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first, second = nn.Linear(width, head_hidden), nn.Linear(head_hidden, _SECOND_LAYER)
    last = scalar_head(_SECOND_LAYER, torch.device("cpu"))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).to(device)


class HFCritic:
    """A value of every state before a response token, and of the state after each turn.

    `backbone` is trained with the head, or None where the base behind `hidden` is frozen.
    """

    def __init__(
        self,
        hidden: Hidden,
        head: nn.Module,
        *,
        backbone: Any | None,
        tokenizer: Any,
        budget: Budget,
        optim: OptimSpec,
        total_steps: int | None,
        has_checkpointing: bool = False,
        sights: Callable[[Sequences, Tensor], list[Sight | None] | None] = lambda sequences, turns: None,
    ) -> None:
        """`sights`: what turns show, where the model reads images."""
        self.head = head
        self.backbone = backbone
        self._hidden = hidden
        self._sights = sights
        self.tokenizer = tokenizer
        self.budget = budget
        if has_checkpointing:
            enable_checkpointing(backbone)
        self._device = next(head.parameters()).device
        trained = list(head.parameters()) + ([] if backbone is None else list(backbone.parameters()))
        self._optimizer = Optimizer(trained, optim, total_steps=total_steps)

    @classmethod
    def with_backbone(cls, backbone: Any, *, vision: ImageProcessor | None = None, **common: Any) -> HFCritic:
        """All weights of `backbone` are trained together with a linear head."""
        head = scalar_head(backbone.config.get_text_config().hidden_size, next(backbone.parameters()).device)

        def hidden(ids: Tensor, sights: list[Sight | None] | None) -> Tensor:
            return hidden_states(backbone, vision, ids, sights, use_cache=False)

        if vision is not None:
            common["sights"] = partial(vision.sights, backbone)
        return cls(hidden, head, backbone=backbone, **common)

    @classmethod
    def on_frozen(cls, network: Network, *, head_hidden: int, seed: int, **common: Any) -> HFCritic:
        """Only MARFT's head is trained; `network` is shared with whoever else needs the same frozen weights."""
        head = mlp_head(network.config.get_text_config().hidden_size, head_hidden, network.device, seed=seed)

        @torch.no_grad()
        def hidden(ids: Tensor, sights: list[Sight | None] | None) -> Tensor:
            network.use(None)
            return network.hidden(ids, sights=sights, use_cache=False)

        return cls(hidden, head, backbone=None, sights=network.sights, **common)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """What is trained: the head and, where there is one, the backbone."""
        return (self.head,) if self.backbone is None else (self.head, self.backbone)

    @property
    def version(self) -> int:
        return self._optimizer.version

    @property
    def num_optimizer_bytes(self) -> int:
        """Memory of moments and master weights."""
        return self._optimizer.num_bytes

    @torch.no_grad()
    def values(self, sequences: Sequences) -> Values:
        values, last = torch.zeros(int(sequences.response_lens.sum())), torch.zeros(len(sequences))

        def work(micro_plan: MicroPlan) -> float:
            for batch in micro_plan.batches:
                states = self._states(sequences, batch)
                lens = sequences.response_lens[batch.turns]
                values[batch.tokens] = self._read(states, sequences.prompt_lens[batch.turns] - 1, lens)
                last[batch.turns] = self._read(states, sequences.lengths[batch.turns] - 1, torch.ones_like(lens))
            return micro_plan.padding

        padding = within_memory(self.budget, lambda: plan_values(sequences, self.budget), work)
        return Values(values=values, last_values=last, padding=padding)

    def update(self, sequences: Sequences, loss: ValueLoss) -> UpdateStats:
        """One optimizer step on all of `sequences`."""
        assert len(sequences), "an update needs at least one turn"
        with training_mode(self.head if self.backbone is None else self.backbone):
            return optimize(
                self.budget,
                lambda: plan_values(sequences, self.budget),
                lambda micro_plan: self._shares(sequences, micro_plan, loss),
                self._optimizer,
            )

    def save(self, folder: Path) -> None:
        """Head, tokenizer and, where it is trained, the backbone."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in self.head.state_dict().items()}, folder / HEAD_FILE)
        if self.backbone is not None:
            self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Takes the weights that `save` wrote; optimizer and version come by `load_state_dict`, after this."""
        self.head.load_state_dict(load_file(folder / HEAD_FILE))
        if self.backbone is not None:
            restore_weights(self.backbone, folder)
        self._optimizer.reread()

    def state_dict(self) -> dict[str, Any]:
        return self._optimizer.state_dict() | self.budget.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(state)
        self.budget.load_state_dict(state)

    def _states(self, sequences: Sequences, batch: MicroBatch) -> Tensor:
        ids = padded(sequences, batch.turns, sequences.lengths[batch.turns])
        return self._hidden(ids.to(self._device), self._sights(sequences, batch.turns))

    def _read(self, states: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        """[sum(lengths)] values at `starts` and the positions after, float32, on the CPU."""
        read: Tensor = self.head(pick(states, starts, lengths).float()).squeeze(-1)
        return read.cpu()

    def _shares(self, sequences: Sequences, micro_plan: MicroPlan, loss: ValueLoss) -> Iterator[Tensor]:
        for batch in micro_plan.batches:
            states = self._states(sequences, batch)
            lens = sequences.response_lens[batch.turns]
            yield loss(self._read(states, sequences.prompt_lens[batch.turns] - 1, lens), batch)
