"""Following a run while it goes: one screen that is drawn again on a terminal, a line for each new step elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from rich.live import Live
from rich.text import Text

from dagrl.plain_text import duration
from dagrl.report.doing_text import doing_text
from dagrl.report.metrics import Row, merged, series
from dagrl.report.reader import DEAD, RunReader, RunStatus
from dagrl.report.screen import BAD, DIM, GOOD, HEAD, Line, Screen, plain, printable, table
from dagrl.report.sparkline import resample, sparkline
from dagrl.workflow.budgets import as_line, budgets

NUM_OLD_LINES = 10
"""Steps from before the watching began, without a terminal."""
CURVE_WIDTH = 40
LATE_FACTOR = 5
"""A running run whose sign of life is this many steps old is pointed out."""
LATE_MIN_S = 60.0

_CURVES = ("reward/mean", "val/accuracy")
_AGENT_COLUMNS = {
    "reward": "/reward",
    "entropy": "/policy/entropy",
    "kl": "/actor/kl",
    "response tokens": "/response_tokens",
    "cut": "/cut",
}
_NODE_TIME = "perf/seconds/"
_NUM_TIMED_STEPS = 20
_STATE_STYLES = {"running": GOOD, "done": HEAD, "failed": BAD, DEAD: BAD}


def follow(reader: RunReader, screen: Screen, *, interval_s: float) -> RunStatus:
    """Shows the run until it runs no longer, looking every `interval_s`; gives the state it came to."""
    if screen.is_terminal:
        return _follow_live(reader, screen, interval_s)
    shown = max(0, len(reader.metrics()) - NUM_OLD_LINES)
    while True:
        # The state first: what was written before a run said that it is done is then read as well.
        status = reader.status()
        rows = reader.metrics()
        shown = min(shown, len(rows))
        total = reader.total_steps
        screen.print(plain(*(row_line(row, rows, total) for row in rows[shown:])))
        shown = len(rows)
        if not status.is_running:
            screen.print([end_line(reader, status)])
            return status
        time.sleep(interval_s)


def _follow_live(reader: RunReader, screen: Screen, interval_s: float) -> RunStatus:
    with Live(console=screen.rich, auto_refresh=False) as live:
        while True:
            status = reader.status()
            live.update(_as_rich(overview(reader, status, time.time())), refresh=True)
            if not status.is_running:
                break
            time.sleep(interval_s)
    screen.print([end_line(reader, status)])
    return status


def overview(reader: RunReader, status: RunStatus, now: float) -> list[Line]:
    """The whole screen: state, curves, agents, where the time goes."""
    rows = merged(reader.metrics())
    doing = [(f"now: {doing_text(status.doing, now)}", DIM)] if status.is_running and status.doing is not None else []
    lines = [_title(reader, status, rows, now), *doing, *_budget_lines(reader, rows)]
    lines += [*_troubles(reader, status, rows, now), *_curve_lines(rows)]
    last = rows[-1] if rows else {}
    for block in (_agent_lines(reader.agents, rows), _time_lines(last)):
        lines += [("", ""), *block] if block else []
    return lines


def row_line(row: Row, rows: Sequence[Row], total_steps: int | None) -> str:
    """One row of metrics: a finished step, or a held-out result."""
    held_out = {name: value for name, value in row.items() if name.startswith("val/") and value is not None}
    if held_out and "reward/mean" not in row:
        named = ("val/accuracy", "val/accuracy_first_round", "val/reward")
        parts = [f"{name.removeprefix('val/')} {held_out[name]:.3f}" for name in named if name in held_out]
        return f"held-out after step {row['step']}: {', '.join(parts) or 'no accuracy'}"
    parts = [f"step {_of(row['step'], total_steps)}"]
    for label, name, form in (("reward", "reward/mean", ".3f"), ("tok/s", "perf/tokens_per_second", ".0f")):
        if row.get(name) is not None:
            parts.append(f"{label} {row[name]:{form}}")
    for label, suffix in (("entropy", "/policy/entropy"), ("kl", "/actor/kl")):
        values = [value for name, value in row.items() if name.endswith(suffix) and value is not None]
        if values:
            parts.append(f"{label} {sum(values) / len(values):.4f}")
    if row.get("trajectory/failed"):
        parts.append(f"{row['trajectory/failed']:.0f} failed")
    eta_s = _eta_s(rows, row["step"], total_steps)
    return " | ".join(parts if eta_s is None else [*parts, f"ETA {duration(eta_s)}"])


def end_line(reader: RunReader, status: RunStatus) -> Line:
    steps = _of(status.step, reader.total_steps)
    if status.state == DEAD:
        did = "" if status.doing is None else f"; the last that it did: {doing_text(status.doing)}"
        return f"{reader.name} is dead: it says that it is running (step {steps}), but its process is gone{did}", BAD
    return f"{reader.name}: {status.state} at step {steps}", _STATE_STYLES.get(status.state, "")


def _title(reader: RunReader, status: RunStatus, rows: Sequence[Row], now: float) -> Line:
    parts = [f"{reader.name}  {status.state}", f"step {_of(status.step, reader.total_steps)}"]
    eta_s = _eta_s(rows, status.step, reader.total_steps) if status.is_running else None
    if eta_s is not None:
        parts.append(f"ETA {duration(eta_s)}")
    age_s = status.age_s(now)
    if age_s is not None:
        parts.append(f"last sign {duration(age_s)} ago")
    return " | ".join(parts), _STATE_STYLES.get(status.state, "")


def _budget_lines(reader: RunReader, rows: Sequence[Row]) -> list[Line]:
    """How much of each budget of `stop_when` is used."""
    latest: dict[str, float | None] = {}
    for row in rows:
        latest |= row
    used = as_line(budgets(reader.limits, latest))
    return [(f"budgets: {used}", "")] if used else []


def _troubles(reader: RunReader, status: RunStatus, rows: Sequence[Row], now: float) -> list[Line]:
    lines = []
    step_s, age_s = _step_s(rows), status.age_s(now)
    if status.is_running and age_s is not None and age_s > max(LATE_MIN_S, LATE_FACTOR * (step_s or 0.0)):
        usual = "" if step_s is None else f"; a step takes {duration(step_s)}"
        lines.append((f"no sign of life for {duration(age_s)}{usual}", BAD))
    nonfinite = rows[-1].get("nonfinite") if rows else None
    if nonfinite:
        lines.append((f"not finite in the last step: {', '.join(map(str, nonfinite))}", BAD))
    failed = sum(row.get("trajectory/failed") or 0.0 for row in rows)
    if failed:
        lines.append((f"{failed:.0f} trajectories failed so far; see {reader.path / 'failures'}", BAD))
    return lines


def _curve_lines(rows: Sequence[Row]) -> list[Line]:
    body = []
    for name in _CURVES:
        points = series(rows, name)
        if points:
            low, high = min(points.values()), max(points.values())
            width = min(CURVE_WIDTH, max(points) - min(points) + 1)
            drawn = sparkline(resample(points, min(points), max(points), width), low, high)
            body.append([name, drawn, f"{points[min(points)]:.3f}", f"{points[max(points)]:.3f}", f"{high:.3f}"])
    return table(("curve", "", "first", "last", "highest"), body, right=("first", "last", "highest")) if body else []


def _agent_lines(agents: Sequence[str], rows: Sequence[Row]) -> list[Line]:
    """The latest value of each agent; agents that do not train in every step have no entropy in every row."""
    body = []
    for agent in agents:
        curves = [series(rows[-_NUM_TIMED_STEPS:], f"agent_{agent}{suffix}") for suffix in _AGENT_COLUMNS.values()]
        body.append([agent, *(f"{points[max(points)]:.4g}" if points else "" for points in curves)])
    return table(("agent", *_AGENT_COLUMNS), body, right=tuple(_AGENT_COLUMNS)) if body else []


def _time_lines(row: Mapping[str, float | None]) -> list[Line]:
    times = {name.removeprefix(_NODE_TIME): value for name, value in row.items() if name.startswith(_NODE_TIME)}
    known = {name: value for name, value in times.items() if value is not None}
    total = math.fsum(known.values())
    if total <= 0.0:
        return []
    ranked = sorted(known.items(), key=lambda item: -item[1])
    body = [[name, f"{1000 * value:.0f}", f"{value / total:.0%}", "█" * round(30 * value / total)]
            for name, value in ranked]  # fmt: skip
    head, *lines = table(("node, last step", "ms", "share", ""), body, right=("ms", "share"))
    return [head, *((text, DIM) for text, _ in lines)]


def _eta_s(rows: Sequence[Row], done: int, total_steps: int | None) -> float | None:
    step_s = _step_s(rows)
    return None if step_s is None or total_steps is None else step_s * max(0, total_steps - done)


def _step_s(rows: Sequence[Row]) -> float | None:
    """Mean time of the last steps, with what is done between them; None where fewer than two were written."""
    times = series([row for row in rows if "reward/mean" in row], "time")
    steps = sorted(times)[-_NUM_TIMED_STEPS:]
    if len(steps) < 2:
        return None
    return max(0.0, times[steps[-1]] - times[steps[0]]) / (steps[-1] - steps[0])


def _of(step: int, total_steps: int | None) -> str:
    return str(step) if total_steps is None else f"{step}/{total_steps}"


def _as_rich(lines: Sequence[Line]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for line, style in lines:
        text.append(printable(line) + "\n", style)
    return text
