"""Runs the real command in a process of its own, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-c", "import sys; from dagrl.cli import main; sys.exit(main())"]


def environment(cache: Path) -> dict[str, str]:
    """This process's, with one thread, the package on the path and models cached in `cache`."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "DAGRL_CACHE": str(cache),
        "HF_HUB_OFFLINE": "1",
    }


def dagrl(*words: str, cwd: Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=environment(cwd / "cache"), capture_output=True, text=True, timeout=timeout_s
    )


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words],
        cwd=cwd,
        env=environment(cwd / "cache"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
