"""A checkpoint is whole or absent, gives back what was saved to the bit, and every change to it is found."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from dagrl.errors import NumericError, StorageError
from dagrl.runtime import checkpoint as checkpoints
from dagrl.runtime.checkpoint import (
    CheckpointParts,
    differing,
    identity_of,
    load_state,
    newest,
    save,
    step_of,
    verify,
)
from dagrl.runtime.retention import Retention
from dagrl.runtime.state_file import load_state as load_state_file
from dagrl.runtime.state_file import save_state


def is_equal(one: Any, other: Any) -> bool:
    """The same in every type, order, shape and bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        same_form = one.dtype == other.dtype and one.shape == other.shape
        return same_form and _bytes(one) == _bytes(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_equal(part, other[key]) for key, part in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(is_equal(a, b) for a, b in zip(one, other, strict=True))
    return repr(one) == repr(other)


def _bytes(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


STATE: dict[str, Any] = {
    "step": 40,
    "loader": {"drawn": 10**20, "shuffle": True, "name": 'tr"ain\n\ud800', "none": None},
    "lr": 0.1 + 0.2,
    "odd": [math.nan, -math.inf, -0.0, 5e-324, 1e308],
    "betas": (0.9, (0.999,), []),
    "optimizer": {0: {"exp_avg": torch.tensor([1e-45, -0.0]), "step": torch.tensor(7.0)}, 1: {}, "1": ()},
    "bf16": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,
    "bool": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
    "rng": torch.Generator().manual_seed(3).get_state(),
    "ints": torch.tensor([2**62, -1]),
}


def _parts(state: dict[str, Any] | None = None) -> CheckpointParts:
    def write(name: str) -> Any:
        return lambda folder: save_file({name: torch.ones(20)}, folder / "model.safetensors")

    return CheckpointParts(
        agents={name: write(name) for name in ("reasoner", "actor")},
        critics={"reasoner": write("critic")},
        state=STATE if state is None else state,
    )


def test_a_state_comes_back_equal_in_every_bit_and_type(tmp_path: Path) -> None:
    path = save(tmp_path, 40, _parts())
    assert is_equal(load_state(path), STATE)
    assert step_of(path) == 40


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.floats(width=32)).map(torch.tensor)
)
nested = st.recursive(
    plain,
    lambda part: st.one_of(
        st.lists(part, max_size=3),
        st.lists(part, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), part, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(state=nested)
def test_any_nested_state_comes_back_equal(tmp_path: Path, state: Any) -> None:
    save_state(tmp_path, state)
    assert is_equal(load_state_file(tmp_path), state)


def test_an_optimizer_goes_on_from_its_saved_state_to_the_bit(tmp_path: Path) -> None:
    def steps(num: int, optimizer: torch.optim.Optimizer, weight: Tensor) -> None:
        for _ in range(num):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()

    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    steps(2, optimizer, weight)
    path = save(tmp_path, 2, _parts({"optimizer": optimizer.state_dict(), "weight": weight}))
    state = load_state(path)
    other = state["weight"].requires_grad_()
    restored = torch.optim.AdamW([other], lr=0.5)
    restored.load_state_dict(state["optimizer"])
    steps(3, optimizer, weight)
    steps(3, restored, other)
    assert torch.equal(weight, other)


def test_tensors_that_share_memory_come_back_whole(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    save_state(tmp_path, [base, base[2:], base.reshape(2, 3).T])
    assert is_equal(load_state_file(tmp_path), [base, base[2:], base.reshape(2, 3).T.contiguous()])


@pytest.mark.parametrize("value", [object(), {1.5: 0}, {True: 0}, {1, 2}, b"bytes", torch.float32])
def test_what_cannot_be_given_back_is_refused_by_its_place(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match=r"state\.loader"):
        save(tmp_path, 1, _parts({"loader": value}))
    assert list(tmp_path.iterdir()) == []


def test_every_agent_and_each_critic_has_a_folder(tmp_path: Path) -> None:
    path = save(tmp_path, 40, _parts())
    assert path.name == "step_000040"
    folders = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    assert folders == ["agent_actor", "agent_reasoner", "critic_reasoner", "trainer_state"]
    assert verify(path) == ()
    files = [file for file in path.rglob("*") if file.is_file()]
    assert not [file for file in files if file.suffix in (".pt", ".pkl", ".bin")]


def _mutate(draw: random.Random, file: Path) -> str:
    content = bytearray(file.read_bytes())
    kind = draw.choice(["flip", "truncate", "remove", "extend"])
    if kind == "remove":
        file.unlink()
        return kind
    if kind == "flip":
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == "truncate":
        del content[draw.randrange(len(content)) :]
    else:
        content.append(0)
    file.write_bytes(content)
    return kind


def test_every_flip_truncation_and_missing_file_is_found(tmp_path: Path) -> None:
    good = save(tmp_path / "good", 3, _parts())
    draw = random.Random(0)
    names = [file.relative_to(good) for file in good.rglob("*") if file.is_file()]
    for number in range(100):
        copy = tmp_path / "copy"
        shutil.copytree(good, copy)
        name = draw.choice(names)
        kind = _mutate(draw, copy / name)
        assert verify(copy), f"mutation {number}: {kind} of {name} was not found"
        shutil.rmtree(copy)


def test_a_file_that_was_not_saved_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, 3, _parts())
    (path / "agent_actor" / "extra.json").write_text("{}")
    assert "extra.json: was not saved with it" in verify(path)[0]


def test_the_newest_whole_checkpoint_is_found_and_broken_ones_are_named(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save(tmp_path, step, _parts())
    (tmp_path / "step_000100" / "agent_actor" / "model.safetensors").write_bytes(b"x")
    (tmp_path / "step_000200").mkdir()
    (tmp_path / ".tmp-step_000300-1").mkdir()
    found = newest(tmp_path)
    assert found.path == tmp_path / "step_000010"
    assert [line.split()[0] for line in found.skipped] == ["step_000200", "step_000100"]
    assert newest(tmp_path / "nowhere").path is None


def test_only_the_last_whole_ones_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    (tmp_path / ".tmp-step_000001-9" / "agent_actor").mkdir(parents=True)
    for step in (1, 2, 3):
        save(tmp_path, step, _parts())
    (tmp_path / "step_000003" / "agent_actor" / "model.safetensors").unlink()
    save(tmp_path, 4, _parts(), Retention(keep_last=2))
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["step_000002", "step_000003", "step_000004"]
    assert newest(tmp_path).path == tmp_path / "step_000004"


def test_saving_a_step_again_keeps_the_whole_one_and_replaces_a_broken_one(tmp_path: Path) -> None:
    path = save(tmp_path, 1, _parts({"n": 1}))
    save(tmp_path, 1, _parts({"n": 2}))
    assert load_state(path) == {"n": 1}
    (path / checkpoints.MANIFEST_FILE).unlink()
    save(tmp_path, 1, _parts({"n": 2}))
    assert load_state(path) == {"n": 2}
    assert verify(path) == ()


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_fails_at_any_call_leaves_the_old_checkpoint_and_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    old = save(tmp_path, 1, _parts({"n": 1}))
    genuine = getattr(os, call)
    for failing in range(100):
        calls = 0

        def faulty(*args: Any, failing: int = failing) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            return genuine(*args)

        monkeypatch.setattr(os, call, faulty)
        try:
            save(tmp_path, 2, _parts({"n": 2}))
        except StorageError as error:
            assert error.exit_code == 5
            assert "disk is full" in str(error)
            assert verify(old) == ()
            assert not list(tmp_path.glob(".tmp-*"))
            shutil.rmtree(tmp_path / "step_000002", ignore_errors=True)
        else:
            break
        finally:
            monkeypatch.setattr(os, call, genuine)
    assert failing > 0
    assert load_state(tmp_path / "step_000002") == {"n": 2}


def test_a_model_that_cannot_be_saved_leaves_nothing(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.raises(StorageError, match="read-only"):
        save(tmp_path, 1, CheckpointParts(agents={"a": broken}))
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1, _parts())
    manifest = json.loads((path / "MANIFEST.json").read_text()) | {"format": 99}
    (path / "MANIFEST.json").write_text(json.dumps(manifest))
    assert "has format 99; this version reads 3" in verify(path)[0]


def test_a_tensor_that_is_not_finite_is_refused_by_its_agent_and_name(tmp_path: Path) -> None:
    old = save(tmp_path, 1, _parts({"n": 1}))
    for bad in (math.nan, math.inf, -math.inf):
        weights = {"good": torch.ones(3), "bad": torch.tensor([[1.0, bad]], dtype=torch.bfloat16)}

        def write(folder: Path, weights: dict[str, Tensor] = weights) -> None:
            save_file(weights, folder / "model.safetensors")

        with pytest.raises(NumericError, match=r"'bad' in agent_actor/model.safetensors") as caught:
            save(tmp_path, 2, CheckpointParts(agents={"actor": write}), Retention(keep_last=1))
        assert caught.value.exit_code == 4
        assert [path.name for path in tmp_path.iterdir()] == [old.name]
    assert verify(old) == ()


def test_an_optimizer_state_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    state = {"models": {"agent_actor": {"adam": {"state": {3: {"exp_avg": torch.tensor([math.inf])}}}}}}
    with pytest.raises(NumericError, match=r"models\.agent_actor\.adam\.state\.3\.exp_avg"):
        save(tmp_path, 2, _parts(state))
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_not_whole_stands_under_its_name_until_the_one_that_replaces_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 1, _parts({"n": 1}))
    (path / "agent_actor" / "model.safetensors").unlink()
    genuine = os.rename

    def faulty(old: Path, new: Path) -> None:
        if Path(old).name.startswith(".tmp-step_"):
            raise OSError(errno.EIO, "Input/output error")
        genuine(old, new)

    monkeypatch.setattr(os, "rename", faulty)
    with pytest.raises(StorageError, match="Input/output error"):
        save(tmp_path, 1, _parts({"n": 2}))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert load_state(path) == {"n": 1}


def test_one_that_stood_aside_when_the_power_went_comes_back(tmp_path: Path) -> None:
    path = save(tmp_path, 1, _parts({"n": 1}))
    path.rename(tmp_path / ".tmp-aside-step_000001")
    checkpoints.remove_leftovers(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    shutil.copytree(path, tmp_path / ".tmp-aside-step_000001")
    (tmp_path / ".tmp-link").symlink_to("nowhere")
    checkpoints.remove_leftovers(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("library", ["safetensors", "tokenizers", "python"])
def test_a_full_disk_is_told_by_every_library_that_writes(tmp_path: Path, library: str) -> None:
    """A limit on the size of files stands for the full disk: the operating system refuses the write itself."""
    writers = {
        "safetensors": lambda folder: save_file({"w": torch.ones(2000)}, folder / "model.safetensors"),
        "tokenizers": lambda folder: Tokenizer(WordLevel({str(n): n for n in range(999)}, unk_token="0")).save(
            str(folder / "tokenizer.json")
        ),
        "python": lambda folder: (folder / "config.json").write_text("x" * 9000) and None,
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageError) as caught:
            save(tmp_path, 1, CheckpointParts(agents={"actor": writers[library]}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"{tmp_path / 'step_000001'}: cannot be used: File too large" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_a_checkpoint_belongs_to_comes_back(tmp_path: Path) -> None:
    parts = _parts()
    parts = CheckpointParts(agents=parts.agents, critics=parts.critics, state=STATE, identity={"workflow": {"a": [1]}})
    assert identity_of(save(tmp_path, 1, parts)) == {"workflow": {"a": [1]}}


def test_weights_that_are_not_those_of_the_checkpoint_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "run", 1, _parts())
    again = Path(shutil.copytree(path, tmp_path / "again"))
    assert differing(path, again) == ()
    save_file({"actor": torch.zeros(20)}, again / "agent_actor" / "model.safetensors")
    save_file({"more": torch.ones(1)}, again / "agent_actor" / "more.safetensors")
    (again / "notes.txt").write_text("no weights")
    assert differing(path, again) == ("agent_actor/model.safetensors", "agent_actor/more.safetensors")


def test_a_manifest_whose_content_was_changed_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1, _parts())
    manifest = json.loads((path / "MANIFEST.json").read_text())
    manifest["content"]["step"] = 2
    (path / "MANIFEST.json").write_text(json.dumps(manifest))
    with pytest.raises(StorageError, match=r"MANIFEST\.json: is not what was written"):
        step_of(path)
