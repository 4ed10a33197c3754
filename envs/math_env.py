"""MathEnv: the last agent's boxed answer is compared with the right one, and every agent is told the verdict."""

from __future__ import annotations

from collections.abc import Sequence

RIGHT = "The answer is right."
WRONG = "The answer is wrong."
_BOX = "\\boxed{"


class MathEnv:
    """One problem. The team has solved it when the last action's last `\\boxed{}` holds the ground truth.

    An action is what the agent said this round and nothing before it, so that an old box is never scored again.

    env = MathEnv()
    env.step(["1 + 2 = 3", "\\boxed{3}"], "3")   # (["The answer is right."] * 2, 1.0, True)
    """

    def reset(self, prompt: str | None = None) -> None:
        """Nothing to prepare: the agents know the problem from their prompt, and the verdict needs only the answer."""

    def step(self, actions: Sequence[str], ground_truth: object) -> tuple[list[str], float, bool]:
        """(verdict for each action, 1.0 or 0.0 for the team, whether the problem is solved).

        The comparison is exact but for white space at the ends; an action without a closed box is wrong.
        """
        answer = last_boxed(actions[-1])
        is_right = answer is not None and answer.strip() == str(ground_truth).strip()
        return [RIGHT if is_right else WRONG] * len(actions), float(is_right), is_right


def last_boxed(text: str) -> str | None:
    """What stands in the last `\\boxed{}` of `text`, inner braces kept; None if there is no box or it is not closed."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    depth = 1
    for end in range(start + len(_BOX), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + len(_BOX) : end]
    return None
