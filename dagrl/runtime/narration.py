"""What a run says of itself, as lines of plain text: steps, conversations, held-out results, the closing report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dagrl.images import shown
from dagrl.plain_text import duration, safe
from dagrl.runtime.evaluate import Evaluation
from dagrl.runtime.model_card import auto_class
from dagrl.runtime.statistics import known_pairs, paired_difference
from dagrl.types import Metrics, Trajectory, Turn
from dagrl.workflow.budgets import Budget

MAX_TEXT_CHARS = 600
"""Of one message of a sample conversation; the rest stands in the trajectory log."""
NUM_SHARES_SHOWN = 4
_INDENT = "    "


class ClosingReport(Protocol):
    """What a run came to."""

    @property
    def num_steps(self) -> int: ...

    @property
    def before(self) -> Sequence[Evaluation]: ...

    @property
    def after(self) -> Sequence[Evaluation]: ...

    @property
    def without(self) -> Sequence[Evaluation]: ...

    @property
    def stopped_by(self) -> int | None: ...

    @property
    def spent(self) -> Budget | None: ...

    @property
    def checkpoint(self) -> Path | None: ...


def step_line(done: int, total_steps: int, metrics: Metrics, seconds: Mapping[str, float], eta_s: float) -> str:
    """One finished step; what was not measured is left out."""
    parts = [f"step {done}/{total_steps}"]
    if "reward/mean" in metrics:
        parts.append(f"reward {metrics['reward/mean']:.3f}")
    for label, suffix in (("kl", "/actor/kl"), ("kl_ref", "/actor/kl_loss"), ("entropy", "/policy/entropy")):
        mean = mean_of_agents(metrics, suffix)
        if mean is not None:
            parts.append(f"{label} {mean:.4f}")
    if "perf/tokens_per_second" in metrics:
        parts.append(f"{metrics['perf/tokens_per_second']:.0f} tok/s")
    parts.append(f"{sum(seconds.values()):.1f} s ({time_shares(seconds)})")
    parts.append(f"ETA {duration(eta_s)}")
    if metrics.get("trajectory/failed", 0.0):
        parts.append(f"{metrics['trajectory/failed']:.0f} failed")
    return " | ".join(parts)


def mean_of_agents(metrics: Metrics, suffix: str) -> float | None:
    """Mean over agents of the metric `agent_<name><suffix>`; None where no agent has it."""
    values = [value for name, value in metrics.items() if name.startswith("agent_") and name.endswith(suffix)]
    return sum(values) / len(values) if values else None


def time_shares(seconds: Mapping[str, float]) -> str:
    """Share of the time of play and of each learn node, largest first: `play 61%, actor_train 20%, other 19%`."""
    total = sum(seconds.values())
    if total <= 0.0:
        return "no time"
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    shown = ranked[:NUM_SHARES_SHOWN]
    other = sum(value for _, value in ranked[NUM_SHARES_SHOWN:])
    parts = [f"{name} {value / total:.0%}" for name, value in shown]
    return ", ".join(parts if other == 0.0 else [*parts, f"other {other / total:.0%}"])


def evaluation_line(evaluation: Evaluation) -> str:
    """One held-out evaluation."""
    who = f" on {evaluation.held_out}" if evaluation.held_out else ""
    who += "" if evaluation.without is None else f" without {evaluation.without}"
    size = f"{evaluation.num_problems}{_without_verdict(evaluation)}"
    return f"held-out after step {evaluation.step}{who}: {evaluation.accuracy} of {size}"


def conversation_lines(done: int, trajectory: Trajectory, role_names: Mapping[str, str]) -> list[str]:
    """A whole conversation with its verdict; `role_names` by node id."""
    task = trajectory.task
    lines = [f"--- sample of step {done}: task {task.task_id} ---", *_message("problem", prompt_text(task.prompt))]
    for round in range(trajectory.num_rounds):
        for turn in trajectory.of_round(round):
            lines += _message(_speaker(turn, role_names), turn.response_text)
        lines += _observations(trajectory, round)
    ended = "not ended" if trajectory.stop_reason is None else str(trajectory.stop_reason)
    truth = "" if task.ground_truth is None else f", ground truth {_one_line(str(task.ground_truth))}"
    reward = f"{trajectory.reward:g}" if trajectory.unscored is None else f"unknown ({trajectory.unscored})"
    lines.append(f"--- reward {reward}, {ended} after {trajectory.num_rounds} rounds{truth} ---")
    return [safe(line) for line in lines]


def prompt_text(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """A prompt as one text; chat messages with their roles."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"({message['role']}) {message['content']}" for message in prompt)


def report_lines(report: ClosingReport, folder: Path, total_steps: int, elapsed_s: float) -> list[str]:
    """What was reached, what each agent brings, where everything is, what to do next."""
    took = f"{report.num_steps} of {total_steps} steps in {duration(elapsed_s)}"
    if report.stopped_by is not None:
        head = f"Stopped by signal {report.stopped_by}: {took}."
    else:
        head = f"Done: {took}." if report.spent is None else f"Done by config.stop_when, {report.spent}: {took}."
    return [head, *_accuracy_lines(report), *_place_lines(report, folder)]


def _accuracy_lines(report: ClosingReport) -> list[str]:
    if not report.before and not report.after:
        return ["Held-out accuracy was not measured."]
    lines = ["Held-out accuracy with its 95 % confidence interval:"]
    for place, one in enumerate(report.after or report.before):
        lines += _set_lines(one.held_out, report.before[place : place + 1], report.after[place : place + 1])
    for evaluation in report.without:
        name = f"without {evaluation.without}"
        lines.append(f"{_INDENT}{name:24s} {evaluation.accuracy}{_without_verdict(evaluation)}")
        if report.after:
            lines.append(f"{_INDENT}{'  so it brings':24s} {_difference(evaluation, report.after[0])}")
    return lines


def _set_lines(name: str, before: Sequence[Evaluation], after: Sequence[Evaluation]) -> list[str]:
    """Of one held-out set; each is one evaluation or none."""
    lines, of = [], f"{name} " if name else ""
    for when, found in (("before", before), ("after", after)):
        for evaluation in found:
            which = f"{evaluation.num_problems} problems{_without_verdict(evaluation)}, after step {evaluation.step}"
            lines.append(f"{_INDENT}{of + when:24s} {evaluation.accuracy}  {which}")
    if before and after:
        lines.append(f"{_INDENT}{of + 'gain':24s} {_difference(before[0], after[0])}")
    return lines


def _difference(before: Evaluation, after: Evaluation) -> str:
    diff, low, high = paired_difference(*known_pairs(before.solved, after.solved))
    if math.isnan(diff):
        return "unknown: no problem has a verdict both times"
    verdict = "improved" if low > 0 else "worse" if high < 0 else "no clear difference"
    return f"{diff:+.3f} [{low:+.3f}, {high:+.3f}]  {verdict}"


def _without_verdict(evaluation: Evaluation) -> str:
    """The samples that the accuracy leaves out; nothing where there are none."""
    parts = [f"{evaluation.num_failed} failed"] if evaluation.num_failed else []
    parts += [f"{evaluation.num_unknown} without a reward"] if evaluation.num_unknown else []
    return f" ({', '.join(parts)}: left out)" if parts else ""


def _place_lines(report: ClosingReport, folder: Path) -> list[str]:
    lines = [f"Run folder: {folder}", f"{_INDENT}metrics.jsonl, tensorboard/, trajectories/, workflow.yaml, code/"]
    lines.append("Next:")
    lines.append(f"{_INDENT}dagrl view {folder}")
    if report.num_steps:
        lines.append(f"{_INDENT}dagrl show {folder} --step {report.num_steps} --worst 3")
    if report.checkpoint is not None:
        lines.insert(2, f"Checkpoint: {report.checkpoint}")
        lines.append(f"{_INDENT}dagrl export {folder} -o DIR")
        for agent in sorted(report.checkpoint.glob("agent_*")):
            lines.append(f"{_INDENT}{auto_class(agent)}.from_pretrained({str(agent)!r})")
    lines.append(f"{_INDENT}tensorboard --logdir {folder / 'tensorboard'}")
    return lines


def _speaker(turn: Turn, role_names: Mapping[str, str]) -> str:
    branch = f" #{turn.branch + 1}" if turn.branch else ""
    return f"{role_names.get(turn.node_id, turn.node_id)}{branch}, round {turn.round + 1}"


def _observations(trajectory: Trajectory, round: int) -> list[str]:
    lines: list[str] = []
    for observation in trajectory.observations:
        if observation.round == round:
            for text in dict.fromkeys(observation.texts.values()):
                lines += _message(f"{observation.node_id} answers", shown(text))
    return lines


def _message(speaker: str, text: str) -> list[str]:
    shown = text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]} ... ({len(text)} characters)"
    return [f"{speaker}:", *(f"{_INDENT}{line}" for line in shown.split("\n"))]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_TEXT_CHARS]
