"""`dagrl selftest`: green as it ships, red for a wrong formula, and nothing is left out."""

from __future__ import annotations

import math

import pytest
import torch

from dagrl import algorithms
from dagrl.cli import exit_code
from dagrl.runtime.selftest import Check, checks
from dagrl.workflow.algorithm_section import ADV_ESTIMATORS, KL_KINDS, POLICY_LOSSES


def test_every_name_that_a_workflow_may_use_is_computed_and_as_its_closed_form(capsys) -> None:
    assert exit_code(["selftest"]) == 0
    assert "differs" not in capsys.readouterr().out
    names = {check.name.split()[0] for check in checks()}
    assert names == {*ADV_ESTIMATORS, *POLICY_LOSSES, *KL_KINDS, *algorithms.ROLLOUT_CORRECTIONS}


def test_the_closed_forms_are_the_numbers_worked_out_elsewhere() -> None:
    told = {check.name: check.expected for check in checks() if check.kind in ("estimator", "loss")}
    assert told["gae_marft"] == pytest.approx((0.731772, 0.674930, 0.510292, 0.546829, 0.375150, 0.3), abs=1e-6)
    assert told["grpo"][:6] == pytest.approx((0.577349, -1.154699, 0.577349, -0.832048, -0.277349, 1.109397), abs=1e-6)
    assert told["spiral"] == pytest.approx((1.0, -1.05, 1.0025))
    assert told["cispo"][:4] == pytest.approx((0.761005, -0.761005, 1.208660, -1.208660), abs=1e-6)
    assert told["sapo"][:4] == pytest.approx((-2.489837, 2.393585, -1.605249, 1.510540), abs=1e-6)
    kept = [0.0, 0.0, math.exp(-0.1), -math.exp(0.05), math.exp(0.9), -math.exp(-0.9)]
    assert told["m2po paper"] == pytest.approx(kept)


@pytest.mark.parametrize(
    ("table", "name", "wrong"),
    [
        ("RELATIVE_ESTIMATORS", "grpo", lambda rows: algorithms.RELATIVE_ESTIMATORS["dr_grpo"](rows)),
        ("RELATIVE_ESTIMATORS", "rloo", lambda rows: rows.scores * math.nan),
        ("RELATIVE_ESTIMATORS", "of_tomorrow", lambda rows: rows.scores),
        ("POLICY_LOSSES", "cpgd", lambda *given: algorithms.ppo_loss(*given)),
        ("KL_KINDS", "k3", lambda log_ratio: torch.expm1(log_ratio) - log_ratio),
    ],
)
def test_a_broken_formula_is_named_with_both_numbers_and_exit_code_1(monkeypatch, capsys, table, name, wrong) -> None:
    monkeypatch.setitem(getattr(algorithms, table), name, wrong)
    assert exit_code(["selftest"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("differs"))
    assert lines[at].split()[2] == name and "closed form" in lines[at + 1]
    assert sum(line.startswith("differs") for line in lines) == 1


def test_numbers_of_another_count_are_not_the_same() -> None:
    assert not Check(kind="loss", name="x", got=(1.0,), expected=(1.0, 2.0)).is_same
