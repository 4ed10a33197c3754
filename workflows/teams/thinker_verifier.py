"""Thinker and verifier: both go on with one transcript (hooks: marft/process.py), until somebody ends it."""

from __future__ import annotations

import re

from dagrl import Trajectory

_FINAL = re.compile(r"<final_answer>.*?</final_answer>", re.DOTALL)
"""What ends the conversation, as FinalAnswerEnv has it."""
_NUMBER = re.compile(r"-?\d+")


def is_open(trajectory: Trajectory) -> bool:
    """Whether the thinker left anything to verify: its own final answer needs no verdict."""
    return not trajectory.turns or _FINAL.search(trajectory.turns[-1].response_text) is None


def verdicts(trajectory: Trajectory) -> dict[str, object]:
    """For each turn of the verifier whether it gave a final answer, beside whether the thinker's last number was right;
    adds nothing to the reward."""
    judged, thought = [], ""
    for turn in trajectory.turns:
        if turn.node_id == "thinker":
            thought = turn.response_text
        else:
            said = "doubt" if _FINAL.search(turn.response_text) is None else "answer"
            is_right = _NUMBER.findall(thought)[-1:] == [str(trajectory.task.ground_truth).strip()]
            judged.append((said, "answer" if is_right else "doubt"))
    return {"score": 0.0, "verdict": {"verifier": judged}}
