"""A web page about runs on this machine's loopback address: reads, never writes, never executes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dagrl.errors import DagrlError
from dagrl.plain_json import finite
from dagrl.report.answers import Answers
from dagrl.report.questions import Unknown

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).parent / "page"
STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/build.js": ("build.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/graph.js": ("graph.js", "text/javascript; charset=utf-8"),
    "/talk.js": ("talk.js", "text/javascript; charset=utf-8"),
    "/compare.js": ("compare.js", "text/javascript; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
}
"""Path → the file of `page/` and its type; there are no others, so that no path can lead elsewhere. Scripts in the
order of index.html."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every reply: the page loads its own files and nothing else, is framed by nobody and read by no other site."""


class ViewerServer(ThreadingHTTPServer):
    """Serves the page for the runs in `roots`. `url` is where; port 0 takes any free one."""

    daemon_threads = True

    def __init__(self, roots: Sequence[Path], port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.answers = Answers(roots)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no fault; anything else is printed with its traceback."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    """GET alone; everything else is refused by the base class."""

    server: ViewerServer
    server_version = "dagrl"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60
    """Seconds after which a connection that asks nothing is closed."""

    def do_GET(self) -> None:
        if not _is_loopback(self.headers.get("Host", "")):
            self._send(HTTPStatus.FORBIDDEN, b"this page answers to 127.0.0.1 and localhost only\n", "text/plain")
            return
        parts = urlsplit(self.path)
        if parts.path in STATIC:
            name, kind = STATIC[parts.path]
            self._send(HTTPStatus.OK, (PAGE / name).read_bytes(), kind)
        elif parts.path.startswith("/api/"):
            self._answer(parts.path.removeprefix("/api/"), dict(parse_qsl(parts.query)))
        else:
            self._send_json(HTTPStatus.NOT_FOUND, {"fault": "no such page"})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the user."""

    def _answer(self, question: str, params: dict[str, str]) -> None:
        try:
            status, value = HTTPStatus.OK, self.server.answers.answer(question, params)
        except Unknown as error:
            status, value = HTTPStatus.NOT_FOUND, {"fault": str(error)}
        except DagrlError as error:
            status, value = HTTPStatus.CONFLICT, {"fault": str(error)}
        self._send_json(status, value)

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        self._send(status, to_json(value).encode(errors="replace"), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def to_json(value: Any) -> str:
    """JSON that every browser reads: NaN and infinity, which a broken run may hold, become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine by a loopback name, with any port (`ssh -L` changes it).

    A site whose name was made to point here (DNS rebinding) sends its own name and is refused.
    """
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    return name.lower() in _LOOPBACK and (not port or port.isdecimal())
