"""A forecast as lines of text, beside what was measured where there is a run."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.plain_text import duration
from dagrl.runtime.forecast.measured import Measured
from dagrl.runtime.forecast.verdicts import expected_use
from dagrl.runtime.forecast.whole import Forecast
from dagrl.runtime.memory_estimate import shown
from dagrl.workflow.kinds import NodeKind

_NONE = "?"


def lines(found: Forecast, measured: Measured | None, warnings: Sequence[str]) -> list[str]:
    """Everything that `dagrl plan` prints."""
    told = [*_head(found), "", *_nodes(found, measured), "", *_schedule(found), *_totals(found, measured)]
    told += ["", *_memory(found), *_disk(found, measured)]
    told += [f"note: {note}" for note in found.notes]
    return told + [f"warning: {warning}" for warning in warnings]


def _head(found: Forecast) -> list[str]:
    told = [
        f"{found.dag_id}: {found.steps} steps of {found.trajectories} trajectories, {found.evaluations} evaluations",
    ]
    told += [f"extra rollouts in a step: {count} for {name}, at most" for name, count in found.extra.items()]
    if found.most_prompts > found.num_prompts:
        told.append(f"dynamic sampling: up to {found.most_prompts} prompts are played to train on {found.num_prompts}")
    if found.nodes:
        told.append(
            f"prompts: {found.prompt_mean:.0f} tokens in the mean, {found.prompt_longest} at most "
            f"({found.rehearsed_rows} of {found.num_rows} rows rehearsed)"
        )
    return told


def _nodes(found: Forecast, measured: Measured | None) -> list[str]:
    """By node, in a step in which it runs."""
    header = ["node", "agent", "turns", "prompt tokens", "generated", "trained", "TFLOP", "s (estimate)"]
    rows = [
        [
            work.node,
            "+".join(work.agents),
            _count(work.turns),
            _count(work.prompt_tokens),
            _count(work.tokens) if work.kind is NodeKind.ROLLOUT else "",
            _count(work.trained_tokens) if work.kind.is_train else "",
            _NONE if work.flops is None else f"{work.flops / 1e12:.3g}",
            _NONE if work.seconds is None else f"{work.seconds:.2g}",
        ]
        for work in found.nodes
    ]
    told = ["per step; every response at full length, every round played:", *_table(header, rows)]
    if not found.nodes:
        told = ["tokens by node: unknown without the models' tokenizers"]
    return told if measured is None else [*told, "", *_measured_agents(found, measured), *_measured_times(measured)]


def _measured_agents(found: Forecast, measured: Measured) -> list[str]:
    header = ["agent", "prompt tokens", "measured", "generated", "measured", "trained", "measured"]
    rows = []
    for name, own in measured.agents.items():
        speaking = [work for work in found.nodes if work.kind is NodeKind.ROLLOUT and name in work.agents]
        actors = [work for work in found.nodes if work.kind is NodeKind.TRAIN_ACTOR and name in work.agents]
        trained = sum(work.trained_tokens * work.steps for work in actors) / max(found.steps, 1)
        planned = (sum(work.prompt_tokens for work in speaking), sum(work.tokens for work in speaking), trained)
        seen = (own["prompt_tokens"], own["tokens"], own["trained_tokens"])
        rows.append([name, *(_count(number) for pair in zip(planned, seen) for number in pair)])
    return [f"mean of {measured.steps} steps done:", *_table(header, rows)]


def _measured_times(measured: Measured) -> list[str]:
    return ["seconds measured: " + ", ".join(f"{name} {seconds:.2g}" for name, seconds in measured.seconds.items())]


def _schedule(found: Forecast) -> list[str]:
    told = ["who trains when:"]
    for block in found.schedule:
        steps = f"step {block.first}" if block.first == block.last else f"steps {block.first}-{block.last}"
        told.append(f"  {steps}: {', '.join(block.trains) or 'nobody'}")
    if found.schedule and found.schedule[-1].last < found.steps:
        told.append("  and so on")
    counts = ", ".join(f"{model} {count}" for model, count in found.optimizer_steps.items())
    return [*told, f"optimizer steps of the whole run: {counts or 'none'}"]


def _totals(found: Forecast, measured: Measured | None) -> list[str]:
    uses = expected_use(found)
    told = ["whole run:"]
    used = {} if measured is None else {**measured.totals, "seconds": measured.seconds_total}
    for name in ("tokens", "env_calls", "judge_calls", "seconds"):
        if name == "seconds":
            told.append(f"  seconds: {_time(found.seconds)} (estimate of the models' arithmetic alone)")
        else:
            bound = found.at_most[name]
            told.append(f"  {name}: {_count(uses[name])}" + (f", at most {_count(bound)}" if name == "tokens" else ""))
        if measured is not None:
            told[-1] += f"; used so far {_time(used[name]) if name == 'seconds' else _count(used.get(name, 0))}"
        if name in found.limits:
            told[-1] += f"; budget {_count(found.limits[name])}"
    return told


def _memory(found: Forecast) -> list[str]:
    header = ["memory", "weights", "training", "reference", "critic", "keys, values", "activations", "logits", "total"]
    rows = [
        [name, *map(shown, (own.weights, own.training, own.reference, own.critic, own.kv_cache, own.activations,
                            own.logits, own.total))]
        for name, own in found.memory.items()
    ]  # fmt: skip
    told = _table(header, rows) if rows else ["memory: unknown"]
    if found.largest is not None:
        shape = " x ".join(f"{length:,}" for length in found.largest.shape)
        told.append(f"largest tensor: {found.largest.what}, {shape}, {shown(found.largest.num_bytes)}")
    return told


def _disk(found: Forecast, measured: Measured | None) -> list[str]:
    one = _NONE if found.checkpoint_bytes is None else shown(found.checkpoint_bytes)
    told = [
        f"disk: {found.num_checkpoints} checkpoint{'s' * (found.num_checkpoints != 1)} of {one}, trajectories "
        f"{shown(found.trajectory_bytes)} (estimate), logs {shown(found.log_bytes)} (estimate)"
    ]
    if measured is not None:
        newest = _NONE if measured.checkpoint_bytes is None else shown(measured.checkpoint_bytes)
        told.append(
            f"disk measured: {measured.num_checkpoints} of {newest}, trajectories {shown(measured.trajectory_bytes)}, "
            f"logs {shown(measured.log_bytes)}"
        )
    return told


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The first two columns to the left, numbers to the right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _time(seconds: float | None) -> str:
    return _NONE if seconds is None else duration(seconds)
