"""A run folder is new, locked, and tells what was run without naming the machine or its user."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from datetime import datetime
from pathlib import Path

import pytest

from dagrl.errors import DagrlError, StorageError
from dagrl.runtime.run_folder import RunFolder, create_run_folder, read_status
from dagrl.runtime.storage import replacing, write_text

NOON = datetime(2026, 1, 2, 12, 0, 0)


def test_runs_of_the_same_second_get_folders_of_their_own_and_latest_points_at_the_last(tmp_path: Path) -> None:
    folders = [create_run_folder(tmp_path, "marft", now=NOON) for _ in range(3)]
    assert [folder.path.name for folder in folders] == ["20260102-120000", "20260102-120000-2", "20260102-120000-3"]
    assert (tmp_path / "marft" / "latest").resolve() == folders[-1].path.resolve()


def test_a_given_folder_may_be_new_or_empty_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty", "deep/er"):
        assert create_run_folder(tmp_path, "marft", run_dir=tmp_path / name).path == tmp_path / name
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "note").write_text("mine")
    with pytest.raises(DagrlError, match="is not empty"):
        create_run_folder(tmp_path, "marft", run_dir=tmp_path / "used")
    with pytest.raises(DagrlError, match="is a file"):
        create_run_folder(tmp_path, "marft", run_dir=tmp_path / "used" / "note")
    assert (tmp_path / "used" / "note").read_text() == "mine"


@pytest.mark.parametrize("dag_id", ["a/b", "..", ".hidden", "a\0b", ""])
def test_a_dag_id_that_would_leave_the_folder_is_refused(tmp_path: Path, dag_id: str) -> None:
    with pytest.raises(DagrlError, match="cannot name a folder"):
        create_run_folder(tmp_path, dag_id)


def test_a_run_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "marft")
    with pytest.raises(DagrlError, match="another process is writing"):
        RunFolder(folder.path)
    folder.close()
    RunFolder(folder.path).close()


def test_the_workflow_is_kept_as_resolved_and_as_written(tmp_path: Path) -> None:
    original = tmp_path / "marft.yaml"
    original.write_bytes(b"dag_id: marft  # mine\r\n")
    folder = create_run_folder(tmp_path, "marft")
    folder.record_workflow(
        original, resolved="dag_id: marft\n", overrides=["a.b=1", "c=2"], origins={"dag_id": "w.yaml:1"}
    )
    assert (folder.path / "workflow.yaml").read_text() == "dag_id: marft\n"
    assert (folder.path / "workflow.original.yaml").read_bytes() == original.read_bytes()
    digest = hashlib.sha256(original.read_bytes()).hexdigest()
    assert (folder.path / "workflow.original.yaml.sha256").read_text() == f"{digest}\n"
    assert (folder.path / "overrides.txt").read_text() == "a.b=1\nc=2\n"


def test_code_of_the_same_name_from_two_folders_is_kept_apart(tmp_path: Path) -> None:
    base, other = tmp_path / "flow", tmp_path / "other"
    for place, text in ((base, "one"), (base / "envs", "two"), (other, "three")):
        place.mkdir()
        (place / "process.py").write_text(text)
    folder = create_run_folder(tmp_path, "marft")
    files = [base / "process.py", base / "envs" / "process.py", other / "process.py", base / "process.py"]
    folder.record_code(files, base)
    hashes = json.loads((folder.path / "code" / "hashes.json").read_text())
    kept = {(folder.path / "code" / place).read_text(): digest for place, digest in hashes.items()}
    assert kept == {text: hashlib.sha256(text.encode()).hexdigest() for text in ("one", "two", "three")}
    assert str(tmp_path) not in json.dumps(hashes)


def test_versions_name_neither_the_host_nor_the_users_folder(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "marft")
    folder.record_versions(seed=7, argv=["dagrl", "run", f"{Path.home()}/marft.yaml"])
    text = (folder.path / "versions.json").read_text()
    kept = json.loads(text)
    assert (kept["seed"], kept["argv"]) == (7, ["dagrl", "run", "~/marft.yaml"])
    assert kept["packages"]["torch"] is not None
    assert socket.gethostname() not in text


def test_the_status_is_replaced_whole(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, "marft")
    folder.write_status("running", 3, total_steps=9)
    folder.write_status("done", 9)
    status = read_status(folder.path)
    assert (status["state"], status["step"], status["pid"], "total_steps" in status) == ("done", 9, os.getpid(), False)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(StorageError, match="the disk is full") as caught, replacing(tmp_path / "a.txt") as temp:
        temp.write_text("half")
        raise OSError(28, "No space left on device")
    assert caught.value.exit_code == 5
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.txt", "old")]


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/marft"):
        create_run_folder(tmp_path / "file", "marft")
