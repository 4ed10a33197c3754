"""A server of OpenAI's kind that is asked in words, for a judge; agents are spoken for by `openai_generator`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrl.backends.openai_generator import choice_with_message
from dagrl.backends.openai_server import Refused, Server
from dagrl.errors import DagrlError
from dagrl.workflow.sections import ServerSpec


class ChatServer:
    """One address and one model; greedy."""

    def __init__(self, spec: ServerSpec) -> None:
        self._server = Server(spec)
        self._model = spec.model

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def num_retries(self) -> int:
        return self._server.num_retries

    async def answer(self, prompt: str, *, max_tokens: int) -> str:
        question: Mapping[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        try:
            choice = await self._server.ask("/chat/completions", question, choice_with_message)
        except Refused as error:
            raise DagrlError(f"refuses the question: {error}", where=f"server {self.url}") from error
        return str(choice["message"]["content"])
