"""The terminal: a line per step, a live table where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console as RichConsole
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dagrl.plain_text import duration, safe
from dagrl.runtime.evaluate import Evaluation
from dagrl.runtime.narration import (
    ClosingReport,
    conversation_lines,
    evaluation_line,
    report_lines,
    step_line,
    time_shares,
)
from dagrl.types import Metrics, Trajectory
from dagrl.workflow.budgets import as_line, budgets
from dagrl.workflow.graph import Workflow

PLAIN_PROGRESS_STEP = 0.1
"""Without a terminal a line of progress is printed each time so much more is done."""
_AGENT_COLUMNS = {
    "reward": "/reward",
    "entropy": "/policy/entropy",
    "kl": "/actor/kl",
    "response tokens": "/response_tokens",
    "cut": "/cut",
}


class Console:
    """Shows a run on `stream`. Texts of models and users are shown as text: control characters are escaped."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._rich = RichConsole(file=self._stream, markup=False, highlight=False, emoji=False)
        self._live: Live | None = None
        self._role_names: dict[str, str] = {}
        self._agents: tuple[str, ...] = ()
        self._total_steps = 0
        self._limits: dict[str, float | None] = {}
        self._started = time.monotonic()

    def note(self, text: str) -> None:
        """A line of news."""
        self._print(text)

    @contextmanager
    def making_model(self) -> Iterator[Callable[[float, str], None]]:
        """Gives a model recipe's progress function `(share done in [0, 1], what is being done)`."""
        if not self._is_terminal:
            yield self._plain_progress()
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._rich, transient=True) as bar:
            task = bar.add_task("", total=1.0, visible=False)
            yield lambda share, text: bar.update(task, completed=share, description=safe(text), visible=True)

    def begin(self, workflow: Workflow, *, total_steps: int, num_train: int, num_held_out: int) -> None:
        """Names the run, its agents and its data; the clock of the ETA starts here."""
        self._role_names = {node.node_id: node.role_name for node in workflow.nodes}
        self._agents = tuple(group.name for group in workflow.groups)
        self._total_steps = total_steps
        self._limits = workflow.spec.config.stop_when.model_dump()
        self._started = time.monotonic()
        self._print(
            f"{workflow.spec.dag_id}: {len(self._agents)} agents ({', '.join(self._agents)}), {total_steps} steps, "
            f"{num_train} training problems, {num_held_out} held-out problems"
        )

    def step(self, done: int, metrics: Metrics, seconds: Mapping[str, float]) -> None:
        """`done` steps are finished; `seconds` by node, and `play`."""
        eta_s = (time.monotonic() - self._started) / max(done, 1) * (self._total_steps - done)
        used = as_line(budgets(self._limits, metrics))
        self._print(step_line(done, self._total_steps, metrics, seconds, eta_s) + (f" | {used}" if used else ""))
        if self._is_terminal:
            title = f"step {done}/{self._total_steps}, ETA {duration(eta_s)}"
            self._show_live(_table(title, self._agents, metrics, seconds))

    def evaluation(self, evaluation: Evaluation) -> None:
        self._print(evaluation_line(evaluation))

    def conversation(self, done: int, trajectory: Trajectory) -> None:
        """One sample conversation of the step just finished."""
        self._print("\n".join(conversation_lines(done, trajectory, self._role_names)))

    def report(self, report: ClosingReport, folder: Path) -> None:
        """The closing report; ends the live table."""
        self.close()
        elapsed_s = time.monotonic() - self._started
        self._print("\n".join(report_lines(report, folder, self._total_steps, elapsed_s)))

    def close(self) -> None:
        """Ends the live table and gives the cursor back; may be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        shown = safe(line).encode(encoding, errors="backslashreplace").decode(encoding)
        if self._is_terminal:
            self._rich.print(Text(shown), soft_wrap=True)
        else:
            print(shown, file=self._stream, flush=True)

    def _show_live(self, table: Table) -> None:
        if self._live is None:
            self._live = Live(table, console=self._rich, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table, refresh=True)

    def _plain_progress(self) -> Callable[[float, str], None]:
        shown = -math.inf

        def progress(share: float, text: str) -> None:
            nonlocal shown
            if share >= shown + PLAIN_PROGRESS_STEP or (share >= 1.0 > shown):
                shown = share
                self._print(f"making the model: {share:4.0%} {text}")

        return progress


def _table(title: str, agents: tuple[str, ...], metrics: Metrics, seconds: Mapping[str, float]) -> Table:
    """How each agent is doing, and where the time goes."""
    table = Table(
        title=Text(title),
        caption=Text(safe(time_shares(seconds))),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("agent")
    for name in _AGENT_COLUMNS:
        table.add_column(name, justify="right")
    for agent in agents:
        values = [metrics.get(f"agent_{agent}{suffix}") for suffix in _AGENT_COLUMNS.values()]
        table.add_row(Text(safe(agent)), *("" if value is None else f"{value:.4g}" for value in values))
    return table
