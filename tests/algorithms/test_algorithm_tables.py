"""The tables of names: every entry works, and the workflow's checker knows the same names."""

from __future__ import annotations

import doctest
import importlib
from functools import partial

import pytest
import torch

from dagrl import algorithms
from dagrl.algorithms import Clip, Links, TurnLayout

LAYOUT = TurnLayout(
    response_lens=torch.tensor([3, 2]),
    trajectory=torch.tensor([0, 0]),
    round=torch.tensor([0, 0]),
    agent_group=torch.tensor([0, 1]),
)


def test_the_workflow_checker_knows_the_same_names() -> None:
    spec = importlib.import_module("dagrl.workflow.algorithm_section")
    assert set(spec.STREAM_ESTIMATORS) == set(algorithms.ESTIMATORS)
    assert set(spec.RELATIVE_ESTIMATORS) == set(algorithms.RELATIVE_ESTIMATORS)
    assert set(spec.ADV_ESTIMATORS) == {*algorithms.ESTIMATORS, *algorithms.RELATIVE_ESTIMATORS, "spiral", "remax"}
    assert set(spec.SEQUENCE_LOSSES) == set(algorithms.SEQUENCE_LOSSES)
    assert set(spec.POLICY_LOSSES) == {*algorithms.POLICY_LOSSES, *algorithms.SEQUENCE_LOSSES, *spec.BATCH_LOSSES}
    assert set(spec.M2_MODES) == set(algorithms.M2_MODES)
    assert set(spec.LOSS_AGG_MODES) == set(algorithms.LOSS_AGG_MODES)
    assert set(spec.KL_KINDS) == set(algorithms.KL_KINDS)


def test_the_workflow_checker_knows_what_each_estimator_needs() -> None:
    spec = importlib.import_module("dagrl.workflow.algorithm_section")
    estimators = algorithms.ESTIMATORS.items()
    assert set(spec.ESTIMATORS_WITH_CRITIC) == {name for name, entry in estimators if entry.needs_critic}
    assert set(spec.CHAINED_ESTIMATORS) == {name for name, entry in estimators if entry.is_chained}


@pytest.mark.parametrize("name", algorithms.ESTIMATORS)
@pytest.mark.parametrize("action_level", [False, True])
def test_an_estimator_is_chained_if_the_last_reward_reaches_the_first_agent(name: str, action_level: bool) -> None:
    estimator = algorithms.ESTIMATORS[name]
    rewards = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    links = Links(gamma=1.0, lam=1.0)
    advantages, returns = estimator.fn(
        rewards, torch.zeros(5), LAYOUT, torch.zeros(1), links, action_level=action_level
    )
    assert advantages.dtype == returns.dtype == torch.float32
    assert bool(advantages[0] != 0) == estimator.is_chained


@pytest.mark.parametrize("name", algorithms.POLICY_LOSSES)
def test_a_policy_loss_pushes_likelier_what_was_better(name: str) -> None:
    clip = Clip(low=0.2, high=0.2)
    old, advantages = torch.full((5,), -1.0), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
    per_token = old.clone().requires_grad_()
    algorithms.POLICY_LOSSES[name](per_token, old, advantages, clip).loss_T.sum().backward()
    assert per_token.grad is not None
    assert torch.equal(per_token.grad.sign(), -advantages)


@pytest.mark.parametrize("name", [*algorithms.SEQUENCE_LOSSES, "ppo of actions"])
def test_a_loss_of_responses_pushes_likelier_what_was_better(name: str) -> None:
    of_actions = partial(algorithms.action_ppo_loss, normalisation="sum")
    loss = algorithms.SEQUENCE_LOSSES.get(name, of_actions)
    old, advantages = torch.full((5,), -1.0), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
    logprobs = old.clone().requires_grad_()
    loss(logprobs, old, advantages, LAYOUT.response_lens, Clip(low=0.2, high=0.2)).loss_T.sum().backward()
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad.sign(), -advantages)


@pytest.mark.parametrize("name", algorithms.RELATIVE_ESTIMATORS)
def test_a_relative_estimator_puts_the_better_above_the_worse(name: str) -> None:
    rows = algorithms.ScoredRows(
        scores=torch.tensor([1.0, 0.0, 0.5]), groups=torch.tensor([0, 0, 0]), lens=torch.tensor([2, 3, 4])
    )
    advantages = algorithms.RELATIVE_ESTIMATORS[name](rows)
    assert advantages.dtype == torch.float64
    assert advantages[0] > advantages[2] > advantages[1]


def test_every_public_name_exists() -> None:
    assert all(hasattr(algorithms, name) for name in algorithms.__all__)


def test_the_worked_example_of_the_layout_runs() -> None:
    module = importlib.import_module("dagrl.algorithms.layout")
    assert doctest.testmod(module).failed == 0 and doctest.testmod(module).attempted > 0
