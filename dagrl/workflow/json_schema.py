"""JSON Schema of a workflow file, for editors: completion, hover texts and squiggles while it is being written.

`workflow.schema.json` beside this module is what `schema_text` gives; `make reference` writes it. It is as strict as
one schema can be: what only the graph or several files tell (edges, groups, anchors) is left to `dagrl validate`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dagrl.workflow.fields import as_list
from dagrl.workflow.spec import NodeRole, NodeType, WorkflowSpec

SCHEMA_FILE = Path(__file__).with_name("workflow.schema.json")
SCHEMA_LINE = "# yaml-language-server: $schema="
"""Begins the line by which a workflow file tells editors where its schema is."""

_REFERENCE = "#/definitions/{model}"
_DRAFT_7 = {"prefixItems": "items"}
"""pydantic's word -> draft 7's."""
_PLAIN = ("default", "const", "enum")
"""Words whose values are values, not schemas."""
_NODE_WORDS = {"node_type": NodeType, "node_role": NodeRole}


class _Generator(GenerateJsonSchema):
    """pydantic's generator, which does not know what `Paths` takes."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        inner = super().function_before_schema(schema)
        is_paths = schema["function"]["function"] is as_list
        return {"anyOf": [{"type": "string"}, inner]} if is_paths else inner


def schema_text() -> str:
    """The whole file."""
    return json.dumps(workflow_schema(), indent=1, ensure_ascii=False) + "\n"


def workflow_schema() -> dict[str, Any]:
    """JSON Schema (draft 7, which every editor knows) of a workflow file in dagrl's own spelling."""
    raw = WorkflowSpec.model_json_schema(schema_generator=_Generator, ref_template=_REFERENCE)
    definitions = {name: _simplified(part) for name, part in raw.pop("$defs").items()}
    top = _simplified(raw)
    _relax_nodes(definitions["NodeSpec"])
    _relax_top(top)
    by_hand = ("NodeType", "NodeRole")
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "dagrl workflow",
        **top,
        "definitions": {name: part for name, part in sorted(definitions.items()) if name not in by_hand},
    }


def _simplified(part: Any) -> Any:
    """Draft 7's words, without pydantic's titles and without defaults that repeat a whole section."""
    if isinstance(part, list):
        return [_simplified(one) for one in part]
    if not isinstance(part, dict):
        return part
    simple = {_DRAFT_7.get(key, key): _value(key, value) for key, value in part.items() if not _is_clutter(key, value)}
    reference = simple.pop("$ref", None)
    if reference is None:
        return simple
    return {"allOf": [{"$ref": reference}], **simple} if simple else {"$ref": reference}


def _value(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _simplified(one) for name, one in value.items()}
    return value if key in _PLAIN else _simplified(value)


def _is_clutter(key: str, value: Any) -> bool:
    return key == "title" or (key == "default" and isinstance(value, dict))


def _relax_nodes(node: dict[str, Any]) -> None:
    """Types and roles may be written in any case; what a node must say beside its id depends on `extends`."""
    for key, words in _NODE_WORDS.items():
        names = [member.value for member in words]
        pattern = f"^({'|'.join(map(_in_any_case, names))})$"
        told = {word: text for word, text in node["properties"][key].items() if word == "description"}
        node["properties"][key] = {**told, "anyOf": [{"enum": names}, {"type": "string", "pattern": pattern}]}
    node["required"] = ["node_id"]


def _in_any_case(word: str) -> str:
    return "".join(f"[{letter}{letter.lower()}]" if letter.isalpha() else letter for letter in word)


def _relax_top(top: dict[str, Any]) -> None:
    """`extends` and, because a schema cannot see anchors, other keys at the top are allowed."""
    top["properties"]["extends"] = {
        "type": "string",
        "description": "Path of another workflow file whose keys this one overrides; nodes are merged by node_id.",
    }
    top["properties"]["agent_groups"]["propertyNames"] = {"pattern": "^[0-9]+$"}
    top["additionalProperties"] = True
    del top["required"]
    whole = {"required": ["dag_id", "nodes"], "properties": {"nodes": {"items": {"required": ["node_type"]}}}}
    top["anyOf"] = [{"required": ["extends"]}, whole]
