"""A server of OpenAI's kind as it is asked: endpoints, key, tries and time limits, and what its refusals mean."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from dagrl.errors import DagrlError, UserCodeError
from dagrl.workflow.sections import ServerSpec
from dagrl.workflow.servers import base_url

T = TypeVar("T")

KEY_VARIABLE = "OPENAI_API_KEY"
FIRST_WAIT_S = 0.5
"""Between the first try and the second; doubled from try to try …"""
MAX_WAIT_S = 30.0
"""… up to this."""
_TRY_AGAIN = (408, 409, 425, 429)
"""Statuses that may pass, besides all from 500 on."""
MAX_BODY_BYTES = 64 << 20
_MAX_SHOWN = 300
"""Characters of a server's own words in a message."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Refused(Exception):
    """The server will not answer this request, however often it is asked."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"status {status}: {words}")
        self.status = status


class Unusable(Exception):
    """An answer that cannot be used; the next try may be better."""

    def __init__(self, what: str, wait_s: float = 0.0) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class Server:
    """One address. `num_retries` counts tries that came to nothing and were made again."""

    def __init__(self, spec: ServerSpec) -> None:
        self.url = base_url(spec.url)
        self.num_retries = 0
        self._timeout_s = spec.timeout_s
        self._budget_s = spec.budget_s
        self._key = os.environ.get(KEY_VARIABLE, "")
        # A connection for each request: one that is kept belongs to its event loop, and play has many. No redirects, so
        # that a key goes nowhere else.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx2.AsyncClient(timeout=None, limits=limits, follow_redirects=False)

    async def ask(
        self, path: str, question: Mapping[str, Any] | None, read: Callable[[Any], T], *, budget_s: float | None = None
    ) -> T:
        """What `read` makes of the JSON that the server answers; it raises `Unusable` where that is not what it should
        be. Without a question it is a GET.

        Raises Refused; UserCodeError of the kind `server` when the budget is used up; DagrlError where the key is not
        taken.
        """
        budget_s = self._budget_s if budget_s is None else min(budget_s, self._budget_s)
        deadline = time.monotonic() + budget_s
        wait_s = FIRST_WAIT_S
        while True:
            limit_s = max(min(self._timeout_s, deadline - time.monotonic()), 0.0)
            try:
                return read(self._read(await self._exchange(path, question, limit_s)))
            except TimeoutError:
                fault = Unusable(f"no answer within {limit_s:.3g} s")
            except httpx2.HTTPError as error:
                fault = Unusable(self._safe(str(error) or type(error).__name__))
            except Unusable as error:
                fault = Unusable(self._safe(str(error)), error.wait_s)
            pause_s = max(wait_s, fault.wait_s)
            if time.monotonic() + pause_s >= deadline:
                raise UserCodeError(
                    f"no usable answer within {budget_s:g} s; the last try: {fault}",
                    where=f"server {self.url}",
                    how="is it running and reachable? timeout_s and budget_s of `server` say how long it may take",
                    kind="server",
                )
            self.num_retries += 1
            await asyncio.sleep(pause_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)

    async def _exchange(self, path: str, question: Mapping[str, Any] | None, timeout_s: float) -> Reply:
        method, body = ("GET", b"") if question is None else ("POST", json.dumps(question).encode())
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        content = bytearray()
        async with asyncio.timeout(timeout_s):
            async with self._client.stream(method, self.url + path, headers=headers, content=body) as reply:
                async for part in reply.aiter_bytes():
                    content += part
                    if len(content) > MAX_BODY_BYTES:
                        raise Unusable(f"an answer of more than {MAX_BODY_BYTES:,} bytes")
        return Reply(reply.status_code, reply.headers, bytes(content))

    def _read(self, reply: Reply) -> Any:
        if reply.status in (401, 403):
            state = "is set" if self._key else "is not set"
            raise DagrlError(
                f"refuses the key (status {reply.status}); {KEY_VARIABLE} {state}",
                where=f"server {self.url}",
                how=f"export {KEY_VARIABLE}=… with a key for this server",
            )
        if reply.status in _TRY_AGAIN or reply.status >= 500:
            raise Unusable(f"status {reply.status}: {self._words(reply)}", _retry_after(reply))
        if not 200 <= reply.status < 300:
            raise Refused(reply.status, self._words(reply))
        try:
            return json.loads(reply.body)
        except ValueError as error:
            raise Unusable(f"not JSON: {self._safe(repr(reply.body[:80]))}") from error

    def _words(self, reply: Reply) -> str:
        """What the server says of an error."""
        try:
            told = json.loads(reply.body)
            inner = told.get("error", told)
            text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
        except (ValueError, AttributeError):
            text = reply.body.decode(errors="replace")
        return self._safe(" ".join(text.split())[:_MAX_SHOWN] or "no reason given")

    def _safe(self, text: str) -> str:
        """`text` without the key, which some servers repeat."""
        return text.replace(self._key, "***") if self._key else text


def _retry_after(reply: Reply) -> float:
    """Seconds that the server asks to wait; 0 where it does not say, or gives a date."""
    try:
        return max(0.0, float(reply.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0
