"""Overrides by dotted path and node id: the rules and the checks of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagrl.errors import DagrlError
from dagrl.workflow.graph import load_workflow
from tests.workflow_files import TEAM, load, only_fault, write


@pytest.mark.parametrize("prefix", ["", "config."])
def test_a_section_needs_no_prefix(tmp_path: Path, prefix: str) -> None:
    workflow = load(tmp_path, TEAM, f"{prefix}trainer.total_steps=5", f"{prefix}actor.optim.lr=1e-6")
    assert workflow.spec.config.trainer.total_steps == 5
    assert workflow.spec.config.actor.optim.lr == 1e-6


def test_values_are_read_as_in_the_file(tmp_path: Path) -> None:
    workflow = load(
        tmp_path, TEAM, "data.train_files=[a.parquet, b.parquet]", "data.columns={prompt: problem}",
        "actor.clip_ratio_c=null", "data.shuffle=False", "dag_id=a=b", "description='5'",
    )  # fmt: skip
    config = workflow.spec.config
    assert config.data.train_files == ("a.parquet", "b.parquet")
    assert config.data.columns == {"prompt": "problem"}
    assert config.actor.clip_ratio_c is None
    assert config.data.shuffle is False
    assert (workflow.spec.dag_id, workflow.spec.description) == ("a=b", "5")


def test_nodes_go_by_id_groups_by_number_and_list_members_by_place(tmp_path: Path) -> None:
    workflow = load(
        tmp_path, TEAM, "nodes.actor_0.agent_options.train_cycle=3", "nodes.actor_1.agent_options.train_cycle=3",
        "agent_groups.1.name=x", "nodes.advantage.dependencies.0=judge", "nodes.0.agent_options.role_name=S",
    )  # fmt: skip
    assert workflow.groups[1].name == "x"
    assert workflow.nodes[0].role_name == "S"
    assert {one.options.train_cycle for one in workflow.learn} == {None, 3}


def test_the_last_of_several_holds(tmp_path: Path) -> None:
    assert load(tmp_path, TEAM, "trainer.seed=1", "trainer.seed=2").spec.config.trainer.seed == 2


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("config.trainer.totl_steps=5", "did you mean 'total_steps'"),
        ("nodes.actr_0.agent_options.train_cycle=5", "did you mean 'actor_0'"),
        ("nodes.actor_0.agent_options.train_cylce=5", "did you mean 'train_cycle'"),
        ("trainr.total_steps=5", "did you mean 'trainer'"),
        ("nodes.actor_0.node_id=x", "names a node"),
        ("nodes.advantage.dependencies.9=x", "has 3 members"),
        ("trainer.total_steps=0", "greater than 0"),
        ("trainer.total_steps=many", "whole number"),
        ("trainer.total_steps", "is not key=value"),
        ("=5", "is not key=value"),
        ("trainer.seed=[1", "not YAML"),
        ("trainer.seed={a: 1, a: 2}", "given twice"),
    ],
)
def test_what_cannot_be_applied_is_told_with_the_command_line_as_its_place(
    tmp_path: Path, override: str, words: str
) -> None:
    fault = only_fault(tmp_path, TEAM, override)
    assert (fault.file, fault.line) == ("command line", None)
    assert words in fault.render()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["nodes", "actor_0", "config", "trainer", "0", "dependencies", "agent_groups", "x", ""])),
    st.text(alphabet="ab01.-:{}[]&*!'\"# \n", max_size=8),
)
def test_no_override_ends_in_a_traceback(tmp_path: Path, parts: list[str], text: str) -> None:
    file = write(tmp_path, TEAM)
    try:
        load_workflow(file, [f"{'.'.join(parts)}={text}"])
    except DagrlError as error:
        assert error.exit_code == 2
