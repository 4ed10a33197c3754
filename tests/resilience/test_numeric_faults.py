"""NaN in seven tensors of two agents: no update is made from it, and the third in a row ends the run by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from dagrl.backends import forward, optimizer
from dagrl.errors import NumericError
from dagrl.experience import Experience
from dagrl.runtime.metrics import read_metrics
from tests.command import dagrl
from tests.small_teams import SCORES, TWO, Spec, changed, node, one_process, run, speaker, team, train
from tests.tiny_project import write_project

pytestmark = pytest.mark.resilience

COLUMNS = {"rewards": ["reward"], "old_logprobs": ["old_0", "old_1"], "values": ["values_0", "values_1"],
           "advantages": ["advantages"], "returns": ["advantages"]}  # fmt: skip
TENSORS = (*COLUMNS, "loss", "gradient")
NAMES = ("scout", "caller")
FIRST_BAD_STEP = 1
"""From 0."""
POISON = """
import torch
import dagrl.algorithms

STEPS = []

def poison(batch, config, column="{column}", group={group}):
    STEPS.append(1)
    if len(STEPS) > {first}:
        turns = batch.turns_of([group])[:2]
        tokens = batch.sequences.tokens_of(turns)
        batch.columns[next(name for name in batch.columns if name == column)][tokens] = float("{value}")
    return batch

def bad_loss(logprobs, old, advantages, clip):
    STEPS.append(1)
    result = dagrl.algorithms.ppo_loss(logprobs, old, advantages, clip)
    if len(STEPS) <= {first}:
        return result
    # sqrt(x - x) is 0 and its gradient is 0 times infinity.
    wrong = result.loss_T * float("{value}") if "{column}" == "loss" else (logprobs - logprobs).abs().sqrt()
    return type(result)(loss_T=wrong, metrics=result.metrics)
"""
NO_WAIT = ("trainer.total_steps=6", "trainer.save_freq=1", "actor.ppo_epochs=1")


def poisoned(tensor: str, group: int) -> Spec:
    """A team of two whose `tensor` of agent `group` goes bad: a node of the user's writes it, or an own loss."""
    made = team([speaker("a"), speaker("b", 1, ["a"])], reward={"executable_ref": "scores.py:letters"})
    made["agent_groups"] = {number: {"name": name} for number, name in enumerate(NAMES)}
    if tensor not in COLUMNS:
        return changed(made, f"train_{group}", config={"algorithm": {"policy_loss": "poison.py:bad_loss"}})
    before = COLUMNS[tensor]
    bad = node("poison", "COMPUTE", role="DEFAULT", group=group, after=before, executable_ref="poison.py:poison")
    for one in made["nodes"]:
        if set(before) & set(one["dependencies"]):
            one["dependencies"] = [*one["dependencies"], "poison"]
    place = max(number for number, one in enumerate(made["nodes"]) if one["node_id"] in before)
    made["nodes"].insert(place + 1, bad)
    return made


def files(tensor: str, group: int, value: str = "nan") -> dict[str, str]:
    text = POISON.format(column=tensor, group=group, first=FIRST_BAD_STEP, value=value)
    return {"poison.py": text, "scores.py": SCORES}


def weights(folder: Path, step: int, part: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "out" / "checkpoints" / f"step_{step:06d}" / part / "model.safetensors")


def check(folder: Path, tensor: str, group: int, value: str = "nan") -> None:
    """One injection: trains until the run ends by itself, and looks at everything that is promised."""
    with pytest.raises(NumericError) as caught:
        train(folder, *NO_WAIT, team=poisoned(tensor, group), files=files(tensor, group, value))
    told = str(caught.value)
    where = f"train_{group}" if tensor in ("loss", "gradient") else "poison"
    assert caught.value.exit_code == 4
    assert f"the {tensor} of agent '{NAMES[group]}' at node '{where}' is not finite" in told and "3. step" in told
    assert "train:" in told, "samples are named"
    rows = [row for row in read_metrics(folder / "out" / "metrics.jsonl") if "trajectory/count" in row]
    assert len(rows) == FIRST_BAD_STEP + 2, "two bad steps are survived"
    for row in rows[FIRST_BAD_STEP:]:
        if tensor in COLUMNS:
            assert row["trajectory/given_up"] == 1.0
        else:
            assert row[f"agent_{NAMES[group]}/actor/nonfinite_steps"] == 1.0
    if tensor in COLUMNS:
        lost = rows[-1]["ledger/issued"] - rows[FIRST_BAD_STEP - 1]["ledger/issued"]
        assert rows[-1]["ledger/dropped/nonfinite"] == lost > 0, "nobody was trained in the bad steps"
    healthy, last = (weights(folder, step, f"agent_{NAMES[group]}") for step in (FIRST_BAD_STEP, FIRST_BAD_STEP + 2))
    assert all(torch.equal(healthy[name], tensor) for name, tensor in last.items()), "no update was made"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in last.values())
    kept = sorted((folder / "out" / "failures").glob("*_nonfinite.json"))
    assert len(kept) == 3, "every bad batch is kept"
    content = json.loads(kept[-1].read_text())
    assert content["tensor"] == tensor and content["samples"] and content["turns"]
    if tensor in COLUMNS:
        assert value in content["turns"][0][tensor], "witness: the poison is in the file"


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("tensor", TENSORS)
def test_a_number_that_is_not_finite_is_never_trained_on(tmp_path: Path, tensor: str, group: int) -> None:
    check(tmp_path, tensor, group)


def test_infinity_counts_too(tmp_path: Path) -> None:
    check(tmp_path, "values", 1, "inf")


@pytest.mark.parametrize("tensor", ["values", "gradient"])
def test_twin_without_the_guards_the_check_turns_red(
    tmp_path: Path, tensor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = SimpleNamespace(isfinite=lambda value: True, nan=math.nan, cos=math.cos, pi=math.pi)
    monkeypatch.setattr(Experience, "first_nonfinite", lambda self: None)
    monkeypatch.setattr(forward, "math", blind)
    monkeypatch.setattr(optimizer, "math", blind)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(tmp_path, tensor, 0)


def test_two_bad_steps_with_a_good_one_between_do_not_end_the_run(tmp_path: Path) -> None:
    text = files("values", 0)["poison.py"].replace(f"len(STEPS) > {FIRST_BAD_STEP}", "len(STEPS) % 3")
    ran = train(tmp_path, *NO_WAIT, team=poisoned("values", 0), files=files("values", 0) | {"poison.py": text})
    assert ran.series("trajectory/given_up") == [1.0, 1.0, None] * 2


def test_the_command_ends_with_exit_code_4_in_one_message_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = write_project(tmp_path)
    for name, text in files("values", 1).items():
        (tmp_path / name).write_text(text)
    path.write_text(json.dumps(poisoned("values", 1)))
    quiet = (*NO_WAIT, "data.train_batch_size=4", "data.val_files=[]", "trainer.val_without=[]")
    ended = dagrl("run", "--workflow", str(path), "--run-dir", "out", *quiet, cwd=tmp_path)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr and "the values of agent 'caller'" in ended.stderr
    assert ended.stdout.count("no update was made") == 2
    cured = (tmp_path / "poison.py").read_text().replace(f"len(STEPS) > {FIRST_BAD_STEP}", "False")
    (tmp_path / "poison.py").write_text(cured)
    resumed = dagrl("run", "--resume", "out", "--allow-changes", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert len(read_metrics(tmp_path / "out" / "metrics.jsonl")) == 6


def test_a_reward_that_gives_nan_is_a_bad_return_and_no_number(tmp_path: Path) -> None:
    scores = "def letters(data_source, solution_str, ground_truth, extra_info):\n" \
             "    return float('nan') if ground_truth == 'a' else 1.0\n"  # fmt: skip
    own = {"scores.py": scores}
    ran = run(tmp_path, TWO, "data.train_batch_size=16", files=own, rollout={"max_failed_fraction": 1.0})
    last = ran.rows[-1]
    assert last["ledger/dropped/reward_bad_return"] == last["ledger/dropped"] > 0, "witness"
    assert last["ledger/trained"] + last["ledger/dropped"] == last["ledger/issued"]
    assert all(row["reward/min"] == 1.0 for row in ran.rows)
