"""Group-relative estimators against numbers worked by hand and a slow float64 definition."""

from __future__ import annotations

import doctest
import importlib
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.algorithms import RELATIVE_ESTIMATORS, RoleBaselines, ScoredRows, numbered
from dagrl.errors import DagrlError


def rows(scores: list[float], groups: list[int] | None = None, lens: list[int] | None = None) -> ScoredRows:
    return ScoredRows(
        scores=torch.tensor(scores, dtype=torch.float64),
        groups=torch.tensor([0] * len(scores) if groups is None else groups),
        lens=torch.tensor([1] * len(scores) if lens is None else lens),
    )


AGENTS = [1.0, 0.0, 1.0, 0.2, 0.4, 0.9, 0.5]
"""Three samples of agent A, three of agent B, one of agent C."""


def test_dr_mas_compares_each_agent_with_itself_and_gives_a_single_sample_0() -> None:
    found = RELATIVE_ESTIMATORS["grpo"](rows(AGENTS, [0, 0, 0, 1, 1, 1, 2]))
    by_hand = [0.577349, -1.154699, 0.577349, -0.832048, -0.277349, 1.109397, 0.0]
    assert found.tolist() == pytest.approx(by_hand, abs=2e-6)


def test_grpo_compares_all_samples_of_a_prompt() -> None:
    found = RELATIVE_ESTIMATORS["grpo"](rows(AGENTS))
    by_hand = [1.063542, -1.418056, 1.063542, -0.921736, -0.425417, 0.815382, -0.177257]
    assert found.tolist() == pytest.approx(by_hand, abs=2e-6)


def test_rloo_leaves_the_sample_itself_out() -> None:
    found = RELATIVE_ESTIMATORS["rloo"](rows([0.75, 0.25, 0.5, 0.5]))
    assert found.tolist() == pytest.approx([1 / 3, -1 / 3, 0.0, 0.0])


def test_opo_weighs_the_baseline_with_the_lengths() -> None:
    found = RELATIVE_ESTIMATORS["opo"](rows([1.0, 0.0], lens=[30, 10]))
    assert found.tolist() == pytest.approx([1 - 0.75, -0.75])


def test_maxrl_divides_by_the_mean_and_gives_0_where_nobody_earned() -> None:
    found = RELATIVE_ESTIMATORS["maxrl"](rows([1.0, 0.0, 0.0, 0.0, 1.0, -1.0], [0, 0, 0, 0, 1, 1]))
    assert found.tolist() == pytest.approx([3.0, -1.0, -1.0, -1.0, 0.0, 0.0])


def test_cpgd_makes_up_for_groups_that_say_nothing() -> None:
    found = RELATIVE_ESTIMATORS["cpgd"](rows([1.0, 0.0, 0.5, 0.5], [0, 0, 1, 1]))
    assert found.tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0])


def test_a_role_is_judged_by_the_scores_before() -> None:
    baselines = RoleBaselines()
    found = baselines.advantages(["a", "b", "a", "a"], torch.tensor([1.0, 3.0, -1.0, 1.0]))
    assert found.tolist() == pytest.approx([1.0, 3.0, -1.05, 1.0025])
    assert baselines.values["a"] == pytest.approx(0.047625)
    other = RoleBaselines()
    other.load_state_dict(baselines.state_dict())
    again = torch.tensor([0.5])
    assert other.advantages(["a"], again).tolist() == baselines.advantages(["a"], again).tolist()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.1, 0.3, 1.0, -2.0])), min_size=1, max_size=30))
def test_the_definitions_group_by_group(members: list[tuple[int, float]]) -> None:
    labels = numbered(torch.tensor([group for group, _ in members]))
    scores = [score for _, score in members]
    found = {name: RELATIVE_ESTIMATORS[name](rows(scores, labels.tolist())).tolist() for name in RELATIVE_ESTIMATORS}
    for at, (group, score) in enumerate(members):
        own = [other for label, other in members if label == group]
        if len(set(own)) == 1:
            assert all(values[at] == 0.0 for values in found.values())
            continue
        mean, others = statistics.fmean(own), (sum(own) - score) / (len(own) - 1)
        assert found["dr_grpo"][at] == pytest.approx(score - mean)
        assert found["rloo"][at] == pytest.approx(score - others)
        assert found["grpo"][at] == pytest.approx((score - mean) / (statistics.stdev(own) + 1e-6))


@pytest.mark.parametrize("name", RELATIVE_ESTIMATORS)
def test_equal_scores_give_exactly_0_whatever_their_mean_rounds_to(name: str) -> None:
    assert RELATIVE_ESTIMATORS[name](rows([0.1] * 7)).tolist() == [0.0] * 7


@pytest.mark.parametrize("name", RELATIVE_ESTIMATORS)
def test_no_rows_give_no_advantages(name: str) -> None:
    nothing = ScoredRows(scores=torch.zeros(0), groups=torch.zeros(0).long(), lens=torch.zeros(0).long())
    assert RELATIVE_ESTIMATORS[name](nothing).shape == (0,)


def test_rows_are_together_where_all_keys_agree() -> None:
    labels = numbered(torch.tensor([0, 0, 1, 0]), torch.tensor([5, 7, 5, 5]))
    assert labels[0] == labels[3] and len(set(labels.tolist())) == 3


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(DagrlError, match="not a finite number"):
        rows([1.0, float("nan")])


@pytest.mark.parametrize("module", ["group_relative", "role_baseline", "rollout_correction"])
def test_the_worked_examples_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"dagrl.algorithms.{module}"), extraglobs={"torch": torch})
    assert outcome.failed == 0 and outcome.attempted > 0
