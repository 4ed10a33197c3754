"""Agents that a server of OpenAI's kind speaks for: by token ids where it reads them as we do, else by chat."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from dagrl.backends.base import Tokenizer, encode_foreign
from dagrl.backends.openai_server import Refused, Server, Unusable
from dagrl.errors import DagrlError, UserCodeError
from dagrl.types import Completion, FinishReason, GenerationRequest, Metrics, SamplingParams
from dagrl.workflow.sections import ServerSpec

MAX_AT_ONCE = 64
"""Requests that one server gets at a time; a server has a queue of its own, and its time limit runs there too."""
_PROBE = 'The café owes 1,234.50 (or x^2 + 7): {"answer": [3, 14]}\n'
"""Its ids are another text in nearly every other vocabulary."""
PROBE_S = 15.0
"""For the question whether the server reads ids; one that does not even answer that gets text."""
_NEWER_LIMIT = "max_completion_tokens"
"""What some models of OpenAI take instead of max_tokens."""
_MAX_SHOWN = 200
_SEED_RANGE = 2**31
"""Some servers hold seeds in 32 bits."""

Prompts = Literal["ids", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """An agent that a server speaks for."""

    name: str
    spec: ServerSpec
    tokenizer: Tokenizer


class OpenAIGenerator:
    """Speaks for every agent that has a server. Seeds are passed on; what is drawn with them is the server's affair."""

    def __init__(self, seats: Mapping[int, Seat]) -> None:
        """`seats` by agent group."""
        self._voices = {group: _Voice(seat) for group, seat in seats.items()}

    async def generate(self, request: GenerationRequest) -> Completion:
        """Raises UserCodeError of the kind `server` or `refused` where there is no answer to this request, DagrlError
        where the server can answer none at all."""
        if not request.prompt_ids:
            raise DagrlError("a generation was asked for with an empty prompt")
        if request.images:
            raise DagrlError(
                f"agent group {request.agent_group} is shown an image, and its server gets text alone",
                how="give it a model of its own (config.model), or a pre_process that leaves the image out",
            )
        return await self._voices[request.agent_group].answer(request)

    def begin_batch(self) -> None:
        for voice in self._voices.values():
            voice.server.num_retries = 0

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def metrics(self) -> Metrics:
        """Tries that were made again, and whether prompts go as text, by agent."""
        told: Metrics = {}
        for voice in self._voices.values():
            told[f"perf/server/{voice.name}/retries"] = float(voice.server.num_retries)
            told[f"perf/server/{voice.name}/as_text"] = float(voice.prompts == "text")
        return told

    async def close(self) -> None:
        pass

    def described(self) -> dict[str, dict[str, str]]:
        """By agent: address, model, and how prompts go there; for reports."""
        return {
            voice.name: {"url": voice.server.url, "model": voice.model or "", "prompts": voice.prompts or ""}
            for voice in self._voices.values()
        }


class _Voice:
    """One agent at one server: which model, and which endpoint, is found out at the first request."""

    def __init__(self, seat: Seat) -> None:
        self.name = seat.name
        self.server = Server(seat.spec)
        self.model = seat.spec.model
        self.prompts: Prompts | None = None
        self._tokenizer = seat.tokenizer
        self._opening = asyncio.Lock()
        self._gate = asyncio.Semaphore(MAX_AT_ONCE)
        self._limit_name = "max_tokens"

    async def answer(self, request: GenerationRequest) -> Completion:
        async with self._opening:
            if self.prompts is None:
                self.prompts = await self._open()
        try:
            async with self._gate:
                if self.prompts == "ids":
                    return await self._by_ids(request)
                return await self._by_chat(request)
        except Refused as error:
            raise UserCodeError(f"refuses the request: {error}", where=self._place, kind="refused") from error

    @property
    def _place(self) -> str:
        return f"agent {self.name}, server {self.server.url}"

    async def _open(self) -> Prompts:
        """Raises DagrlError where the server answers nothing that can be used."""
        try:
            if self.model is None:
                self.model = self._only_of(await self.server.ask("/models", None, _models))
            return "ids" if await self._reads_ids() else "text"
        except Refused as error:
            how = "name the model: #MODEL behind the address, or `model` of `server`"
            raise DagrlError(f"does not list its models ({error})", where=self._place, how=how) from error
        except UserCodeError as error:
            raise DagrlError(error.what, where=self._place, how=error.how) from error

    def _only_of(self, names: Sequence[str]) -> str:
        if len(names) != 1:
            listed = f": {', '.join(names[:8])}" if names else ""
            how = "name one: #MODEL behind the address, or `model` of `server`"
            raise DagrlError(f"serves {len(names)} models{listed}", where=self._place, how=how)
        return names[0]

    async def _reads_ids(self) -> bool:
        """Whether ids mean the same text there: it is asked to repeat some."""
        ids = encode_foreign(self._tokenizer, _PROBE)
        text = self._tokenizer.decode(ids)
        echo = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0, "echo": True}
        try:
            choice = await self.server.ask("/completions", echo, _choice_with_text, budget_s=PROBE_S)
        except (Refused, UserCodeError):
            return False
        return str(choice["text"]).strip().startswith(text.strip())

    async def _by_ids(self, request: GenerationRequest) -> Completion:
        question = {
            "model": self.model,
            "prompt": list(request.prompt_ids),
            "max_tokens": request.params.max_tokens,
            "return_token_ids": True,
            **_sampling(request.params, request.seed),
        }
        if request.params.stop:
            question["include_stop_str_in_output"] = True
        choice = await self.server.ask("/completions", question, _choice_with_text)
        ids = choice.get("token_ids")
        if isinstance(ids, list) and ids and all(isinstance(one, int) for one in ids):
            return _completion(tuple(ids), choice)
        return self._told(choice["text"], choice, request)

    async def _by_chat(self, request: GenerationRequest) -> Completion:
        text = self._tokenizer.decode(request.prompt_ids, skip_special_tokens=True)
        question = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            **_sampling(request.params, request.seed),
        }
        limit = request.params.max_tokens
        try:
            choice = await self._chat({**question, self._limit_name: limit})
        except Refused as error:
            if _NEWER_LIMIT not in str(error) or self._limit_name == _NEWER_LIMIT:
                raise
            self._limit_name = _NEWER_LIMIT
            choice = await self._chat({**question, self._limit_name: limit})
        return self._told(choice["message"]["content"], choice, request)

    async def _chat(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self.server.ask("/chat/completions", question, choice_with_message)

    def _told(self, text: str, choice: Mapping[str, Any], request: GenerationRequest) -> Completion:
        """A text as the ids of this agent's tokenizer, with the end token where the server ended by itself."""
        ids = encode_foreign(self._tokenizer, text)
        has_ended = choice.get("finish_reason") != "length" and not request.params.stop
        if has_ended and self._tokenizer.eos_token_id is not None:
            ids = [*ids, self._tokenizer.eos_token_id]
        return _completion(tuple(ids), choice)


def _completion(ids: tuple[int, ...], choice: Mapping[str, Any]) -> Completion:
    """Servers give log-probs of other kinds or none; those of an agent that is not trained are not needed."""
    reason = FinishReason.LENGTH if choice.get("finish_reason") == "length" else FinishReason.STOP
    return Completion(token_ids=ids, logprobs=None, finish_reason=reason, policy_version=0)


def _sampling(params: SamplingParams, seed: int) -> dict[str, Any]:
    """What every such server knows, and of its extensions only what is set."""
    told: dict[str, Any] = {"temperature": params.temperature, "top_p": params.top_p, "seed": seed % _SEED_RANGE}
    told |= {"stop": list(params.stop)} if params.stop else {}
    told |= {"top_k": params.top_k} if params.top_k else {}
    told |= {"min_p": params.min_p} if params.min_p else {}
    return told | ({"stop_token_ids": list(params.stop_token_ids)} if params.stop_token_ids else {})


def _choice_with_text(answer: Any) -> Mapping[str, Any]:
    """The first of an answer's choices."""
    choice = _choice(answer)
    if not isinstance(choice.get("text"), str):
        raise Unusable(f"an answer without a text: {str(answer)[:_MAX_SHOWN]}")
    return choice


def choice_with_message(answer: Any) -> Mapping[str, Any]:
    choice = _choice(answer)
    message = choice.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        raise Unusable(f"an answer without a text: {str(answer)[:_MAX_SHOWN]}")
    return choice


def _choice(answer: Any) -> Mapping[str, Any]:
    """The first of an answer's choices; an empty one where there is none."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _models(answer: Any) -> list[str]:
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise Unusable(f"no list of models: {str(answer)[:_MAX_SHOWN]}")
    return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
