"""Capsules: a failed trajectory from its file in failures/, played again as it was, answer by answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.backends.recorded import RecordedGenerator, Recording, recording_of
from dagrl.backends.scripted import TurnKey, turn_seed
from dagrl.errors import DagrlError, StorageError
from dagrl.images import of_text
from dagrl.nodes.base import TrajectoryFault
from dagrl.runtime.code_files import code_files
from dagrl.runtime.console import Console
from dagrl.runtime.conversation import draw_of
from dagrl.runtime.debugging import post_mortem
from dagrl.runtime.judge import playing_pool, recorded_workflow
from dagrl.runtime.resume import differences, find_point_before
from dagrl.runtime.session import open_player, prepare_process
from dagrl.types import FailedTrajectory, FinishReason, Task, Trajectory, Turn, Variation
from dagrl.workflow.graph import Workflow
from dagrl.workflow.held_out import VAL, held_out_sets

_PATIENT = "config.rollout.hook_timeout_s=1e9"
"""Under the debugger hooks may take their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encore:
    """What became of a failed trajectory that was played again."""

    task_id: str
    sample: int
    place: str
    """The step or evaluation that it failed in."""
    kind: str
    """The fault that it failed by."""
    fault: TrajectoryFault | None
    """What it failed by now; None where it no longer fails."""
    ended: str
    """Why the trajectory ended, where it did."""
    reward: float
    weights_step: int
    """0 are the initial weights."""
    num_recorded: int
    num_generated: int
    notes: tuple[str, ...]

    @property
    def is_mended(self) -> bool:
        return self.fault is None


def replay_capsule(file: Path, *, is_debugged: bool, console: Console) -> Encore:
    """Plays the trajectory of a file in `failures/` of a run again. The run folder is only read."""
    content = _read(file)
    run = file.resolve().parent.parent
    if not (run / "workflow.yaml").is_file():
        raise DagrlError("lies in no run folder", where=str(file), how="replay it where it is: RUN/failures/*.json")
    failed = _failed(content, file)
    workflow = recorded_workflow(run, [_PATIENT] if is_debugged else [], load_plugins=True)
    prepare_process(workflow)
    with ExitStack() as stack:
        stack.callback(console.close)
        point = find_point_before(run, failed.step)
        pool = playing_pool(workflow, None if point is None else point.path, console)
        generator = RecordedGenerator(_recordings(workflow, failed, content["run_seed"]), pool.generator)
        player = open_player(workflow, pool.with_generator(generator))
        stack.callback(player.close)
        trajectory, fault = _play(player.play_again(failed), is_debugged)
    weights_step = 0 if point is None else point.step
    return Encore(
        task_id=failed.task.task_id,
        sample=failed.sample,
        place=_place(failed),
        kind=failed.kind,
        fault=fault,
        ended="" if trajectory is None else str(trajectory.stop_reason),
        reward=0.0 if trajectory is None else trajectory.reward,
        weights_step=weights_step,
        num_recorded=generator.num_recorded,
        num_generated=generator.num_generated,
        notes=tuple(_notes(run, workflow, generator, has_weights=weights_step == failed.step)),
    )


def _place(failed: FailedTrajectory) -> str:
    if failed.sampling == "train":
        return f"step {failed.shown_step}"
    varied = "".join(f", {told}" for told in (failed.held_out, failed.variation.name) if told)
    return f"the evaluation after step {failed.shown_step}{varied}"


def _play(game: Any, is_debugged: bool) -> tuple[Trajectory | None, TrajectoryFault | None]:
    try:
        with post_mortem() if is_debugged else nullcontext():
            return asyncio.run(game), None
    except TrajectoryFault as fault:
        return None, fault


def _notes(run: Path, workflow: Workflow, generator: RecordedGenerator, *, has_weights: bool) -> list[str]:
    """What may make this another trajectory than the one that failed."""
    notes = []
    resolved = (run / "workflow.yaml").read_text(encoding="utf-8")
    changes = differences(run, resolved=resolved, code=code_files(workflow))
    if changes:
        notes.append(f"the code is not what the run was made with:\n{changes.rstrip()}")
    if generator.num_other_prompts:
        notes.append(f"{generator.num_other_prompts} answers were given to another prompt than this time")
    if generator.num_generated and not has_weights:
        notes.append("the weights of that step were not kept: answers given anew may be others (trainer.save_freq)")
    return notes


def _recordings(workflow: Workflow, failed: FailedTrajectory, run_seed: int) -> dict[int, Recording]:
    """The turns that were played before the fault, by the seed that they were asked for with."""
    nodes = {node.node_id: node for node in workflow.play}
    sets = {one.name: one for one in held_out_sets(workflow.spec.config)}
    found: dict[int, Recording] = {}
    for turn in failed.turns:
        node = nodes[turn.node_id]
        held_out = sets.get(failed.held_out, VAL)
        own = held_out.seed(node.val_sampling_seed) if failed.sampling == "val" else node.sampling_seed
        key = TurnKey(
            node_id=turn.node_id,
            round=turn.round,
            task_id=failed.task.task_id,
            sample=failed.sample,
            step=failed.step,
            branch=turn.branch,
            draw=draw_of(failed.variation, turn.node_id, turn.round),
        )
        found[turn_seed(run_seed if own is None else own, key)] = recording_of(turn)
    return found


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot be read: {error}", where=str(file)) from error
    if not isinstance(content, dict):
        raise StorageError("holds no failed trajectory", where=str(file))
    return content


def _failed(content: Mapping[str, Any], file: Path) -> FailedTrajectory:
    told = {key: value for key, value in content.items() if key != "run_seed"}
    try:
        turns = tuple(_turn(turn) for turn in told["turns"])
        step = told["step"] - (told["sampling"] == "train")  # `FailedTrajectory.shown_step`, taken back
        task = told["task"] | {"images": tuple(map(of_text, told["task"].get("images", ())))}
        whole = {**told, "task": Task(**task), "turns": turns, "step": step}
        whole["variation"] = _variation(told["variation"])
        return FailedTrajectory(**whole)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"is not a failed trajectory of this version: {error!r}", where=str(file)) from error


def _variation(told: Mapping[str, Any]) -> Variation:
    redrawn = told["redrawn"]
    return Variation(
        silent=tuple(told["silent"]),
        said=dict(told["said"]),
        initial=tuple(told["initial"]),
        redrawn=None if redrawn is None else (redrawn[0], redrawn[1], redrawn[2]),
        is_greedy=told["is_greedy"],
    )


def _turn(told: Mapping[str, Any]) -> Turn:
    ids: dict[str, Any] = {name: tuple(told[name]) for name in ("prompt_ids", "response_ids", "transcript_ids")}
    logprobs = told["rollout_logprobs"]
    ids["rollout_logprobs"] = None if logprobs is None else tuple(logprobs)
    return Turn(**{**told, **ids, "sampled": None, "finish_reason": FinishReason(told["finish_reason"])})
