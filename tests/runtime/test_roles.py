"""Numbers by role: who speaks, who ends, who is trained, who is paid for what; all worked by hand."""

import math

import pytest
import torch

from dagrl.experience import collate
from dagrl.runtime.roles import ending_metrics, role_metrics, trained_shares
from dagrl.types import FinishReason, StopReason, Task, Trajectory, Turn

TASK = Task(task_id="t", prompt="?")


def said(node, length, reward=0.0, round=0):
    return Turn(
        node_id=node, agent_group=0, round=round, prompt_ids=(1,), response_ids=(2,) * length,
        rollout_logprobs=(0.0,) * length, temperature=1.0, finish_reason=FinishReason.STOP, policy_version=0,
        response_text="x", reward=reward,
    )  # fmt: skip


def played(*turns, reward, rounds=1, stop=StopReason.TERMINATED):
    unscored = "undecided" if math.isnan(reward) else None
    return Trajectory(task=TASK, sample=0, step=0, turns=list(turns), reward=reward, num_rounds=rounds,
                      stop_reason=stop, unscored=unscored)  # fmt: skip


BATCH = collate(
    [
        played(said("write", 4, 1.0), said("check", 2, 0.5), reward=1.0),
        played(said("write", 3, 0.2), said("check", 1, 0.1), said("write", 5, 0.4, round=1), reward=0.5, rounds=2),
        played(said("write", 7, 9.0), reward=math.nan, rounds=3, stop=StopReason.MAX_ROUNDS),
        played(reward=0.0, rounds=3, stop=StopReason.MAX_ROUNDS),
    ]
)


def test_what_each_role_says_and_earns():
    assert role_metrics(BATCH, ["write", "check", "never"]) == pytest.approx(
        {
            "role/write/spoke": 3 / 4,
            "role/write/turns": 4 / 4,
            "role/write/tokens": 19 / 4,
            "role/write/reward_solved": 1.0,
            "role/write/reward_unsolved": 0.3,
            "role/check/spoke": 2 / 4,
            "role/check/turns": 2 / 4,
            "role/check/tokens": 3 / 4,
            "role/check/reward_solved": 0.5,
            "role/check/reward_unsolved": 0.1,
            "role/never/spoke": 0.0,
            "role/never/turns": 0.0,
            "role/never/tokens": 0.0,
        }
    )
    assert role_metrics(BATCH, ["write"]) == {}, "who speaks alone has no role"


def test_the_share_of_trained_tokens_is_of_what_was_updated_on_counted_once():
    assert trained_shares(BATCH, ["write", "check"]) == {}, "nobody was trained"
    BATCH.note_update("policy", torch.tensor([0, 1, 3]))
    BATCH.note_update("policy", torch.tensor([0]))
    assert trained_shares(BATCH, ["write", "check"]) == {
        "role/write/trained_share": 4 / 7,
        "role/check/trained_share": 3 / 7,
    }


def test_how_conversations_end_and_who_ends_them():
    assert ending_metrics(BATCH, ["write", "check"], 3) == pytest.approx(
        {
            "trajectory/conversation_tokens": 22 / 4,
            "trajectory/conversation_tokens_max": 9.0,
            "trajectory/solved": 1 / 4,
            "trajectory/ended_early": 2 / 4,
            "role/check/ended_early": 1 / 4,
            "role/write/ended_early": 1 / 4,
        }
    )
    assert "trajectory/ended_early" not in ending_metrics(BATCH, ["write"], 1)
