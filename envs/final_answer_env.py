"""FinalAnswerEnv: a conversation goes on until somebody gives a final answer; that is compared with the right one."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FINAL = re.compile(r"<final_answer>(.*?)</final_answer>", re.DOTALL)


class FinalAnswerEnv:
    """One problem. The first `<final_answer>…</final_answer>` of a round ends the conversation, right or wrong.

    env = FinalAnswerEnv()
    env.step(["1 + 2 = 3", "Think again."], "3")                  # (None, 0.0, False)
    env.step(["1 + 2 = 3", "<final_answer>3</final_answer>"], "3")   # (None, 1.0, True)
    """

    def reset(self, prompt: str | None = None) -> None:
        """Nothing to prepare: the agents know the problem from their prompt."""

    def step(self, actions: Sequence[str], ground_truth: object) -> tuple[None, float, bool]:
        """(nothing to be heard, 1.0 or 0.0 for the team, whether an answer was given); exact but for white space."""
        answers = [answer for action in actions if (answer := final_answer(action)) is not None]
        return None, float(bool(answers) and answers[0] == str(ground_truth).strip()), bool(answers)


def final_answer(text: str) -> str | None:
    """What stands in the last closed `<final_answer>` of `text`; None without one."""
    found = _FINAL.findall(text)
    return found[-1].strip() if found else None
