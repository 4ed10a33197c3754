"""REWARD: who gets how much in each mode, where it lies on the stream, and what happens when scoring fails."""

import math
from functools import partial

import pytest

from dagrl.errors import FaultBudgetError, UserCodeError
from dagrl.experience import collate
from dagrl.nodes.reward import RewardNode
from dagrl.nodes.reward_parts import OneByOne, RewardPart
from dagrl.rewards import REWARDS
from dagrl.rewards.runner import RewardResult, call_reward
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.kinds import Column, NodeKind, reward_placement
from tests.node_builders import node
from tests.stream_builders import trajectory, turn


def reward_node(judge, *, mode="chained", adds=False, groups=(0, 1), allowed=0.5):
    parts = [] if judge is None else [RewardPart(judge=OneByOne(judge))]
    return RewardNode(
        node(NodeKind.REWARD, groups=groups), parts, reward_mode=mode, adds=adds, max_failed_fraction=allowed
    )


def two_rounds():
    return trajectory("a", [turn(0, 0, [5, 6]), turn(1, 0, [7]), turn(0, 1, [8]), turn(1, 1, [9, 4])])


def rewards_of(experience):
    return experience.columns[Column.REWARDS].tolist()


def test_chained_puts_the_teams_reward_on_the_last_token_of_the_last_turn_only():
    experience = collate([two_rounds()])
    reward_node(lambda one: RewardResult(team=1.0)).run(experience, 0)
    assert rewards_of(experience) == [0, 0, 0, 0, 0, 1]


def test_team_gives_every_agents_last_turn_the_reward_once():
    experience = collate([two_rounds()])
    reward_node(lambda one: RewardResult(team=1.0), mode="team").run(experience, 0)
    assert rewards_of(experience) == [0, 0, 0, 1, 0, 1]


def test_team_gives_every_branch_and_node_its_reward_where_an_estimator_compares_them():
    spoken = [turn(0, 0, [5], branch=0), turn(0, 0, [6], branch=1), turn(1, 0, [7]), turn(0, 1, [8], branch=1)]
    experience = collate([trajectory("a", spoken)])
    reward_node(lambda one: RewardResult(team=1.0), mode="team_by_speaker").run(experience, 0)
    assert rewards_of(experience) == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("algorithm", "placement"),
    [
        ({"adv_estimator": "grpo"}, "team_by_speaker"),
        ({"adv_estimator": "spiral"}, "team_by_speaker"),
        ({"adv_estimator": "gae"}, "team"),
        ({"adv_estimator": "own.py:fn", "reward_mode": "team"}, "team"),
        ({"adv_estimator": "grpo", "reward_mode": "per_agent"}, "per_agent"),
        ({"adv_estimator": "gae_marft"}, "chained"),
    ],
)
def test_where_a_teams_reward_stands_goes_by_the_estimator(algorithm, placement):
    nodes = [node(NodeKind.ADVANTAGES, groups=(0, 1), algorithm=AlgorithmSpec(**algorithm))]
    assert reward_placement(nodes, nodes[0].algorithm) == placement


def test_rewards_by_group_and_by_turn_find_their_turns():
    experience = collate([two_rounds()])
    reward_node(lambda one: RewardResult(by_group={0: 2.0}, by_turn={(1, 0): 3.0}), mode="per_agent").run(experience, 0)
    assert rewards_of(experience) == [0, 0, 3, 2, 0, 0]


def test_without_a_judge_the_environments_rewards_stay():
    played = two_rounds()
    played.turns[1].reward = 0.25
    experience = collate([played])
    reward_node(None).run(experience, 0)
    assert rewards_of(experience) == [0, 0, 0.25, 0, 0, 0]


def test_add_adds_to_the_environments_rewards_and_replace_replaces_them():
    for adds, expected in ((True, 1.25), (False, 1.0)):
        played = two_rounds()
        played.turns[3].reward = 0.25
        played.reward = 0.25
        experience = collate([played])
        reward_node(lambda one: RewardResult(team=1.0), adds=adds).run(experience, 0)
        assert rewards_of(experience)[-1] == expected
        assert played.reward == expected


def test_scoring_twice_does_not_count_a_reward_twice():
    played = two_rounds()
    scorer = reward_node(lambda one: RewardResult(team=1.0))
    scorer.score([played])
    scorer.score([played])
    assert played.reward == 1.0
    assert [one.reward for one in played.turns] == [0, 0, 0, 1.0]


def test_the_reward_of_an_empty_response_goes_to_the_turn_before_it():
    experience = collate([trajectory("a", [turn(0, 0, [5, 6]), turn(1, 0, [])])])
    metrics = reward_node(lambda one: RewardResult(team=1.0)).run(experience, 0)
    assert rewards_of(experience) == [0, 1]
    assert metrics["unplaced"] == 0


def test_a_reward_that_no_token_can_carry_is_counted():
    experience = collate([trajectory("a", [turn(0, 0, []), turn(1, 0, [])]), trajectory("b", [turn(0, 0, [5])])])
    metrics = reward_node(lambda one: RewardResult(team=1.0)).run(experience, 0)
    assert rewards_of(experience) == [1]
    assert metrics["unplaced"] == 1


def test_what_cannot_be_judged_is_not_trained_and_does_not_count_as_zero():
    experience = collate([two_rounds(), trajectory("b", [turn(0, 0, [5])])])
    judge = lambda one: None if one.task.task_id == "a" else RewardResult(team=1.0)  # noqa: E731
    metrics = reward_node(judge).run(experience, 0)
    assert metrics["unknown"] == 1
    assert metrics["mean"] == 1.0
    assert experience.turns.is_trained.tolist() == [False] * 4 + [True]
    assert math.isnan(experience.trajectories[0].reward)
    assert experience.trajectories[0].unscored == "undecided"


def failing(one):
    raise UserCodeError("reward function x raised KeyError: 'y'")


def test_a_failing_reward_function_stops_the_run_past_the_allowed_fraction_only():
    good = lambda one: failing(one) if one.task.task_id == "a" else RewardResult(team=1.0)  # noqa: E731

    def batch():
        return [two_rounds()] + [trajectory(f"b{n}", [turn(0, 0, [5])]) for n in range(3)]

    scored = batch()
    reward_node(good, allowed=0.25).score(scored)
    assert [one.unscored for one in scored] == ["raised", None, None, None]
    with pytest.raises(FaultBudgetError, match=r"1 of 4"):
        reward_node(good, allowed=0.2).score(batch())


def test_what_was_scored_is_not_judged_again():
    seen = []
    node = reward_node(lambda one: seen.append(one) or RewardResult(team=1.0))
    scored, new = two_rounds(), two_rounds()
    node.score([scored])
    node.score([scored, new])
    assert [id(one) for one in seen] == [id(scored), id(new)]


def test_the_default_reward_reads_the_response_not_the_prompt():
    judge = partial(call_reward, REWARDS["math"], kwargs={})
    right = trajectory("a", [turn(0, 0, [5], response_text=r"so \boxed{7}")])
    stale = trajectory("b", [turn(0, 0, [5], response_text=r"\boxed{7}"), turn(1, 0, [5], response_text="no idea")])
    scorer = reward_node(judge)
    scorer.score([right, stale])
    assert (right.reward, stale.reward) == (1.0, 0.0)
