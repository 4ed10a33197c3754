"""What a reward function may give back, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dagrl.errors import UserCodeError
from dagrl.rewards.runner import RewardResult, Undecided, call_reward
from dagrl.types import FinishReason, Task, Trajectory, Turn


def _turn(group: int, text: str) -> Turn:
    return Turn(
        node_id=f"node_{group}",
        agent_group=group,
        round=0,
        prompt_ids=(1,),
        response_ids=(2,),
        rollout_logprobs=(0.0,),
        temperature=1.0,
        finish_reason=FinishReason.STOP,
        policy_version=0,
        response_text=text,
    )


TASK = Task(task_id="t", prompt="p", ground_truth="4", data_source="sums", extra_info={"level": 2})
TRAJECTORY = Trajectory(task=TASK, sample=0, step=0, turns=[_turn(0, "a"), _turn(1, "b"), _turn(0, "c")])


def _gives(answer: Any) -> RewardResult | None:
    def reward(trajectory: Trajectory) -> Any:
        return answer

    return call_reward(reward, TRAJECTORY)


def test_compute_score_gets_the_last_response_and_the_task() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any, bonus: float) -> float:
        assert (data_source, solution_str, ground_truth, extra_info) == ("sums", "c", "4", {"level": 2})
        return 1.0 + bonus

    assert call_reward(compute_score, TRAJECTORY, {"bonus": 0.5}) == RewardResult(team=1.5)


@pytest.mark.parametrize("number", [1, 0.5, np.float32(0.5), np.int64(2), -1e9, 0])
def test_a_number_is_the_teams_reward(number: Any) -> None:
    assert _gives(number) == RewardResult(team=float(number))


def test_a_dict_with_a_score_gives_metrics_too() -> None:
    result = _gives({"score": 1, "acc": True, "length": 7, "pred": "35"})
    assert result == RewardResult(team=1.0, parts={"acc": 1.0, "length": 7.0})


def test_rewards_by_group_and_by_turn() -> None:
    assert _gives({0: 1.0, 1: 0.0}) == RewardResult(by_group={0: 1.0, 1: 0.0})
    by_turn = _gives({(0, 0): 0.25, (0, 1): 0.5, (1, 0): 1})
    assert by_turn == RewardResult(by_turn={(0, 0): 0.25, (0, 1): 0.5, (1, 0): 1.0})
    assert by_turn is not None
    assert by_turn.score == pytest.approx((0.75 + 1.0) / 2)


def test_a_score_beside_the_rewards_of_agents_or_turns_is_what_the_trajectory_counts_as() -> None:
    by_group = _gives({0: 0.25, 1: 3.0, "score": 1, "length": 7, "pred": "35"})
    assert by_group == RewardResult(by_group={0: 0.25, 1: 3.0}, outcome=1.0, parts={"length": 7.0})
    assert by_group is not None and by_group.score == 1.0
    by_turn = _gives({(1, 0): 3.0, "score": 0.0})
    assert by_turn == RewardResult(by_turn={(1, 0): 3.0}, outcome=0.0)
    assert by_turn is not None and by_turn.score == 0.0


BAD = [None, True, "1", float("nan"), float("inf"), [1.0], {}, {"acc": 1.0}, {"score": None}, {"score": 1, "x": np.nan},
       {2: 1.0}, {(0, 2): 1.0}, {(0,): 1.0}, {("a", 0): 1.0}, {0: True}, {0: None},
       {0: 1.0, "acc": 1.0}, {0: 1.0, (0, 0): 1.0}, {0: 1.0, "score": None},
       {True: 1.0}, np.ones(2), 1j]  # fmt: skip


@pytest.mark.parametrize("answer", BAD, ids=repr)
def test_anything_else_is_refused_with_the_functions_name(answer: Any) -> None:
    with pytest.raises(UserCodeError, match=r"reward function .*reward gave") as caught:
        _gives(answer)
    assert caught.value.kind == "bad_return"
    assert caught.value.where is not None
    assert "test_reward_runner.py" in caught.value.where


def test_a_coroutine_is_refused() -> None:
    async def reward(trajectory: Trajectory) -> float:
        return 1.0

    with pytest.raises(UserCodeError, match="is `async`"):
        call_reward(reward, TRAJECTORY)


def test_a_raising_function_is_named_with_its_line() -> None:
    def reward(trajectory: Trajectory) -> float:
        return 1 / 0

    with pytest.raises(UserCodeError, match=r"ZeroDivisionError.*") as caught:
        call_reward(reward, TRAJECTORY)
    assert caught.value.kind == "raised"
    assert "test_reward_runner.py" in str(caught.value)


def test_an_undecided_answer_has_no_reward() -> None:
    def reward(trajectory: Trajectory) -> float:
        raise Undecided("no time")

    assert call_reward(reward, TRAJECTORY) is None


def test_an_empty_trajectory_is_scored_on_an_empty_text() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
        return float(solution_str == "")

    assert call_reward(compute_score, Trajectory(task=TASK, sample=0, step=0)) == RewardResult(team=1.0)
