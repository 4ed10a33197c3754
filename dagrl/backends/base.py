"""The protocols between nodes and model libraries: Generator, PolicyModel, ReferenceModel, ValueModel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from dagrl.experience import Sequences
from dagrl.images import pieces
from dagrl.trace_events import Timed
from dagrl.types import Completion, GenerationRequest, Image, Metrics
from dagrl.workflow.sections import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a policy thinks of given responses; T response tokens, float32, on the CPU, without gradient."""

    logprobs: Tensor
    """[T] log softmax(logits / temperature) of every response token."""
    entropy: Tensor
    """[T] entropy in nats of softmax(logits / temperature) at every response token."""
    padding: float
    """Share of computed positions that were padding, in [0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a critic thinks; float32, on the CPU, without gradient."""

    values: Tensor
    """[T]: value of the state *before* each response token (read at the position before it)."""
    last_values: Tensor
    """[n]: value of the state after each turn's last token."""
    padding: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Which part of the given sequences a loss is asked for: always whole turns."""

    turns: Tensor
    """[m] int64: positions of its turns among the n turns given."""
    tokens: Tensor
    """[M] int64: positions of its response tokens among the T response tokens given, turn by turn."""
    is_first: bool = False
    """A pass over the sequences begins; one that it interrupts ran out of memory and is as if it had never been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one optimizer step did."""

    loss: float
    grad_norm: float
    """Before clipping."""
    lr: float
    """That the step was made with."""
    padding: float
    num_micro_batches: int
    is_finite: bool
    """False: loss or gradient was not finite and no step was made."""
    suspects: Tensor | None = None
    """[m] int64: where a loss was not finite the turns of its micro-batch, among those given; None: any of them."""


PolicyLoss = Callable[[Tensor, Tensor, MicroBatch], Tensor]
"""(logprobs [M], entropy [M], micro-batch) -> scalar: this micro-batch's share of the loss. Shares are summed over the
micro-batches, so weights must already be normalised over the whole batch."""

ValueLoss = Callable[[Tensor, MicroBatch], Tensor]
"""(values [M], micro-batch) -> scalar share of the loss."""


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that the engine itself uses."""

    eos_token_id: int | None
    pad_token_id: int | None

    def __len__(self) -> int: ...

    def encode(self, text: str, **kwargs: Any) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], **kwargs: Any) -> str: ...

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


class ImageTokens(Protocol):
    """How the images of a vision-language model stand in its prompts."""

    @property
    def placeholder(self) -> str:
        """What its chat template writes for an image."""
        ...

    def around(self, handle: int) -> list[int]:
        """An image's handle between the tokens that the model knows images by."""
        ...

    def expand(self, ids: Sequence[int], album: Mapping[int, Image]) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        """Ids with handles as the model reads them, and the images in order; `album` has them by handle.

        Raises UserCodeError where the images cannot stand so.
        """
        ...


def image_tokens_of(tokenizer: Tokenizer) -> ImageTokens | None:
    """None for a model that reads text alone; the processor comes with the tokenizer."""
    tokens: ImageTokens | None = getattr(tokenizer, "image_tokens", None)
    return tokens


def encode_foreign(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text that an environment or another agent wrote: nothing in it becomes a control token, and a mark
    becomes its image's handle."""
    ids: list[int] = []
    tokens = image_tokens_of(tokenizer)
    for piece in pieces(text):
        if isinstance(piece, str):
            ids += tokenizer.encode(piece, add_special_tokens=False, split_special_tokens=True)
        else:
            ids += [piece] if tokens is None else tokens.around(piece)
    return ids


@runtime_checkable
class Generator(Protocol):
    """Answers generation requests of all agents; may batch them as it likes, never changing what is drawn."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Raises DagrlError where the prompt is empty or does not fit the model."""
        ...

    def begin_batch(self) -> None:
        """A new batch of trajectories starts: nothing that earlier ones left behind may bear on it."""
        ...

    def away(self) -> AbstractContextManager[None]:
        """Entered around a wait that ends in further requests; an engine may hold its next pass for it."""
        ...

    def metrics(self) -> Metrics:
        """Of the batch that `begin_batch` began, under `perf/…`."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class TellsPasses(Protocol):
    """A generator that computes in this process and can say when it does."""

    def tell_passes(self, timed: Timed) -> None:
        """From now on `timed(Kind.ENGINE, name)` is entered around each pass; the name is that of the weights."""
        ...


@runtime_checkable
class ReferenceModel(Protocol):
    def score(self, sequences: Sequences) -> Scores: ...


@runtime_checkable
class PolicyModel(ReferenceModel, Protocol):
    """A policy with its optimizer. `state_dict` holds optimizer, schedule and version; weights go by `save`."""

    @property
    def version(self) -> int:
        """Number of optimizer steps made."""
        ...

    def update(self, sequences: Sequences, loss: PolicyLoss, *, entropy_gradient: bool = False) -> UpdateStats:
        """One optimizer step on all of `sequences`; `entropy_gradient` keeps the graph behind the entropy."""
        ...

    def gradient_products(
        self, sequences: Sequences, loss: PolicyLoss, parts: Sequence[Tensor], *, entropy_gradient: bool = False
    ) -> Tensor:
        """[P, P] float64: dot products of the gradients that the loss has on each of `parts` ([m] positions of turns),
        at the weights as they are. Changes nothing; holds a gradient for each part."""
        ...

    def save(self, folder: Path) -> None:
        """Writes a folder that `AutoModelForCausalLM.from_pretrained` loads, tokenizer included."""
        ...

    def load(self, folder: Path) -> None:
        """Takes the weights that `save` wrote; `load_state_dict` comes after it."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class ValueModel(Protocol):
    @property
    def version(self) -> int: ...

    def values(self, sequences: Sequences) -> Values: ...

    def update(self, sequences: Sequences, loss: ValueLoss) -> UpdateStats: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None:
        """Takes the weights that `save` wrote; `load_state_dict` comes after it."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Chat(Protocol):
    """A model behind a server that is asked in words."""

    @property
    def url(self) -> str: ...

    @property
    def num_retries(self) -> int:
        """Tries that came to nothing and were made again."""
        ...

    async def answer(self, prompt: str, *, max_tokens: int) -> str:
        """Raises UserCodeError where no usable answer came in time, DagrlError where none will ever come."""
        ...


class Chats(Protocol):
    def chat(self, spec: ServerSpec) -> Chat:
        """Opens a way to a server; nothing is asked yet."""
        ...


class Voices(Protocol):
    """What play needs of the models: tokenizers by agent group, and what speaks."""

    def tokenizer(self, group: int) -> Tokenizer: ...

    @property
    def generator(self) -> Generator: ...


class Models(Voices, Chats, Protocol):
    """Lookup by agent group; every model is built once per owner."""

    def policy(self, group: int) -> PolicyModel: ...

    def reference(self, group: int) -> ReferenceModel: ...

    def critic(self, group: int) -> ValueModel:
        """The critic that `group` uses, its own or a shared one."""
        ...
