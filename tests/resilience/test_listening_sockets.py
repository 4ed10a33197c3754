"""Nothing of dagrl listens anywhere but on loopback: every process of `dagrl run` and `dagrl view` is looked at."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command import start
from tests.run_builders import make_run
from tests.tiny_project import write_project

pytestmark = pytest.mark.resilience

LISTEN = "0A"
PATIENCE_S = 180.0
WAITING = '''
import pathlib, time

class Calling:
    """Waits in its step until the test has looked."""

    def __init__(self, rounds=1):
        pass

    def reset(self, prompt=None):
        return None

    def step(self, actions, ground_truth):
        here = pathlib.Path(__file__).parent
        (here / "waiting").touch()
        while not (here / "looked").exists():
            time.sleep(0.05)
        return None, 1.0, True
'''


def tree(root: int) -> set[int]:
    """`root` and all that descends from it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(pids: set[int]) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Addresses that the processes listen on."""
    own: set[str] = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(handle)
            except OSError:
                continue
            if target.startswith("socket:["):
                own.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in own:
                found.append(_address(fields[1].split(":")[0]))
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes addresses as words of 32 bits in the order of the machine."""
    raw = bytes.fromhex(text)
    swapped = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4)) if sys.byteorder == "little" else raw
    return ipaddress.ip_address(swapped)


def off_loopback(pids: set[int]) -> list[str]:
    return [str(address) for address in listening(pids) if not address.is_loopback]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.1)


def test_a_run_with_its_environments_listens_nowhere_else(tmp_path: Path) -> None:
    workflow = write_project(tmp_path, total_steps=1)
    (tmp_path / "environment.py").write_text(WAITING)
    words = ("data.train_batch_size=2", "data.val_files=[]", "trainer.val_without=[]", "rollout.env_timeout_s=600")
    process = start("run", "--workflow", str(workflow), "--run-dir", "out", *words, cwd=tmp_path)
    try:
        wait_for(tmp_path / "waiting", process)
        pids = tree(process.pid)
        assert len(pids) >= 2, "witness: the run and the process of its environments"
        assert off_loopback(pids) == []
        (tmp_path / "looked").touch()
        printed, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, printed
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_the_page_about_runs_listens_on_loopback(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", rewards=[0.5]).close()
    process = start("view", "--port", "0", cwd=tmp_path)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        pids = tree(process.pid)
        assert len(listening(pids)) == 1, "witness: it does listen"
        assert off_loopback(pids) == []
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")])
def test_twin_a_socket_open_to_all_is_found(family: socket.AddressFamily, address: str) -> None:
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    with server:
        assert off_loopback({os.getpid()}) == [address]
    with socket.create_server(("127.0.0.1", 0)):
        assert off_loopback({os.getpid()}) == []
