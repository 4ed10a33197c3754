"""The guide of metrics: it knows what runs write, and says each thing once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.report.metric_guide import SECTIONS, as_json, as_markdown, guide_of


@pytest.mark.parametrize(
    "name",
    [
        "val/accuracy", "val/reasoning_gym/chain_sum/reward", "reward/mean", "reward/parts/format",
        "agent_reasoner/policy/entropy", "agent_a.b-c/actor/kl", "critic_reasoner/explained_variance",
        "trajectory/ended/max_rounds", "perf/seconds/actor_train", "agent_actor/actor/lr", "env/workers_replaced",
        "agent_actor/actor/nonfinite_steps", "advantage/std", "agent_actor/cut",
    ],
)  # fmt: skip
def test_metrics_of_a_run_are_known(name: str) -> None:
    told = as_json(name)
    assert told["known"] and told["meaning"] and told["section"] in SECTIONS


def test_an_unknown_metric_is_shown_by_its_name() -> None:
    assert as_json("my/own")["title"] == "my/own"
    assert as_json("my/own")["section"] == SECTIONS[-1]


def test_names_with_signs_of_patterns_are_taken_as_they_are() -> None:
    assert guide_of("valXaccuracy").title == ""


def test_the_table_for_the_docs_has_a_row_for_each() -> None:
    rows = as_markdown().splitlines()[2:]
    assert len(rows) == len(set(rows)) > 40
    assert all(row.count("|") == 4 for row in rows)


def test_the_page_of_metrics_in_the_docs_is_fresh() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
    assert page.read_text(encoding="utf-8").endswith(f"\n\n{as_markdown()}\n"), "run `make reference`"
