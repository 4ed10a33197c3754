"""Thinker and verifier: both go on with one transcript (hooks: marft/process.py), until somebody ends it."""

from __future__ import annotations

import re

from dagrl import Trajectory

_FINAL = re.compile(r"<final_answer>.*?</final_answer>", re.DOTALL)
"""What ends the conversation, as FinalAnswerEnv has it."""


def is_open(trajectory: Trajectory) -> bool:
    """Whether the thinker left anything to verify: its own final answer needs no verdict."""
    return not trajectory.turns or _FINAL.search(trajectory.turns[-1].response_text) is None
