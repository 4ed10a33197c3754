"""pass@k, maj@k and the books of a judged team, against counting every subset and closed forms."""

from __future__ import annotations

import itertools
import math

import pytest

from dagrl.runtime.judgement import compare, judge_samples, majority, pass_at_k, votes_of
from dagrl.types import FinishReason, StopReason, Task, Trajectory, Turn


def counted(solved: list[bool], k: int) -> float:
    """Share of all subsets of `k` samples that hold a solved one."""
    subsets = list(itertools.combinations(solved, k))
    return sum(any(subset) for subset in subsets) / len(subsets)


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_subsets_with_a_solved_sample(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            assert pass_at_k(n, c, k) == pytest.approx(counted([i < c for i in range(n)], k), abs=1e-15)


def test_pass_at_k_of_many_samples_is_the_product_form_of_the_paper():
    n, c, k = 1000, 3, 100
    product = 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))
    assert pass_at_k(n, c, k) == pytest.approx(product, rel=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, 1, 0), (4, -1, 1)])
def test_pass_at_k_without_a_meaning_is_refused(n, c, k):
    with pytest.raises(ValueError, match="has no meaning"):
        pass_at_k(n, c, k)


def test_the_majority_is_the_answer_given_most_and_of_equals_the_first():
    assert majority(["a", "b", "b"]) == "b"
    assert majority(["b", "a", "a", "b"]) == "b"
    assert majority([None, None, None, "a"]) == "a"
    assert majority([None, None]) is None


def test_equal_numbers_are_one_vote_and_texts_without_a_box_do_not_vote_beside_boxes():
    half, fraction, other = votes_of([r"\boxed{0.5}", r"so \boxed{\frac{1}{2}}", r"\boxed{x}"])
    assert half == fraction != other
    assert votes_of(["no box", r"\boxed{2}", None])[0] is None


def test_where_no_text_has_a_box_the_texts_vote():
    assert votes_of([" a ", "a", "", None]) == ("a", "a", None, None)


def sample(task: Task, number: int, text: str, reward: float | None, rounds: int = 1) -> Trajectory:
    """`reward` None: nobody could find one."""
    turns = [
        Turn(
            node_id=f"node_{group}", agent_group=group, round=round, prompt_ids=(1,), response_ids=(1,) * (group + 1),
            rollout_logprobs=(0.0,) * (group + 1), temperature=1.0, policy_version=0, response_text=text,
            finish_reason=FinishReason.LENGTH if group else FinishReason.STOP,
        )
        for round in range(rounds)
        for group in range(2)
    ]  # fmt: skip
    return Trajectory(task=task, sample=number, step=0, turns=turns, reward=math.nan if reward is None else reward,
                      unscored="undecided" if reward is None else None, num_rounds=rounds,
                      stop_reason=StopReason.TERMINATED)  # fmt: skip


X, Y, Z = (Task(task_id=name, prompt="?", data_source=name.upper()) for name in "xyz")


@pytest.fixture
def judged():
    """Two problems of four samples: x is solved by samples 0 and 2, y by 1 alone; the last sample of y failed."""
    x, y = X, Y
    trajectories = [
        sample(x, 0, "3", 1.0), sample(x, 1, "4", 0.0), sample(x, 2, "3", 1.0, rounds=2), sample(x, 3, "5", 0.5),
        sample(y, 0, "1", 0.0, rounds=2), sample(y, 1, "2", 1.0), sample(y, 2, "1", 0.0),
    ]  # fmt: skip
    return judge_samples([x, y], trajectories, num_samples=4, agent_names=["first", "second"])


def test_scores_are_means_over_problems_of_shares_over_the_samples_with_a_verdict(judged):
    everything, of_x, of_y = judged.scores
    assert (everything.source, of_x.source, of_y.source) == ("all", "X", "Y")
    assert [one.average.mean for one in judged.scores] == [(1 / 2 + 1 / 3) / 2, 1 / 2, 1 / 3]
    assert [one.average_at_worst for one in judged.scores] == [3 / 8, 1 / 2, 1 / 4]
    assert [one.passes[2].mean for one in judged.scores] == pytest.approx([(5 / 6 + 2 / 3) / 2, 5 / 6, 2 / 3])
    assert [one.num_passes for one in judged.scores] == [{2: 2, 4: 1}, {2: 1, 4: 1}, {2: 1, 4: 0}]
    assert [one.passes[4].mean for one in (everything, of_x)] == [1.0, 1.0]
    assert math.isnan(of_y.passes[4].mean), "three verdicts say nothing about four tries"
    assert [one.majority.mean for one in judged.scores] == [1 / 2, 1.0, 0.0]
    assert (judged.num_failed, judged.num_unknown) == (1, 0)
    assert judged.problems[1].solved == (False, True, False, None)


def test_a_sample_without_a_reward_is_no_wrong_answer_and_does_not_vote():
    trajectories = [
        sample(X, 0, "3", 1.0), sample(X, 1, "4", None), sample(X, 2, "4", None), sample(Y, 0, "1", None),
    ]  # fmt: skip
    judged = judge_samples([X, Y, Z], trajectories, num_samples=3, agent_names=["first", "second"])
    everything, of_x, of_y, of_z = judged.scores
    assert (judged.num_failed, judged.num_unknown, judged.mean_reward) == (5, 2 + 1, 1.0)
    assert (everything.num_problems, everything.num_judged) == (3, 1)
    assert (everything.average.mean, everything.majority.mean, everything.average_at_worst) == (1.0, 1.0, 1 / 9)
    assert everything.average == of_x.average
    assert [math.isnan(one.average.mean) for one in (of_y, of_z)] == [True, True]
    assert judged.problems[0].votes == ("3", None, None)
    assert judged.rounds[0].solved.mean == 1.0
    assert judged.agents["first"].turns_per_sample == 1.0, "they spoke all the same"


def test_teams_are_paired_on_the_problems_that_both_have_a_verdict_on():
    def team(*rewards: float | None):
        trajectories = [sample(task, 0, "1", reward) for task, reward in zip((X, Y, Z), rewards, strict=True)]
        return judge_samples([X, Y, Z], trajectories, num_samples=1, agent_names=["first", "second"])

    [average] = compare(team(1.0, None, 0.0), team(0.0, 1.0, 0.0))
    assert (average.num_problems, average.mean) == (2, -0.5)
    [nothing] = compare(team(None, None, None), team(0.0, 1.0, 0.0))
    assert nothing.num_problems == 0 and math.isnan(nothing.mean)


def test_rounds_tell_what_was_solved_by_then_and_who_got_there(judged):
    first, second = judged.rounds
    assert (first.share_reached, second.share_reached) == (1.0, 2 / 7)
    assert first.solved.mean == pytest.approx((1 / 4 + 1 / 3) / 2)
    assert second.solved.mean == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_agents_tell_how_much_each_said(judged):
    assert judged.agents["first"].mean_tokens == 1.0
    assert judged.agents["second"].mean_tokens == 2.0
    assert judged.agents["second"].turns_per_sample == 9 / 7
    assert (judged.agents["first"].share_cut, judged.agents["second"].share_cut) == (0.0, 1.0)


def test_a_team_is_no_better_than_itself(judged):
    for difference in compare(judged, judged):
        assert difference.mean == 0.0
        assert difference.low < 0.0 < difference.high
