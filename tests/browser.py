"""Real Chromium for tests, driven through chromedriver's HTTP interface; needs no library."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = None if shutil.which("chromium") and shutil.which("chromedriver") else "no chromium and chromedriver here"
"""Why there is no browser; None where there is one."""

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Page:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        _post(f"{self._address}/url", {"url": "about:blank"})
        _post(f"{self._address}/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return _post(f"{self._address}/execute/sync", {"script": script, "args": []})

    def wait(self, condition: str, timeout_s: float = 20) -> float:
        """Seconds until a JavaScript expression is true."""
        start = time.monotonic()
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() - start > timeout_s:
                raise AssertionError(f"never became true: {condition}; the page says: {self.text()[:600]}")
            time.sleep(0.03)
        return time.monotonic() - start

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(_get(f"{self._address}/screenshot")))

    def complaints(self) -> list[str]:
        """What the browser's console has warned of since the last call."""
        found = _post(f"{self._address}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] in ("SEVERE", "WARNING")]


@contextmanager
def browser(profile: Path, *, width: int = 1280, height: int = 900, is_dark: bool = False) -> Iterator[Page]:
    """A window of exactly that size, with a new profile in `profile`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _until_ready(address)
        session = _post(f"{address}/session", _wish(profile, width, height, is_dark))["sessionId"]
        yield Page(address, session)
        urllib.request.urlopen(urllib.request.Request(f"{address}/session/{session}", method="DELETE"), timeout=20)
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _wish(profile: Path, width: int, height: int, is_dark: bool) -> dict[str, Any]:
    flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--blink-settings=preferredColorScheme=0"] if is_dark else [])]
    options = {
        "args": flags,
        "mobileEmulation": {
            "deviceMetrics": {"width": width, "height": height, "pixelRatio": 1, "mobile": width < 600}
        },
    }
    return {"capabilities": {"alwaysMatch": {
        "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
    }}}  # fmt: skip


def _until_ready(address: str) -> None:
    for _ in range(200):
        try:
            if _get(f"{address}/status")["ready"]:
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.05)
    raise AssertionError("chromedriver did not start")


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return json.load(reply)["value"]


def _post(url: str, content: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode(errors="replace")[:800]) from None
