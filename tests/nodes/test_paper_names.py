"""What papers on teams call their estimators: each name's setting gives the numbers of its definition."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from dagrl.experience import collate
from dagrl.nodes import built_in_estimator
from dagrl.workflow.algorithm_section import PAPER_NAMES, AlgorithmSpec
from dagrl.workflow.kinds import Column, NodeKind
from tests.node_builders import node
from tests.stream_builders import trajectory, turn


def advantages(samples, **algorithm):
    """`samples[sample]` is a list of (agent, round, reward); the advantage of each turn's tokens, in that order."""
    played = [trajectory("a", [turn(agent, at, [5, 6]) for agent, at, _ in sample]) for sample in samples]
    experience = collate(played)
    column = torch.zeros(experience.num_tokens)
    column[1::2] = torch.tensor([reward for sample in samples for _, _, reward in sample])
    experience.write(Column.REWARDS, torch.arange(len(experience.turns)), column)
    one = node(NodeKind.ADVANTAGES, groups=(0, 1, 2), algorithm=AlgorithmSpec(**algorithm))
    built_in_estimator(one, {}).write(experience)
    return experience.columns[Column.ADVANTAGES][1::2].tolist()


THREE = [[(0, 0, 1.0), (1, 0, 0.2), (2, 0, 0.5)], [(0, 0, 0.0), (1, 0, 0.4)], [(0, 0, 1.0), (1, 0, 0.9)]]
"""Three samples of a prompt; the third agent spoke in one of them."""


def test_dr_mas_compares_each_agent_with_itself_and_one_alone_has_no_advantage():
    found = advantages(THREE, adv_estimator="dr_mas")
    assert found == pytest.approx([0.577349, -0.832048, 0.0, -1.154699, -0.277349, 0.577349, 1.109397], abs=1e-6)
    assert found[2] == 0.0


def test_one_group_for_all_agents_mixes_their_scales():
    found = advantages(THREE, adv_estimator="grpo", group_by=("prompt",))
    assert found == pytest.approx([1.063542, -0.921736, -0.177257, -1.418056, -0.425417, 1.063542, 0.815382], abs=1e-6)


def test_magrpo_gives_each_agent_the_teams_return_less_its_groups_mean():
    team = [[(0, 0, reward), (1, 0, reward)] for reward in (0.75, 0.25, 0.5, 0.5)]
    assert advantages(team, adv_estimator="magrpo") == [0.25, 0.25, -0.25, -0.25, 0.0, 0.0, 0.0, 0.0]
    assert advantages(team, adv_estimator="rloo")[::2] == pytest.approx([1 / 3, -1 / 3, 0.0, 0.0])


def test_at_grpo_compares_an_agents_turn_with_the_same_turn_of_the_other_samples():
    rounds = [[(0, 0, 0.0), (0, 1, 1.0)], [(0, 0, 0.0), (0, 1, 0.0)], [(0, 0, 0.0)]]
    found = advantages(rounds, adv_estimator="at_grpo")
    first, second = [1.0, 0.0, 0.0], [1.0, 0.0]
    spread = (sum((one - 1 / 3) ** 2 for one in first) / 2) ** 0.5
    assert found[0] == pytest.approx((1 - 1 / 3) / (spread + 1e-6))
    assert found[2] == found[4] == pytest.approx((-1 / 3) / (spread + 1e-6))
    assert [found[1], found[3]] == pytest.approx([(one - 0.5) / (0.5**0.5 + 1e-6) for one in second])


def test_m_grpo_compares_every_call_of_a_sub_agent_by_its_own_reward_with_all_calls_of_the_prompt():
    calls = [[(0, 0, 1.0), (1, 0, 0.2), (1, 1, 0.4)], [(0, 0, 0.0), (1, 0, 0.9)]]
    found = advantages(calls, adv_estimator="m_grpo")
    spread = ((0.4**2 + 0.2**2 + 2 * 0.3**2) / 3) ** 0.5  # of 0.2, 0.4, 0.9, 0.9, whose mean is 0.6
    expected = [-0.4 * 3 / 4, -0.2 * 3 / 4, 0.3 * 2 * 3 / 4]
    assert [found[1], found[2], found[4]] == pytest.approx([one / spread for one in expected], abs=1e-5)
    assert [found[0], found[3]] == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)


def test_m_grpo_is_what_copying_calls_until_each_sample_has_as_many_comes_to():
    """Of two, one and four calls each is copied twice, four times and once."""
    rewards = [[0.2, 0.4], [0.9], [0.1, 0.3, 0.3, 0.5]]
    copied = [[one for one in own for _ in range(4 // len(own))] for own in rewards]
    alone, doubled = (
        advantages([[(1, at, one) for at, one in enumerate(own)] for own in calls], adv_estimator="grpo", gamma=0.0,
                   advantage_level="turn", row_weight=weight)
        for calls, weight in ((rewards, "sample"), (copied, "row"))
    )  # fmt: skip
    loss = [sum(doubled[start : start + 4 // len(own)]) for row, own in enumerate(rewards)
            for start in range(4 * row, 4 * row + 4, 4 // len(own))]  # fmt: skip
    assert alone == pytest.approx([one * 7 / 12 for one in loss], abs=1e-6), "7 rows in place of 12"


def test_weights_by_sample_are_for_the_estimators_that_have_them():
    assert AlgorithmSpec(adv_estimator="dr_grpo", row_weight="sample").row_weight == "sample"
    with pytest.raises(ValidationError, match="row_weight: sample is for grpo and dr_grpo, not for opo"):
        AlgorithmSpec(adv_estimator="opo", row_weight="sample")


def test_where_samples_have_as_many_rows_each_their_weights_change_nothing():
    even = [[(0, 0, 1.0), (0, 1, 0.2)], [(0, 0, 0.0), (0, 1, 0.4)]]
    plain, weighed = (
        advantages(even, adv_estimator="dr_grpo", advantage_level="turn", row_weight=one) for one in ("row", "sample")
    )
    assert plain == weighed


@pytest.mark.parametrize("name", PAPER_NAMES)
def test_equal_rewards_give_exactly_0_under_every_name(name):
    equal = [[(0, 0, 0.1), (1, 0, 0.1), (0, 1, 0.1)] for _ in range(3)]
    if name in ("dr_mas", "magrpo"):
        assert advantages(equal, adv_estimator=name) == [0.0] * 9
    else:
        assert set(advantages(equal, adv_estimator=name)) == {0.0}


def test_a_key_that_says_otherwise_than_the_name_is_refused_and_one_that_says_the_same_is_not():
    with pytest.raises(ValidationError, match=r"at_grpo means group_by .* not \['prompt'\]"):
        AlgorithmSpec(adv_estimator="at_grpo", group_by=["prompt"])
    same = AlgorithmSpec(adv_estimator="at_grpo", group_by=["prompt", "agent", "turn"])
    assert (same.adv_estimator, same.advantage_level) == ("grpo", "turn")
