"""Row advantages on a real stream: whom `group_by` compares, what a row is, what its tokens get."""

import pytest
import torch

from dagrl.algorithms import RELATIVE_ESTIMATORS, FixedKL
from dagrl.experience import collate
from dagrl.nodes.advantages import AdvantagesNode
from dagrl.nodes.row_advantages import AgainstGroup, AgainstRole, RowAdvantages
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.kinds import Column, NodeKind
from tests.node_builders import node
from tests.stream_builders import trajectory, turn


def played(rewards, rounds=1):
    """A prompt's samples of a two-agent team; `rewards[sample][turn]` lies on each turn's last token."""
    samples = [
        trajectory("a", [turn(agent, round, range(2 + agent)) for round in range(rounds) for agent in range(2)])
        for _ in rewards
    ]
    experience = collate(samples)
    column = torch.zeros(experience.num_tokens)
    column[experience.turns.response_len.cumsum(0) - 1] = torch.tensor([one for sample in rewards for one in sample])
    experience.write(Column.REWARDS, torch.arange(len(experience.turns)), column)
    return experience


def advantages_of_turns(experience, estimator=None, **algorithm):
    """The advantage of each turn, which all of its tokens must share."""
    fn = node(NodeKind.ADVANTAGES, groups=(0, 1), algorithm=AlgorithmSpec(**algorithm))
    rows = RowAdvantages(fn, estimator or AgainstGroup(RELATIVE_ESTIMATORS["dr_grpo"]))
    metrics = AdvantagesNode(fn, rows, FixedKL(0.0)).run(experience, 0)
    found = []
    for of_turn in experience.columns[Column.ADVANTAGES].split(experience.turns.response_len.tolist()):
        assert len(set(of_turn.tolist())) == 1
        found.append(float(of_turn[0]))
    return found, metrics


DR_GRPO = {"adv_estimator": "dr_grpo"}


def test_prompt_and_agent_compares_each_agent_with_itself():
    found, metrics = advantages_of_turns(played([[0.0, 1.0], [1.0, 0.0]]), **DR_GRPO)
    assert found == [-0.5, 0.5, 0.5, -0.5]
    assert metrics["groups"] == 2 and metrics["groups_without_signal"] == 0 and metrics["groups_of_one"] == 0


def test_prompt_alone_compares_all_agents():
    found, metrics = advantages_of_turns(played([[0.0, 1.0], [1.0, 1.0]]), group_by=("prompt",), **DR_GRPO)
    assert found == [-0.75, 0.25, 0.25, 0.25]
    assert metrics["groups"] == 1


def test_a_trajectorys_turns_share_the_sum_of_their_rewards():
    experience = played([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], rounds=2)
    found, metrics = advantages_of_turns(experience, **DR_GRPO)
    assert found == [0.5, 0.0, 0.5, 0.0, -0.5, 0.0, -0.5, 0.0]
    assert metrics["groups_without_signal"] == 0.5


@pytest.mark.parametrize(("gamma", "first"), [(1.0, 0.5), (0.5, 0.25), (0.0, 0.0)])
def test_a_turn_earns_what_the_speaker_earns_later(gamma, first):
    experience = played([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], rounds=2)
    by = ("prompt", "agent", "turn")
    found, _ = advantages_of_turns(experience, group_by=by, advantage_level="turn", gamma=gamma, **DR_GRPO)
    assert found == pytest.approx([first, 0.0, 0.5, 0.0, -first, 0.0, -0.5, 0.0])


def test_spiral_judges_each_role_by_its_own_past_and_goes_on_after_a_restart():
    spiral = {"adv_estimator": "spiral"}
    role = AgainstRole()
    found, _ = advantages_of_turns(played([[1.0, -1.0], [-1.0, 1.0]]), role, **spiral)
    assert found == pytest.approx([1.0, -1.0, -1.05, 1.05])
    again = AgainstRole()
    again.load_state_dict(role.state_dict())
    second, _ = advantages_of_turns(played([[1.0, -1.0]]), again, **spiral)
    assert second == pytest.approx([1.0025, -1.0025])


def test_the_whitening_of_reinforce_plus_plus_is_over_tokens():
    experience = played([[0.0, 1.0], [1.0, 0.0]])
    advantages_of_turns(experience, adv_estimator="reinforce_plus_plus_baseline")
    column = experience.columns[Column.ADVANTAGES]
    assert float(column.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(column.std(correction=1)) == pytest.approx(1.0, abs=1e-3)


def test_a_sample_without_a_score_is_nobodys_measure():
    experience = played([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    experience.trajectories[2].unscored = "undecided"
    found, metrics = advantages_of_turns(experience, **DR_GRPO)
    assert found == [-0.5, 0.5, 0.5, -0.5, 0.0, 0.0]
    assert metrics["groups"] == 2
