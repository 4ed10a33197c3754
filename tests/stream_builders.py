"""Trajectories written by hand for tests of the learn graph."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.types import FinishReason, StopReason, Task, Trajectory, Turn


def turn(agent_group: int, round: int, response: Sequence[int], *, prompt: Sequence[int] = (1, 2), **changes) -> Turn:
    """A turn of node `agent_<g>` with log-prob -1 at every token."""
    fields = {
        "node_id": f"agent_{agent_group}",
        "agent_group": agent_group,
        "round": round,
        "prompt_ids": tuple(prompt),
        "response_ids": tuple(response),
        "rollout_logprobs": (-1.0,) * len(response),
        "temperature": 1.0,
        "finish_reason": FinishReason.STOP,
        "policy_version": 0,
        "response_text": " ".join(map(str, response)),
    }
    return Turn(**(fields | changes))


def trajectory(task_id: str, turns: Sequence[Turn], *, stop: StopReason = StopReason.TERMINATED, sample: int = 0):
    return Trajectory(
        task=Task(task_id=task_id, prompt="p", ground_truth="7"),
        sample=sample,
        step=0,
        turns=list(turns),
        stop_reason=stop,
        num_rounds=1 + max((one.round for one in turns), default=-1),
    )
