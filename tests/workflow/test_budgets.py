"""Budgets: which of them are set, how much is used, what is refused."""

from __future__ import annotations

import pytest

from dagrl.errors import WorkflowError
from dagrl.workflow.budgets import NUMBER_OF, StopSpec, as_line, budgets
from dagrl.workflow.graph import load_workflow
from tests.tiny_project import write_project


def test_only_limits_that_are_set_count_and_the_first_that_is_reached_is_spent() -> None:
    numbers = {"ledger/tokens": 250.0, "ledger/env_calls": 10.0, "val/accuracy": None}
    found = budgets({"tokens": 1000, "env_calls": 10, "held_out_accuracy": 0.9, "seconds": None}, numbers)
    assert [one.name for one in found if one.is_spent] == ["env_calls"]
    assert as_line(found) == ("tokens 250 of 1,000 (25%), env_calls 10 of 10 (100%), held_out_accuracy 0 of 0.9 (0%)")
    assert as_line(budgets({}, numbers)) == ""


def test_every_budget_has_a_number_that_it_is_compared_with() -> None:
    assert set(StopSpec.model_fields) == set(NUMBER_OF)


@pytest.mark.parametrize(
    ("override", "said"), [("token=5", "did you mean 'tokens'?"), ("tokens=0", "greater than 0"), ("seconds=x", "x")]
)
def test_unknown_names_and_impossible_budgets_are_refused(tmp_path, override: str, said: str) -> None:
    with pytest.raises(WorkflowError) as refused:
        load_workflow(write_project(tmp_path), [f"config.stop_when.{override}"])
    assert said in str(refused.value)


def test_a_budget_may_be_written_as_a_power_of_ten(tmp_path) -> None:
    workflow = load_workflow(write_project(tmp_path), ["config.stop_when={tokens: 4e8}"])
    assert workflow.spec.config.stop_when.tokens == 400_000_000
