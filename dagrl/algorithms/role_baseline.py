"""Role-conditioned baselines that move with the scores: SPIRAL's advantage for self-play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_DECAY = 0.95
"""Of SPIRAL (arXiv 2506.24119), section 3.3."""


class RoleBaselines:
    """`A = R - b_role`, then `b_role ← 0.95 b_role + 0.05 R`, score after score: each is judged by those before it.

    >>> RoleBaselines().advantages(["first", "first"], torch.tensor([1.0, -1.0])).tolist()
    [1.0, -1.05]
    """

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        """The baseline of each role."""

    def advantages(self, roles: Sequence[str], scores_R: Tensor) -> Tensor:
        """`[R]` float64, in the order given; a role not seen before starts at 0."""
        found = []
        for role, score in zip(roles, scores_R.double().tolist(), strict=True):
            baseline = self.values.get(role, 0.0)
            found.append(score - baseline)
            self.values[role] = _DECAY * baseline + (1.0 - _DECAY) * score
        return torch.tensor(found, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"baselines": dict(self.values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values = dict(state["baselines"])
