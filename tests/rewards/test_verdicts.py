"""Verdicts of agents that judge: from what a reward function gives to a confusion matrix over a batch."""

import pytest

from dagrl.errors import UserCodeError
from dagrl.nodes.reward_parts import OneByOne, RewardPart
from dagrl.rewards.runner import RewardResult, call_reward
from dagrl.rewards.verdicts import confusion
from dagrl.types import FinishReason, Task, Trajectory, Turn


def played(**parts):
    turn = Turn(
        node_id="v", agent_group=0, round=0, prompt_ids=(1,), response_ids=(2,), rollout_logprobs=(0.0,),
        temperature=1.0, finish_reason=FinishReason.STOP, policy_version=0, response_text="x", reward_parts=parts,
    )  # fmt: skip
    return Trajectory(task=Task(task_id="t", prompt="?"), sample=0, step=0, turns=[turn])


def parts_of(verdict):
    return call_reward(lambda trajectory: {"score": 1.0, "length": 3, "verdict": verdict}, played()).parts


def test_a_pair_several_pairs_and_no_verdict_at_all_are_counted_by_who_said_what_and_should_have():
    assert parts_of({"v": ("approve", "reject")}) == {"length": 3.0, "verdict/v/approve/reject": 1.0}
    told = parts_of({"v": [("a", "b"), ("a", "b"), (None, "b")], "w": []})
    assert told == {"length": 3.0, "verdict/v/a/b": 2.0, "verdict/v/none/b": 1.0}
    assert parts_of(0.5) == {"length": 3.0, "verdict": 0.5}, "a number of that name is a part like others"


@pytest.mark.parametrize("verdict", ["approve", {"v": "approve"}, {"v": ("a", "b", "c")}, {"v": ("a b", "c")},
                                     {"v": ("a", None)}, {"a/b": ("a", "b")}, {"v": (True, False)}])  # fmt: skip
def test_what_is_no_verdict_is_a_fault_of_the_function(verdict):
    with pytest.raises(UserCodeError, match="gave a 'verdict' that"):
        parts_of(verdict)


def test_the_matrix_holds_shares_of_an_agents_verdicts_for_every_label_there_is():
    batch = [
        played(**{"verdict/v/approve/approve": 2.0, "length": 1.0}),
        played(**{"verdict/v/approve/reject": 1.0, "verdict/w/yes/yes": 1.0}),
        played(**{"verdict/v/none/reject": 1.0}),
    ]
    assert confusion(batch) == {
        "verdict/v/approve/approve": 0.5,
        "verdict/v/approve/reject": 0.25,
        "verdict/v/none/approve": 0.0,
        "verdict/v/none/reject": 0.25,
        "verdict/v/right": 0.5,
        "verdict/v/count": 4.0,
        "verdict/w/yes/yes": 1.0,
        "verdict/w/right": 1.0,
        "verdict/w/count": 1.0,
    }
    assert confusion([played(length=1.0)]) == {}


def test_one_of_several_rewards_keeps_the_name_of_its_verdicts():
    part = RewardPart(judge=OneByOne(lambda trajectory: None), name="style")
    told = part.told(RewardResult(team=1.0, parts={"verdict/v/a/b": 1.0, "length": 2.0}))
    assert told == {"style": 1.0, "verdict/v/a/b": 1.0, "style/length": 2.0}
