"""The YAML door: values, places, anchors, references, limits; never a traceback."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagrl.errors import DagrlError, WorkflowError
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.load import compose, dump
from dagrl.workflow.tree import find, plain
from tests.workflow_files import CHAIN, TEAM, changed, faults, load, only_fault, write

JUDGE = "  - node_id: judge\n    node_type: REWARD\n    dependencies: [caller]\n"


def value(text: str) -> object:
    return plain(compose(f"key: {text}\n", "f").root)["key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-6", 1e-6), ("1e5", 1e5), ("1E+3", 1e3), (".5", 0.5), ("-2.", -2.0), ("7", 7), ("-7", -7), ("010", 10),
        ("0x1F", 31), ("1_000", "1_000"), ("12:30", "12:30"), ("yes", "yes"), ("no", "no"), ("on", "on"),
        ("off", "off"), ("true", True), ("False", False), ("null", None), ("~", None), ("", None), (".inf", math.inf),
        ("'1e-6'", "1e-6"), ('"true"', "true"), ("2024-01-01", "2024-01-01"), ("!!str 5", "5"), ("0o17", "0o17"),
        ("! 5", "5"), ("!!int 5", 5), ("!!float 1e-6", 1e-6), ("!!bool true", True),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, expected: object) -> None:
    got = value(text)
    assert got == expected
    assert type(got) is type(expected)


def test_every_value_and_key_knows_its_line_and_column() -> None:
    root = compose("a: 1\nb:\n  - x\n  - {c: 2}\n", "f.yaml").root
    item = find(root, ("b", 1, "c"))
    assert item is not None and item.key is not None
    assert (item.key.line, item.key.column, item.mark.column) == (4, 6, 9)
    assert item.mark.source == "  - {c: 2}"


def test_merge_keys_give_way_to_keys_of_the_mapping_and_the_first_of_several_wins() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 9}\n"
    assert plain(compose(text, "f").root)["c"] == {"x": 9, "y": 1, "z": 2}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: 1\na: 2\n", "E102"),
        ("a: &x [*x]\n", "E101"),
        ("a: *nothing\n", "E101"),
        ("a: !!python/object:os.system 1\n", "E101"),
        ("a: !thing {b: 1}\n", "E101"),
        ("a: !!int five\n", "E101"),
        ("a: !Ref\n", "E105"),
        ("a: [1, 2]\nb: !Ref a.2\n", "E105"),
        ("a: [1\n", "E101"),
        ("a: 1\n---\nb: 1\n", "E101"),
        ("? [a, b]\n: 1\n", "E101"),
        ("null: 1\n", "E101"),
        ("a: {<<: 5}\n", "E101"),
        ("[1, 2]\n", "E104"),
        ("", "E104"),
        ("just words\n", "E104"),
        ("a: \x07\n", "E101"),
        ("a: !!int x\n", "E101"),
    ],
)
def test_what_is_not_read_is_a_finding_with_its_line(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        load(tmp_path, text)
    assert code in [finding.code for finding in caught.value.findings]


def test_depth_is_bounded_also_through_aliases(tmp_path: Path) -> None:
    assert "nested deeper" in only_fault(tmp_path, "a: " + "[" * 200 + "]" * 200).message
    deep = "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40
    assert "nested deeper" in only_fault(tmp_path, deep).message


def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    lines = ["l0: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert "aliases are written out" in only_fault(tmp_path, "\n".join(lines)).message


def test_a_bomb_of_references_is_refused(tmp_path: Path) -> None:
    lines = ["x-0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x-{n}: [{', '.join([f'!Ref x-{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert "without end" in only_fault(tmp_path, "\n".join(lines)).message


def test_a_reference_gives_the_value_even_where_it_is_false_or_null(tmp_path: Path) -> None:
    text = TEAM + "shared: {shuffle: false, clip: null, zero: 0}\n"
    text = changed(text, ("config:\n", "config:\n  data: {shuffle: !Ref shared.shuffle}\n"))
    text = changed(text, ("{use_kl_loss: true}", "{use_kl_loss: true, clip_ratio_c: !Ref shared.clip}"))
    workflow = load(tmp_path, text)
    assert workflow.spec.config.data.shuffle is False
    assert workflow.spec.config.actor.clip_ratio_c is None


def test_a_dangling_reference_names_the_nearest(tmp_path: Path) -> None:
    text = changed(TEAM, ("dag_id: team", "dag_id: !Ref global_config.nmae\nglobal_config: {name: x}"))
    fault = next(found for found in faults(tmp_path, text) if found.code == "E105")
    assert "did you mean 'name'" in str(fault.hint)
    assert fault.line == 1


def test_a_reference_may_name_a_member_of_a_list(tmp_path: Path) -> None:
    text = TEAM + "seeds: [3, 5]\n"
    assert (
        load(
            tmp_path, changed(text, ("config:\n", "config:\n  trainer: {seed: !Ref seeds.1}\n"))
        ).spec.config.trainer.seed
        == 5
    )


def test_the_faults_of_a_file_that_is_extended_are_told_at_their_place(tmp_path: Path) -> None:
    write(tmp_path, changed(TEAM, ("max_rounds: 2", "max_rounds: [")), "base.yaml")
    found = faults(tmp_path, "extends: base.yaml\n")
    assert (Path(str(found[0].file)).name, found[0].code) == ("base.yaml", "E101")


def test_nodes_of_a_file_that_is_extended_are_changed_by_name_and_others_follow(tmp_path: Path) -> None:
    base = write(tmp_path, TEAM, "base.yaml")
    changes = "  - {node_id: judge, agent_options: {role_name: referee}}\n"
    more = "  - {node_id: third, node_type: MODEL_INFERENCE, agent_group: 1, dependencies: [caller]}\n"
    text = base.read_text()
    extended = load(tmp_path, f"extends: base.yaml\nnodes:\n{changes}{more}")
    written_out = load(tmp_path, changed(text, (JUDGE, JUDGE + "    agent_options: {role_name: referee}\n")) + more)
    assert [node.node_id for node in extended.spec.nodes] == [node.node_id for node in written_out.spec.nodes]
    assert extended.spec == written_out.spec


def test_nodes_that_are_no_list_take_the_place_of_those_of_the_file_that_is_extended(tmp_path: Path) -> None:
    write(tmp_path, TEAM, "base.yaml")
    assert {one.code for one in faults(tmp_path, "extends: base.yaml\nnodes: none\n")}


def test_a_name_that_no_file_can_have_is_told() -> None:
    with pytest.raises(DagrlError, match="cannot read"):
        load_workflow(Path("a\0.yaml"))


def test_references_in_a_ring_are_refused(tmp_path: Path) -> None:
    found = faults(tmp_path, TEAM + "x-a: !Ref x-b\nx-b: !Ref x-a\n")
    assert any("ring" in finding.message for finding in found)


def test_spare_top_level_keys_pass_only_if_they_are_used(tmp_path: Path) -> None:
    used = changed(TEAM, ("config:\n", "mine: &mine {lr: 1e-4}\nx-note: anything\nconfig:\n"))
    used = changed(used, ("{use_kl_loss: true}", "{use_kl_loss: true, optim: *mine}"))
    assert load(tmp_path, used).spec.config.actor.optim.lr == 1e-4
    unused = changed(TEAM, ("nodes:\n", "confg: &mine {lr: 1e-4}\nnodes:\n"))
    fault = only_fault(tmp_path, unused)
    assert (fault.code, fault.line) == ("E110", 5)
    assert "did you mean 'config'" in str(fault.hint)


def test_all_faults_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    text = changed(
        TEAM,
        ("max_rounds: 2", "max_rounds: two"),
        ("node_type: REWARD", "node_type: REWRAD"),
        ("agent_options: {share_instance: 0}", "agent_options: {share_instnace: 0}"),
        ("dependencies: [judge, value_0", "dependencies: [jugde, value_0"),
    )
    found = {finding.code: finding for finding in faults(tmp_path, text)}
    assert {"E112", "E114", "E110", "E202"} <= set(found)
    assert found["E112"].field == "config.rollout.max_rounds"
    assert (found["E112"].line, found["E112"].column) == (3, 25)
    assert "did you mean 'REWARD'" in str(found["E114"].hint)
    assert found["E110"].field == "nodes.value_1.agent_options.share_instnace"
    assert "did you mean 'share_instance'" in str(found["E110"].hint)
    assert "did you mean 'judge'" in str(found["E202"].hint)


@pytest.mark.parametrize("key", ["nodes", "config", "agent_groups", "dag_id", "description", "extends"])
@pytest.mark.parametrize("wrong", ["null", "5", "[1]", "{a: 1}", "text", "[null, 5, [x]]", ".nan", "{1: {2: 3}}"])
def test_a_wrong_type_at_the_top_is_a_finding(tmp_path: Path, key: str, wrong: str) -> None:
    text = "\n".join(line for line in TEAM.splitlines() if not line.startswith(f"{key}:"))
    try:
        load(tmp_path, f"{text}\n{key}: {wrong}\n" if key != "nodes" else f"dag_id: a\nnodes: {wrong}\n")
    except DagrlError as error:
        assert str(error)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    write(tmp_path, TEAM, "marft.yaml")
    with pytest.raises(DagrlError, match="no such file") as caught:
        load_workflow(tmp_path / "mrft.yaml")
    assert "marft.yaml" in str(caught.value.how)
    with pytest.raises(DagrlError, match="is a folder"):
        load_workflow(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"dag_id: a\nname: \xff\n")
    with pytest.raises(DagrlError, match="not UTF-8") as caught:
        load_workflow(tmp_path / "latin.yaml")
    assert str(caught.value.where).endswith("latin.yaml:2")
    (tmp_path / "big.yaml").write_bytes(b"# " + b"x" * 1_000_001)
    with pytest.raises(DagrlError, match="bytes"):
        load_workflow(tmp_path / "big.yaml")


def test_dumped_values_are_read_back_the_same() -> None:
    value = {"a": "1e5", "b": "yes", "c": 1e-6, "d": None, "e": [True, "true", ""], "f": "x: y\n", 3: "12:30"}
    assert plain(compose(dump(value), "f").root) == value


def test_the_resolved_workflow_loads_to_the_same_workflow(tmp_path: Path) -> None:
    first = load(tmp_path, CHAIN, "actor_rollout_ref.actor.use_kl_loss=true", "algorithm.share_reward_in_agent=true")
    second = load(tmp_path, dump(first.resolved))
    assert second.nodes == first.nodes
    assert second.groups == first.groups
    assert second.spec == first.spec


# Whatever the file: findings, not tracebacks

_LINES = TEAM.splitlines()
_JUNK = st.sampled_from(
    ["null", "5", "-1", "[]", "{}", "[null]", "text", ".nan", ".inf", "!Ref a.b", "*x", "&x 1", "1e400", "''", "yes",
     "{<<: 1}", "[[[[]]]]", "!!int x", "999999999999999999999999", "\t", "%", "- -", "? a"]
)  # fmt: skip


def must_end_well(folder: Path, data: bytes) -> None:
    file = folder / "mutant.yaml"
    file.write_bytes(data)
    try:
        load_workflow(file)
    except DagrlError as error:
        assert error.exit_code == 2
        assert str(error)


_MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_MANY
@given(line=st.integers(0, len(_LINES) - 1), junk=_JUNK)
def test_a_value_replaced_by_junk_never_ends_in_a_traceback(tmp_path: Path, line: int, junk: str) -> None:
    lines = list(_LINES)
    key, colon, _ = lines[line].partition(":")
    lines[line] = f"{key}{colon} {junk}" if colon else junk
    must_end_well(tmp_path, "\n".join(lines).encode())


@_MANY
@given(st.data())
def test_lines_dropped_doubled_or_swapped_never_end_in_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    first, second = (data.draw(st.integers(0, len(_LINES) - 1)) for _ in range(2))
    lines = list(_LINES)
    what = data.draw(st.sampled_from(["drop", "double", "swap", "indent"]))
    if what == "drop":
        del lines[first]
    elif what == "double":
        lines.insert(second, lines[first])
    elif what == "swap":
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines[first] = "  " + lines[first]
    must_end_well(tmp_path, "\n".join(lines).encode())


@_MANY
@given(at=st.integers(0, len(TEAM) - 1), junk=st.binary(min_size=1, max_size=3))
def test_bytes_replaced_never_end_in_a_traceback(tmp_path: Path, at: int, junk: bytes) -> None:
    data = TEAM.encode()
    must_end_well(tmp_path, data[:at] + junk + data[at + len(junk) :])
