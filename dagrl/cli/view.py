"""`dagrl view`: a local web page about runs, or one self-contained file."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from dagrl.errors import DagrlError

DEFAULT_PORT = 7070


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, folders of runs, or names of runs in runs/. [default: runs]"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes any free one.")] = DEFAULT_PORT,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write one self-contained file, such as report.html, and end.")
    ] = None,
) -> None:
    """Look at runs in the browser: curves, graph, conversations, configuration, comparison."""
    from dagrl.report.reader import DEFAULT_ROOT, open_run

    roots = [root if root.is_dir() else open_run(root).path for root in runs or [DEFAULT_ROOT]]
    if export is None:
        _serve(roots, port, browser)
        return
    from dagrl.report.export import write_report

    num_bytes = write_report(roots, export)
    print(f"wrote {export} ({num_bytes / 1e6:.1f} MB)", file=sys.stderr)


def _serve(roots: list[Path], port: int, browser: bool) -> None:
    from dagrl.report.viewer import ADDRESS, ViewerServer

    try:
        server = ViewerServer(roots, port)
    except OSError as error:
        raise DagrlError(
            f"cannot listen on {ADDRESS}:{port}: {error.strerror}", how="choose another port with --port, or --port 0"
        ) from error
    with server:
        print(f"{server.url}  (Ctrl+C ends; from another machine: ssh -L {server.server_port}:{ADDRESS}:"
              f"{server.server_port} HOST)", flush=True)  # fmt: skip
        if browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("", file=sys.stderr)
