"""A server of OpenAI's kind on the loopback address, in a thread of the test; what it answers is the test's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Raw(bytes):
    """A whole reply, status line and all, sent as it is; afterwards the connection is closed."""


Answer = Callable[[str, Any], Any]
"""(path, question or None) -> what is sent as JSON; (status, what) for another status than 200; Raw."""


class FakeServer:
    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, Any]] = []
        """Paths and questions in the order they came."""
        self.keys: list[str | None] = []
        """The Authorization header of each."""
        self.is_closing = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._serve(None)

            def do_POST(self) -> None:
                self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _serve(self, question: Any) -> None:
                owner.asked.append((self.path, question))
                owner.keys.append(self.headers.get("Authorization"))
                told = answer(self.path, question)
                if isinstance(told, Raw):
                    self.wfile.write(told)
                    self.close_connection = True
                    return
                status, content = told if isinstance(told, tuple) else (200, told)
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            request_queue_size = 128  # more that come at once would be reset

        self._server = Listener(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.is_closing.set()
        self._server.shutdown()
        self._server.server_close()

    def questions(self, path: str) -> list[Any]:
        return [question for asked, question in self.asked if asked == path]


@contextmanager
def serving(answer: Answer) -> Iterator[FakeServer]:
    server = FakeServer(answer)
    try:
        yield server
    finally:
        server.close()


def chat(say: Callable[[str], str], model: str = "tiny") -> Answer:
    """A server of one model that knows chat only: `say(text of the prompt) -> answer`."""

    def answer(path: str, question: Any) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": model}]}
        if path != "/v1/chat/completions":
            return 404, {"error": {"message": "no such endpoint"}}
        text = say(question["messages"][0]["content"])
        return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}

    return answer
