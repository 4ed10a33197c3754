"""Messages between the run and an environment worker: a length of 8 bytes, then a pickle."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.environments.protocol import EnvAnswer, EnvRequest, Seats

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Load the class and make one object."""

    ref: str
    base: Path
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load the class, so that objects of it are made quickly."""

    ref: str
    base: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    offers: Mapping[str, Any]
    """Arguments that `reset` gets if it names them."""
    seats: Seats


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    request: EnvRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Answered at once by the thread that reads calls; no answer means that nothing in the process can run."""


Body = Load | Open | Reset | Step | Close | Ping


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    call_id: int
    env_id: int
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    call_id: int
    answer: EnvAnswer | None = None
    fault: tuple[str, str | None, str | None, str] | None = None
    """what, where, how, kind of a `UserCodeError`."""
    trace: str = ""
    """The user's traceback; exceptions themselves may not be picklable."""
    pid: int | None = None
    """The worker's, in its first message."""


READY = -1
"""`call_id` of a worker's first message: it has started."""


def pack(message: Call | Reply) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    return pickle.loads(body)


def calls(sock: socket.socket) -> Iterator[Call]:
    """The calls that come in, until the other side is gone."""
    stream = sock.makefile("rb")
    while True:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        (length,) = LENGTH.unpack(head)
        body = stream.read(length)
        if len(body) < length:
            return
        yield unpack(body)
