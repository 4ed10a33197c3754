"""A backend without a model: completions come from a script. For tests of play and for replaying failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from dagrl.backends.base import Chat, Tokenizer
from dagrl.backends.openai_chat import ChatServer
from dagrl.errors import DagrlError
from dagrl.seeds import derive_seed
from dagrl.types import Completion, FinishReason, GenerationRequest, Metrics
from dagrl.workflow.sections import ServerSpec

SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

Script = Callable[[GenerationRequest], str]
"""What the model says to a request."""
_ROLES = ("system", "user", "assistant", "tool")


class ScriptedTokenizer:
    """One token per UTF-8 byte, and a chat template with the tokens of `SPECIAL_TOKENS`.

    `shift` moves the ids, so that two tokenizers can disagree about every one of them.
    """

    def __init__(self, shift: int = 0) -> None:
        self._shift = shift
        self._first_byte = shift + len(SPECIAL_TOKENS)
        self.pad_token_id: int | None = shift
        self.eos_token_id: int | None = shift + 1
        self.eos_token = SPECIAL_TOKENS[1]
        self.chat_template = "built in"

    def __len__(self) -> int:
        return self._first_byte + 256

    def get_vocab(self) -> dict[str, int]:
        bytes_ = {f"0x{byte:02x}": self._first_byte + byte for byte in range(256)}
        return {token: self._shift + at for at, token in enumerate(SPECIAL_TOKENS)} | bytes_

    def encode(self, text: str, *, split_special_tokens: bool = False, add_special_tokens: bool = True) -> list[int]:
        """Nothing is added at either end, whatever `add_special_tokens` says."""
        if not split_special_tokens:
            for at, token in enumerate(SPECIAL_TOKENS):
                before, found, after = text.partition(token)
                if found:
                    return [*self.encode(before), self._shift + at, *self.encode(after)]
        return [self._first_byte + byte for byte in text.encode(errors="replace")]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        parts: list[bytes] = []
        for token_id in token_ids:
            if token_id >= self._first_byte:
                parts.append(bytes([token_id - self._first_byte]))
            elif not skip_special_tokens:
                parts.append(SPECIAL_TOKENS[token_id - self._shift].encode())
        return b"".join(parts).decode(errors="replace")

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], *, tokenize: bool = True, add_generation_prompt: bool = False
    ) -> Any:
        """`<|role|>content<|end|>` for each message."""
        for message in conversation:
            if message["role"] not in _ROLES:
                raise ValueError(f"role {message['role']!r} is none of {_ROLES}")
        text = "".join(f"<|{message['role']}|>{message['content']}<|end|>" for message in conversation)
        text += "<|assistant|>" if add_generation_prompt else ""
        return self.encode(text) if tokenize else text


class ScriptedGenerator:
    """Says what a script says. Log-probs are -1, -1/2, -1/3, …, so that a mix-up shows."""

    def __init__(
        self,
        tokenizers: Mapping[int, Tokenizer],
        script: Script,
        *,
        delay: Callable[[GenerationRequest], float] | None = None,
        policy_version: int = 0,
    ) -> None:
        """`delay` gives the seconds that an answer takes."""
        self._tokenizers = tokenizers
        self._script = script
        self._delay = delay
        self.policy_version = policy_version
        self.requests: list[GenerationRequest] = []
        """In the order they came."""

    async def generate(self, request: GenerationRequest) -> Completion:
        if not request.prompt_ids:
            raise DagrlError("a generation was asked for with an empty prompt")
        self.requests.append(request)
        if self._delay is not None:
            await asyncio.sleep(self._delay(request))
        tokenizer = self._tokenizers[request.agent_group]
        ids = tokenizer.encode(self._script(request), add_special_tokens=False)
        if tokenizer.eos_token_id is not None:
            ids = [*ids, tokenizer.eos_token_id]
        is_cut = len(ids) > request.params.max_tokens
        ids = ids[: request.params.max_tokens]
        return Completion(
            token_ids=tuple(ids),
            logprobs=tuple(-1.0 / (at + 1) for at in range(len(ids))),
            finish_reason=FinishReason.LENGTH if is_cut else FinishReason.STOP,
            policy_version=self.policy_version,
        )

    def begin_batch(self) -> None:
        pass

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def metrics(self) -> Metrics:
        return {}

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnKey:
    """Which generation of a run is meant."""

    node_id: str
    round: int = 0
    task_id: str
    sample: int = 0
    step: int = 0
    branch: int = 0
    draw: int = 0
    """Which draw of the turn, where a rollout was varied."""


def replay(texts: Mapping[TurnKey, str], run_seed: int) -> Script:
    """A script that gives each turn of a run its text; a turn without one is an error."""
    by_seed = {turn_seed(run_seed, key): text for key, text in texts.items()}

    def script(request: GenerationRequest) -> str:
        if request.seed not in by_seed:
            raise DagrlError(f"the script has no text for agent group {request.agent_group}, seed {request.seed}")
        return by_seed[request.seed]

    return script


def turn_seed(run_seed: int, key: TurnKey) -> int:
    """The seed that the generation of one turn is asked with."""
    drawn_anew = (key.draw,) if key.draw else ()
    return derive_seed(run_seed, key.step, key.task_id, key.sample, key.node_id, key.round, key.branch, *drawn_anew)


class ScriptedModels:
    """Tokenizers and a scripted generator, and no model to train."""

    def __init__(self, tokenizers: Mapping[int, Tokenizer], generator: ScriptedGenerator) -> None:
        self._tokenizers = tokenizers
        self.generator = generator

    def tokenizer(self, group: int) -> Tokenizer:
        return self._tokenizers[group]

    def chat(self, spec: ServerSpec) -> Chat:
        return ChatServer(spec)

    def policy(self, group: int) -> NoReturn:
        raise DagrlError(f"the scripted engine has no policy to train (agent group {group})")

    def reference(self, group: int) -> NoReturn:
        raise DagrlError(f"the scripted engine has no reference model (agent group {group})")

    def critic(self, group: int) -> NoReturn:
        raise DagrlError(f"the scripted engine has no critic (agent group {group})")
