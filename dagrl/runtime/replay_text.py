"""What a replay came to as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.errors import user_traceback
from dagrl.plain_text import safe
from dagrl.runtime.capsule import Encore
from dagrl.runtime.replay import Replay
from dagrl.runtime.replay_check import Agreement, Outcome


def step_lines(replay: Replay) -> list[str]:
    """What `dagrl replay RUN` prints."""
    lines = [f"step {replay.step}: {' -> '.join(replay.nodes)}", _weights_line(replay)]
    if replay.changed_code:
        lines += ["the code is not what the run was made with:", replay.changed_code.rstrip()]
    if replay.num_unknown_tasks:
        lines.append(f"{replay.num_unknown_tasks} tasks are not in the run's data any more: their prompt is empty here")
    for node_id in replay.nodes:
        lines += _node_lines(node_id, [one for one in replay.agreements if one.node_id == node_id])
    if replay.weights_after is not None:
        differing = ", ".join(replay.weights_after)
        told = f"DIFFER from the checkpoint: {differing}" if differing else "byte-identical with the checkpoint"
        lines.append(f"  weights after step {replay.step}: {told}")
    partly = " where it can be compared" if any(one.outcome in _NOT_COMPARED for one in replay.agreements) else ""
    lines.append(f"agrees with the log{partly}" if replay.agrees else "DOES NOT AGREE with the log")
    return [safe(line) for line in lines]


_NOT_COMPARED = (Outcome.OTHER_WEIGHTS, Outcome.CHANGED_LATER, Outcome.ABSENT)


def _node_lines(node_id: str, agreements: Sequence[Agreement]) -> list[str]:
    """What is as it was in one line, each of the others in its own."""
    same = [f"{one.what} ({one.count})" for one in agreements if one.outcome is Outcome.SAME]
    lines = [f"  {node_id}: {Outcome.SAME}: {', '.join(same)}"] if same else []
    for one in (one for one in agreements if one.outcome is not Outcome.SAME):
        gap = f"; largest difference {one.worst:.3g}: {one.place}" if one.place else ""
        lines.append(f"  {node_id}: {one.what} ({one.count}): {one.outcome}{gap}")
    return lines


def _weights_line(replay: Replay) -> str:
    whose = f"the checkpoint of step {replay.weights_step}" if replay.weights_step else "the run's initial weights"
    if replay.is_exact:
        return f"weights: {whose}, which this step had"
    return (
        f"weights: {whose}; those after step {replay.step - 1}, which this step had, were not kept "
        "(trainer.save_freq, keep_last): log-probs and values taken now, and what follows from them, are others"
    )


def capsule_lines(encore: Encore) -> list[str]:
    """What `dagrl replay CAPSULE.json` prints."""
    whose = f"the checkpoint of step {encore.weights_step}" if encore.weights_step else "the run's initial weights"
    lines = [
        f"task {encore.task_id}, sample {encore.sample}, {encore.place}: failed by {encore.kind}",
        f"{encore.num_recorded} answers as they were, {encore.num_generated} given anew by {whose}",
    ]
    lines += encore.notes
    if encore.fault is None:
        lines.append(f"the fault no longer occurs: the trajectory ended ({encore.ended}), reward {encore.reward:g}")
        return [safe(line) for line in lines]
    again = "the fault occurs again" if encore.fault.kind == encore.kind else "ANOTHER fault occurs"
    lines += [f"{again}: {encore.fault.kind}", encore.fault.message, *_traceback(encore.fault)]
    return [safe(line) for line in lines]


def _traceback(fault: BaseException) -> list[str]:
    """The user's, from this process or as the environment's told it."""
    notes: list[str] = [note for error in (fault, fault.__cause__) for note in getattr(error, "__notes__", ())]
    return (notes or [user_traceback(fault)])[0].splitlines()
