"""TurnLayout: how the turns of a batch lie in the flat stream of response tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.errors import DagrlError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnLayout:
    """One row per turn, `[K]` int64 each, in the order of the stream.

    Trajectory after trajectory, in time order inside a trajectory, whichever agent spoke. `T` is the sum of
    `response_lens`. Raises `DagrlError` when the rows cannot be such a stream.

    Two agents, one round, three and two tokens:

    >>> layout = TurnLayout(
    ...     response_lens=torch.tensor([3, 2]), trajectory=torch.tensor([0, 0]),
    ...     round=torch.tensor([0, 0]), agent_group=torch.tensor([0, 1]),
    ... )
    >>> layout.num_tokens, layout.num_trajectories
    (5, 1)
    """

    response_lens: Tensor
    """Number of response tokens of each turn, 0 or more."""
    trajectory: Tensor
    """Number of the turn's trajectory in this batch: 0..N-1, never falling, none left out."""
    round: Tensor
    """Round of the turn, from 0, never falling inside a trajectory."""
    agent_group: Tensor
    """Agent that spoke, from 0."""
    stage: Tensor | None = None
    """Place of the turn in the order of its round, from 0; turns of one stage spoke at the same time. None: every turn
    after the one before it."""

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_order()

    @property
    def num_tokens(self) -> int:
        """T, the length of the flat stream."""
        return int(self.response_lens.sum())

    @property
    def num_trajectories(self) -> int:
        """N, counting trajectories whose turns are all empty."""
        return int(self.trajectory[-1]) + 1 if self.trajectory.numel() else 0

    def check_stream(self, name: str, column_T: Tensor) -> None:
        """Raises `DagrlError` unless `column_T` has one entry for each token of this layout."""
        if column_T.shape != (self.num_tokens,):
            raise DagrlError(
                f"column '{name}' has shape {tuple(column_T.shape)}, the turns have {self.num_tokens} tokens",
                how="give one value per response token, all turns one after the other",
            )

    def _check_shapes(self) -> None:
        num_turns = self.response_lens.numel()
        names = ("response_lens", "trajectory", "round", "agent_group")
        for name in names if self.stage is None else (*names, "stage"):
            column_K: Tensor = getattr(self, name)
            if column_K.dtype != torch.int64 or column_K.shape != (num_turns,):
                raise DagrlError(
                    f"turn column '{name}' is {column_K.dtype} of shape {tuple(column_K.shape)}",
                    how=f"give int64 of shape ({num_turns},), as long as response_lens",
                )
            if bool((column_K < 0).any()):
                raise DagrlError(f"turn column '{name}' has a negative entry: {int(column_K.min())}")

    def _check_order(self) -> None:
        if self.trajectory.numel() == 0:
            return
        steps = self.trajectory.diff()
        if int(self.trajectory[0]) != 0 or bool(((steps != 0) & (steps != 1)).any()):
            raise DagrlError(
                "the trajectory numbers of the turns are not 0..N-1 in rising order without a gap",
                how="sort the turns by trajectory and number the trajectories of the batch from 0",
            )
        if bool(((self.round.diff() < 0) & (steps == 0)).any()):
            raise DagrlError(
                "a turn of an earlier round comes after one of a later round in the same trajectory",
                how="keep the turns of a trajectory in time order",
            )
