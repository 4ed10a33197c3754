"""The stream of tokens: what is laid where, and that selections and scatters find it again."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.experience import collate, cumulative, ranges
from dagrl.types import StopReason
from dagrl.workflow.kinds import Column
from tests.stream_builders import trajectory, turn


def test_turns_lie_trajectory_by_trajectory_in_time_order():
    first = trajectory("a", [turn(0, 0, [5, 6]), turn(1, 0, [7]), turn(0, 1, [8, 9, 4])])
    second = trajectory("b", [turn(0, 0, [3])])
    experience = collate([first, second])
    assert experience.turns.trajectory.tolist() == [0, 0, 0, 1]
    assert experience.turns.position.tolist() == [0, 1, 2, 0]
    assert experience.turns.agent_group.tolist() == [0, 1, 0, 0]
    assert experience.sequences.input_ids.tolist() == [1, 2, 5, 6, 1, 2, 7, 1, 2, 8, 9, 4, 1, 2, 3]
    assert experience.num_tokens == 7


def test_select_gives_the_ids_of_the_chosen_turns_only():
    experience = collate([trajectory("a", [turn(0, 0, [5, 6]), turn(1, 0, [7]), turn(0, 1, [8])])])
    chosen = experience.select(experience.turns_of([0]))
    assert chosen.input_ids.tolist() == [1, 2, 5, 6, 1, 2, 8]
    assert chosen.offsets.tolist() == [0, 4, 7]
    assert chosen.response_lens.tolist() == [2, 1]


def test_an_empty_response_is_in_the_table_but_not_selected():
    experience = collate([trajectory("a", [turn(0, 0, []), turn(1, 0, [7])])])
    assert len(experience.turns) == 2
    assert experience.turns_of([0]).tolist() == []
    assert experience.turns_of([0, 1]).tolist() == [1]


def test_reading_a_column_nobody_wrote_names_the_kind_that_should_have():
    experience = collate([trajectory("a", [turn(0, 0, [5])])])
    with pytest.raises(AssertionError, match="VALUES"):
        experience.read(Column.VALUES, torch.tensor([0]))


def test_a_column_written_for_one_agent_is_not_readable_for_another():
    experience = collate([trajectory("a", [turn(0, 0, [5]), turn(1, 0, [6])])])
    experience.write(Column.VALUES, experience.turns_of([0]), torch.tensor([0.5]))
    with pytest.raises(AssertionError):
        experience.read(Column.VALUES, experience.turns_of([1]))


def test_without_use_all_traj_only_the_last_turn_of_each_node_is_trained():
    experience = collate(
        [trajectory("a", [turn(0, 0, [5]), turn(1, 0, [6]), turn(0, 1, [7]), turn(1, 1, [8])])], use_all_traj=False
    )
    assert experience.turns.is_trained.tolist() == [False, False, True, True]
    assert experience.turns_of([0], only_trained=True).tolist() == [2]


def test_truncated_and_terminated_are_told_apart_on_every_turn():
    experience = collate(
        [
            trajectory("a", [turn(0, 0, [5])], stop=StopReason.MAX_ROUNDS),
            trajectory("b", [turn(0, 0, [5])], stop=StopReason.TERMINATED),
        ]
    )
    assert experience.turns.truncated.tolist() == [True, False]
    assert experience.turns.terminated.tolist() == [False, True]


def test_samples_of_one_task_share_its_index():
    experience = collate([trajectory("a", [turn(0, 0, [5])], sample=n) for n in range(2)])
    assert experience.turns.task.tolist() == [0, 0]
    assert experience.turns.sample.tolist() == [0, 1]


lengths = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(lengths, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_what_is_written_for_any_turns_is_read_back_in_any_order(shape, random):
    experience = collate(
        [
            trajectory(str(n), [turn(k % 3, k // 3, range(size)) for k, size in enumerate(sizes)])
            for n, sizes in enumerate(shape)
        ]
    )
    order = list(range(len(experience.turns)))
    random.shuffle(order)
    turns = torch.tensor(order)
    values = torch.arange(experience.num_tokens, dtype=torch.float32)
    experience.write(Column.VALUES, turns, values)
    assert torch.equal(experience.read(Column.VALUES, turns), values)
    one_by_one = torch.cat([experience.read(Column.VALUES, turns[i : i + 1]) for i in range(len(turns))])
    assert torch.equal(one_by_one, values)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=10))
def test_ranges_equals_python_ranges(pairs):
    starts = torch.tensor([start for start, _ in pairs], dtype=torch.int64)
    sizes = torch.tensor([size for _, size in pairs], dtype=torch.int64)
    assert ranges(starts, sizes).tolist() == [i for start, size in pairs for i in range(start, start + size)]
    assert cumulative(sizes).tolist()[-1] == int(sizes.sum())
