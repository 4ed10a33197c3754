"""The books: every sample is trained, dropped with a reason or carried over; what does not balance names the sample."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from dagrl.experience import collate
from dagrl.nodes.usage import Usage
from dagrl.runtime.evaluate import Evaluation
from dagrl.runtime.ledger import Ledger
from dagrl.types import FailedTrajectory, Task
from tests.stream_builders import trajectory, turn

A, B = Task(task_id="a", prompt="p"), Task(task_id="b", prompt="p")


@pytest.fixture
def usage() -> Usage:
    return Usage()


@pytest.fixture
def ledger(usage: Usage) -> Ledger:
    return Ledger(["first", "second"], usage)


def spoken(task: Task, sample: int, words: int = 3):
    return trajectory(task.task_id, [turn(0, 0, range(words)), turn(1, 0, range(2 * words))], sample=sample)


def failed(task: Task, sample: int) -> FailedTrajectory:
    return FailedTrajectory(task=task, sample=sample, step=0, kind="env_timeout", message="late")


def test_each_sample_of_a_step_ends_where_it_belongs_with_its_reason(ledger: Ledger) -> None:
    ledger.issue(0, [A, B], 3)
    experience = collate([spoken(A, 0), spoken(A, 1), spoken(A, 2, words=0), spoken(B, 0), spoken(B, 1)])
    experience.excuse([4], "reward_raised")
    experience.excuse([0], "early_stop")
    experience.note_update("policy", torch.tensor([0, 2]))
    experience.note_update("policy", torch.tensor([0]))
    experience.note_update("critic", torch.tensor([1, 3]))
    row = ledger.settle(0, experience, [failed(B, 2)])
    assert (row["step"], row["tasks"], row["issued"], row["trained"]) == (1, ["a", "b"], 6, 2)
    assert sorted(row["dropped"]) == [
        [0, "a", 2, "no_response"],
        [0, "b", 0, "nobody_trains"],
        [0, "b", 1, "reward_raised"],
        [0, "b", 2, "env_timeout"],
    ]
    assert row["carried"] == []
    assert row["agents"]["first"]["trained_tokens"] == 6  # turns 0 and 2, three tokens each, however often
    assert row["agents"]["second"]["trained_tokens"] == 0  # the critic alone
    assert ledger.metrics()["ledger/dropped/env_timeout"] == 1
    ledger.check(2)


def test_a_sample_that_is_lost_made_up_or_comes_twice_is_named(usage: Usage) -> None:
    lost = Ledger(["first", "second"], usage)
    lost.issue(4, [A], 2)
    with pytest.raises(AssertionError, match="sample 1 of task 'a' of step 5 was issued and neither trained"):
        lost.settle(4, collate([_of_step(spoken(A, 0), 4)]), [])
    made_up = Ledger(["first", "second"], usage)
    with pytest.raises(AssertionError, match="sample 0 of task 'b' of step 1 comes back, but it is not out"):
        made_up.settle(0, collate([spoken(B, 0)]), [])
    twice = Ledger(["first", "second"], usage)
    twice.issue(0, [A], 1)
    with pytest.raises(AssertionError, match="sample 0 of task 'a' of step 1 is issued twice"):
        twice.issue(0, [A], 1)


def _of_step(one, step: int):
    one.step = step
    return one


def test_what_is_carried_over_is_settled_by_a_later_step_and_survives_a_checkpoint(usage: Usage) -> None:
    first = Ledger(["first", "second"], usage)
    first.issue(0, [A], 2)
    assert first.settle(0, collate([spoken(A, 0)]), [], carried=[(0, "a", 1)])["carried"] == [[0, "a", 1]]
    resumed = Ledger(["first", "second"], usage)
    resumed.load_state_dict(first.state_dict())
    resumed.check(1)
    resumed.issue(1, [B], 1)
    row = resumed.settle(1, collate([spoken(A, 1), _of_step(spoken(B, 0), 1)]), [])
    assert (row["carried"], row["totals"]["issued"], row["totals"]["dropped"]) == ([], 3, 3)
    with pytest.raises(AssertionError, match="the loader gave 5 tasks, 2 were issued"):
        resumed.check(5)


def test_what_nodes_used_is_in_exactly_one_row_and_in_the_totals(ledger: Ledger, usage: Usage) -> None:
    usage.generated_tokens += Counter({0: 5, 1: 7})
    usage.prompt_tokens[1] += 11
    usage.env_calls, usage.judge_calls, usage.hook_calls = 2, 3, 4
    ledger.issue(0, [A], 1)
    first = ledger.settle(0, collate([spoken(A, 0)]), [])
    second = ledger.settle_evaluation(_evaluation(2, 1), 3)
    assert first["agents"]["second"] == {"prompt_tokens": 11, "tokens": 7, "trained_tokens": 0}
    assert (first["env_calls"], first["judge_calls"], first["hook_calls"]) == (2, 3, 4)
    assert second["agents"]["first"]["tokens"] == second["env_calls"] == 0
    assert second["totals"]["tokens"] == 12
    assert second["totals"]["held_out"] == 3
    with pytest.raises(AssertionError, match="held-out samples: 2 \\+ 1 of 4"):
        ledger.settle_evaluation(_evaluation(2, 1), 4)


def _evaluation(num_played: int, num_failed: int) -> Evaluation:
    return Evaluation(
        step=1,
        without=None,
        solved=(0.0,),
        solved_first_round=(0.0,),
        mean_reward=0.0,
        failed={"env_timeout": num_failed},
        unknown={},
        trajectories=tuple(spoken(A, number) for number in range(num_played)),
    )
