"""ReasoningGymEnv: the verifier of the package reasoning_gym (`pip install dagrl[envs]`) as an environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import reasoning_gym
from math_env import RIGHT, WRONG, last_boxed


class ReasoningGymEnv:
    """One problem of data_preprocess/reasoning_gym.py: the last agent's last `\\boxed{}` is scored by its family.

    The score, from 0 to 1, is the team's reward; a full one ends the trajectory. An action without a closed box gets 0.
    """

    def reset(self, prompt: str | None = None, extra_info: Mapping[str, Any] | None = None) -> None:
        if not extra_info or "metadata" not in extra_info:
            raise ValueError("the row has no extra_info.metadata; make the data with data_preprocess/reasoning_gym.py")
        metadata = json.loads(extra_info["metadata"])
        self._score = reasoning_gym.get_score_answer_fn(metadata["source_dataset"])
        self._entry = {"question": prompt, "metadata": metadata}

    def step(self, actions: Sequence[str], ground_truth: object) -> tuple[list[str], float, bool]:
        """(verdict for each action, the score for the team, whether the problem is solved)."""
        answer = last_boxed(actions[-1])
        score = 0.0 if answer is None else float(self._score(answer, self._entry | {"answer": ground_truth}))
        return [RIGHT if score >= 1.0 else WRONG] * len(actions), score, score >= 1.0
