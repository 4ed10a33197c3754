"""A run's time in the terminal: bars of one step, means over all of them, critical path, who waited for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from dagrl.report.critical_path import Gain, LearnWork, critical_path, gain_of_agents_in_parallel
from dagrl.report.screen import BAD, DIM, HEAD, Line, plain, table
from dagrl.report.timeline import Shares, StepTrace, Timeline, means, total_of
from dagrl.trace_events import CHECKPOINT, EVALUATE, EXTRA_PLAY, IN_STEP, Kind, Span

BAR_WIDTH = 40
_ROWS = (Kind.SPEAK, Kind.HOOK, Kind.ENV, Kind.ENGINE, Kind.NODE)
"""Kinds that have a row a name, in the order of the table."""
_TITLES: dict[Kind, Callable[[str], str]] = {
    Kind.SPEAK: str,
    Kind.HOOK: lambda name: f"{name}: hooks",
    Kind.ENV: lambda name: name if "@" in name else f"{name}: environment",
    Kind.ENGINE: lambda name: f"engine, {name}",
    Kind.NODE: str,
}
_SHARES = {
    "engine": "the engine computes",
    "environments": "the engine waits for environments",
    "hooks": "the engine waits for hooks",
    "handling": "turns are put together and batched",
    "rewards": "the engine waits for rewards",
    "learning": "the engine waits for learning",
    "writing": "logs are written, and the rest",
}


def step_lines(step: StepTrace, num_cpus: int) -> list[Line]:
    """One step: every track as a bar over the step's time."""
    phases = ", ".join(f"{name} {_seconds(spent)}" for name, spent in _phases(step).items())
    body = []
    for kind in _ROWS:
        for name, spans in _by_name(step.of(kind)).items():
            cpu = _cpu(spans)
            body.append(
                [
                    _TITLES[kind](name),
                    _seconds(_busy(spans)),
                    "" if cpu is None else _seconds(cpu),
                    _calls(spans),
                    _bar(spans, step.whole),
                ]
            )
    head = ("node", "wall", "CPU", "calls", f"0 … {_seconds(step.seconds)}")
    lines = [(f"step {step.number}: {_seconds(step.seconds)} ({phases})", HEAD), ("", "")]
    lines += table(head, body, right=("wall", "CPU", "calls"))
    lines += [("", ""), *_last_lines(step), *_path_lines(step.learn_work, num_cpus, step.seconds)]
    return [*lines, ("", ""), *_share_lines(step.shares())]


def _phases(step: StepTrace) -> dict[str, float]:
    """Seconds of each; extra play, which lies within learn, only where there was any."""
    seconds = {name: step.phase_seconds(name) for name in IN_STEP}
    return {name: spent for name, spent in seconds.items() if spent or name != EXTRA_PLAY}


def run_lines(timeline: Timeline, num_cpus: int) -> list[Line]:
    """All steps that were traced: means a step, evaluations and checkpoints in sum."""
    steps = list(timeline.steps.values())
    if not steps:
        return [("no step is over yet", DIM)]
    mean_s = sum(step.seconds for step in steps) / len(steps)
    slowest = max(steps, key=lambda step: step.seconds)
    lines = [(f"{len(steps)} steps traced of {steps[-1].number}: {_seconds(mean_s)} a step, the slowest was "
              f"{slowest.number} with {_seconds(slowest.seconds)}", HEAD)]  # fmt: skip
    for name, title in ((EVALUATE, "evaluations"), (CHECKPOINT, "checkpoints")):
        count, seconds = total_of(timeline.between, name)
        if count:
            lines += plain(f"{count} {title}: {_seconds(seconds)} in all, {_seconds(seconds / count)} each")
    lines += [("", ""), *_mean_table(steps), ("", "")]
    lines += _path_lines(mean_work(steps), num_cpus, mean_s)
    return [*lines, ("", ""), *_share_lines(means([step.shares() for step in steps]))]


def as_json(timeline: Timeline, steps: Sequence[StepTrace], num_cpus: int) -> dict[str, Any]:
    """The numbers behind both, in seconds."""
    told = []
    for step in steps:
        path = critical_path(step.learn_work)
        gain = gain_of_agents_in_parallel(step.learn_work, num_cpus)
        told.append(
            {
                "step": step.number,
                "seconds": step.seconds,
                "phases": _phases(step),
                "tracks": [
                    {"kind": str(kind), "name": name, "wall": _busy(spans), "cpu": _cpu(spans)}
                    for kind in _ROWS
                    for name, spans in _by_name(step.of(kind)).items()
                ],
                "shares": asdict(step.shares()),
                "last_conversation": [[span.name, span.duration_us / 1e6] for span in step.of(Kind.LAST)],
                "critical_path": {"nodes": [one.name for one in path], "seconds": sum(one.seconds for one in path)},
                "agents_in_parallel": {**asdict(gain), "saves": gain.seconds},
            }
        )
    between = {name: total_of(timeline.between, name) for name in (EVALUATE, CHECKPOINT)}
    return {
        "steps": told,
        **{name: {"count": count, "seconds": seconds} for name, (count, seconds) in between.items()},
    }


def mean_work(steps: Sequence[StepTrace]) -> list[LearnWork]:
    """The learn nodes with their mean times over all steps; one that did not run in a step took no time there."""
    runs: dict[str, list[LearnWork]] = {}
    for step in steps:
        for one in step.learn_work:
            runs.setdefault(one.name, []).append(one)
    after = {name: tuple(dict.fromkeys(before for one in own for before in one.after)) for name, own in runs.items()}
    ordered: list[str] = []
    for name in runs:
        _put_after(name, after, ordered)
    return [
        LearnWork(
            name=name,
            agent=runs[name][-1].agent,
            seconds=sum(one.seconds for one in runs[name]) / len(steps),
            cpu_seconds=sum(one.cpu_seconds for one in runs[name]) / len(steps),
            after=after[name],
        )
        for name in ordered
    ]


def _put_after(name: str, after: dict[str, tuple[str, ...]], ordered: list[str]) -> None:
    if name in ordered:
        return
    for before in after.get(name, ()):
        _put_after(before, after, ordered)
    if name in after:
        ordered.append(name)


def _mean_table(steps: Sequence[StepTrace]) -> list[Line]:
    total = sum(step.seconds for step in steps)
    body = []
    for kind in _ROWS:
        for name, spans in _by_name([span for step in steps for span in step.of(kind)]).items():
            wall, cpu = _busy(spans), _cpu(spans)
            shown = "" if cpu is None else _seconds(cpu / len(steps))
            bar = "█" * round(BAR_WIDTH * wall / total)
            body.append([_TITLES[kind](name), _seconds(wall / len(steps)), shown, f"{wall / total:.1%}", bar])
    return table(("node, a step", "wall", "CPU", "share", ""), body, right=("wall", "CPU", "share"))


def _last_lines(step: StepTrace) -> list[Line]:
    """What the play phase waited for, summed by what the conversation did."""
    legs = step.of(Kind.LAST)
    if not legs:
        return []
    spent: dict[str, int] = {}
    for leg in legs:
        spent[leg.name] = spent.get(leg.name, 0) + leg.duration_us
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {_seconds(us / 1e6)}" for name, us in ranked)
    return plain(f"critical path of play: conversation {legs[-1].facts['conversation']} ended last: {told}")


def _path_lines(work: Sequence[LearnWork], num_cpus: int, step_s: float) -> list[Line]:
    if not work:
        return []
    path = critical_path(work)
    gain = gain_of_agents_in_parallel(work, num_cpus)
    chain = " → ".join(f"{one.name} {_seconds(one.seconds)}" for one in path)
    longest = sum(one.seconds for one in path)
    return plain(
        f"critical path of learning: {_seconds(longest)} of {_seconds(gain.sequential)}: {chain}",
        f"nodes of different agents side by side: {_told(gain, num_cpus)}; a step at most "
        f"{gain.seconds / step_s:.1%} shorter",
    )


def _told(gain: Gain, num_cpus: int) -> str:
    if gain.least > gain.by_agent:
        return f"{_seconds(gain.least)} of learning (CPU time over {num_cpus} cores; the graph alone would allow " \
               f"{_seconds(gain.by_agent)})"  # fmt: skip
    return f"{_seconds(gain.by_agent)} of learning"


def _share_lines(shares: Shares) -> list[Line]:
    spent = asdict(shares)
    total = shares.total
    rows = [[title, _seconds(spent[name]), f"{spent[name] / total:.1%}", "█" * round(BAR_WIDTH * spent[name] / total)]
            for name, title in _SHARES.items()]  # fmt: skip
    lines = table(("idle share", "time", "share", ""), rows, right=("time", "share"))
    if shares.env_busy:
        lines += plain(
            f"environments are at work {shares.env_busy / total:.1%} of the step; "
            f"they wait for the engine {shares.env_waits / total:.1%}"
        )
    if shares.environments > shares.engine:
        lines.append(("the engine waits for environments longer than it computes: raise rollout.env_workers", BAD))
    return lines


def _by_name(spans: Sequence[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.name, []).append(span)
    return found


def _busy(spans: Sequence[Span]) -> float:
    return sum(int(span.facts.get("busy_us", span.duration_us)) for span in spans) / 1e6


def _cpu(spans: Sequence[Span]) -> float | None:
    """None where it is not known: what is played beside other things."""
    known = [int(span.facts["cpu_us"]) for span in spans if "cpu_us" in span.facts]
    return sum(known) / 1e6 if known else None


def _calls(spans: Sequence[Span]) -> str:
    calls = sum(int(span.facts.get("calls", 0)) for span in spans)
    return str(calls) if calls else ""


def _bar(spans: Sequence[Span], whole: Span) -> str:
    """A block where any span lies, however short."""
    cells = [" "] * BAR_WIDTH
    scale = BAR_WIDTH / max(1, whole.duration_us)
    for span in spans:
        first = min(BAR_WIDTH - 1, int((span.start_us - whole.start_us) * scale))
        last = max(first + 1, min(BAR_WIDTH, round((span.end_us - whole.start_us) * scale)))
        cells[first:last] = "█" * (last - first)
    return "".join(cells).rstrip()


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
