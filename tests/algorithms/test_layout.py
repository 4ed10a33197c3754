"""TurnLayout refuses what is not a stream."""

from __future__ import annotations

import pytest
import torch

from dagrl.algorithms.layout import TurnLayout
from dagrl.errors import DagrlError


def make(lens: list[int], trajectory: list[int], round_: list[int], agent: list[int]) -> TurnLayout:
    columns = [torch.tensor(column, dtype=torch.int64) for column in (lens, trajectory, round_, agent)]
    return TurnLayout(response_lens=columns[0], trajectory=columns[1], round=columns[2], agent_group=columns[3])


def test_counts_tokens_and_trajectories_with_empty_turns() -> None:
    layout = make([2, 0, 0, 3], [0, 0, 1, 2], [0, 1, 0, 0], [0, 0, 0, 0])
    assert (layout.num_tokens, layout.num_trajectories) == (5, 3)


def test_no_turns_is_an_empty_stream() -> None:
    layout = make([], [], [], [])
    assert (layout.num_tokens, layout.num_trajectories) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (([1, 1], [1, 1], [0, 0], [0, 0]), "0..N-1"),
        (([1, 1], [0, 2], [0, 0], [0, 0]), "0..N-1"),
        (([1, 1, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]), "0..N-1"),
        (([1, 1], [0, 0], [1, 0], [0, 0]), "earlier round"),
        (([1, -1], [0, 0], [0, 0], [0, 0]), "'response_lens' has a negative"),
        (([1, 1], [0, 0], [0, 0], [0]), "'agent_group'"),
    ],
)
def test_refuses_rows_that_are_no_stream(rows: tuple[list[int], ...], words: str) -> None:
    with pytest.raises(DagrlError, match=words):
        make(*rows)


def test_refuses_columns_that_are_not_int64() -> None:
    ids = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(DagrlError, match="response_lens"):
        TurnLayout(response_lens=torch.ones(1), trajectory=ids, round=ids, agent_group=ids)


def test_round_may_fall_from_one_trajectory_to_the_next() -> None:
    assert make([1, 1], [0, 1], [3, 0], [0, 0]).num_tokens == 2
