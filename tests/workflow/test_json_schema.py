"""The JSON Schema for editors: fresh, valid, takes what ships, refuses what the loader refuses for its shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dagrl.workflow.json_schema import SCHEMA_FILE, SCHEMA_LINE, workflow_schema
from dagrl.workflow.load import compose
from dagrl.workflow.tree import plain
from tests.workflow_files import TEAM, changed, faults

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted([*(ROOT / "workflows").glob("*.yaml"), *(ROOT / "templates").glob("*/*.yaml")])


def checker() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def as_json(text: str) -> Any:
    """The file as an editor sees it: keys are texts, anchors are written out."""
    return json.loads(json.dumps(plain(compose(text, "file").root)))


def test_the_schema_file_is_fresh() -> None:
    assert json.loads(SCHEMA_FILE.read_text(encoding="utf-8")) == workflow_schema(), "run `make reference`"


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(workflow_schema())


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: str(file.relative_to(ROOT)))
def test_workflows_that_ship_fit_it_and_name_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    checker().validate(as_json(text))
    named = next(line.removeprefix(SCHEMA_LINE) for line in text.splitlines() if line.startswith(SCHEMA_LINE))
    assert (file.parent / named).resolve() == SCHEMA_FILE or named == SCHEMA_FILE.name


def test_paths_may_be_one_or_a_list_and_types_in_any_case() -> None:
    checker().validate(as_json(changed(TEAM, ("MODEL_INFERENCE", "model_inference"))))
    for files in ("a.parquet", ["a.parquet", "b.jsonl"]):
        checker().validate({**as_json(TEAM), "config": {"data": {"train_files": files}}})


def test_keys_for_anchors_are_allowed_at_the_top() -> None:
    checker().validate({**as_json(TEAM), "x-shared": {"lr": 1e-6}, "actor": {"a": 1}})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_rounds: 2", "max_ronds: 2"),
        ("max_rounds: 2", "max_rounds: two"),
        ("max_rounds: 2", "max_rounds: 0"),
        ("max_rounds: 2", "max_rounds: null"),
        ("use_kl_loss: true", "kl_loss_type: k4"),
        ("node_type: MODEL_INFERENCE", "node_type: MODEL_INFERENC"),
        ("    node_type: MODEL_INFERENCE\n", ""),
        ("dag_id: team\n", ""),
        ("    agent_group: 1\n", "    agent_grp: 1\n"),
        ("dependencies: [scout]", "dependencies: {a: 1}"),
    ],
)
def test_what_the_loader_refuses_for_its_shape_the_schema_refuses_too(tmp_path: Path, old: str, new: str) -> None:
    broken = changed(TEAM, (old, new))
    assert faults(tmp_path, broken)
    assert not checker().is_valid(as_json(broken))


def test_every_key_that_has_a_meaning_in_the_reference_shows_it_in_the_editor() -> None:
    rollout = workflow_schema()["definitions"]["RolloutSpec"]["properties"]
    assert rollout["n"]["description"] == "Samples of each prompt."
