"""One HTTP/1.1 request and its reply on the running event loop: with a time limit that holds for the whole, and
cancelled at once; redirects are not followed, so that a key goes nowhere else."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPMessage, parse_headers
from urllib.parse import urlsplit

MAX_BODY_BYTES = 64 << 20
MAX_HEAD_BYTES = 1 << 16


class BrokenReply(Exception):
    """What came back is not HTTP, is cut off, or has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    headers: HTTPMessage
    body: bytes


async def exchange(
    method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", timeout_s: float
) -> Reply:
    """Raises OSError where nobody answers, TimeoutError after `timeout_s`, BrokenReply."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https"
    port = parts.port or (443 if is_safe else 80)
    async with asyncio.timeout(timeout_s):
        context = ssl.create_default_context() if is_safe else None
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context, limit=MAX_HEAD_BYTES)
        try:
            writer.write(_head(method, parts.path, {"Host": parts.netloc, **headers}, len(body)) + body)
            await writer.drain()
            return await _reply(reader)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise BrokenReply(f"the reply is cut off or is not HTTP: {error}") from error
        finally:
            writer.transport.abort()


def _head(method: str, path: str, headers: Mapping[str, str], length: int) -> bytes:
    fields = {**headers, "Content-Length": str(length), "Connection": "close"}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _reply(reader: asyncio.StreamReader) -> Reply:
    head = io.BytesIO(await reader.readuntil(b"\r\n\r\n"))
    version, _, rest = head.readline().partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"it begins with {version[:20]!r}")
    headers = parse_headers(head)
    return Reply(status=int(rest[:3]), headers=headers, body=await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: HTTPMessage) -> bytes:
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = headers.get("Content-Length")
    if length is not None:
        return await reader.readexactly(_bounded(int(length)))
    content = bytearray()
    while part := await reader.read(MAX_HEAD_BYTES):
        content += part
        _bounded(len(content))
    return bytes(content)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        content += (await reader.readexactly(_bounded(size + 2)))[:-2]
        _bounded(len(content))
    return bytes(content)


def _bounded(size: int) -> int:
    if not 0 <= size <= MAX_BODY_BYTES:
        raise ValueError(f"{size} bytes, more than {MAX_BODY_BYTES}")
    return size
