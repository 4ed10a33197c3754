"""Environments in worker processes: what hangs is killed, what dies is replaced, nothing else is harmed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagrl.environments import process
from dagrl.environments.protocol import EnvRequest, Seats
from dagrl.environments.runner import EnvRunner
from dagrl.errors import UserCodeError

SEATS = Seats(actors=(0,))
ENVS = '''
import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time


class Echo:
    """Says where it runs and what it is asked for."""

    def __init__(self, word="ok"):
        self.word, self.count = word, 0

    def reset(self, prompt=None):
        return prompt

    def step(self, actions, ground_truth):
        self.count += 1
        print("noise", "x" * 10000)
        action = actions[0]
        if action == "sleep":
            time.sleep(1000)
        if action == "spin":
            while True:
                pass
        if action == "exit":
            print("about to go")
            os._exit(3)
        if action == "segfault":
            ctypes.string_at(0)
        if action == "system_exit":
            sys.exit(5)
        if action == "read":
            input()
        if action == "raise":
            import json
            json.loads("{")
        if action == "stop_guardian":
            os.kill(os.getppid(), signal.SIGSTOP)
            return str(os.getpid()), 0.0, False
        if action == "daemon":
            return start_daemon(), 0.0, False
        if action == "pid":
            return str(os.getpid()), 0.0, False
        if action == "torch":
            return str("torch" in sys.modules), 0.0, False
        if action == "thread":
            return str(threading.get_ident()), 0.0, False
        return f"{self.word} {self.count}", 1.0, action == "last"


def start_daemon():
    """The id of a process that is nobody's child and in a session of its own."""
    reader, writer = os.pipe()
    code = f"import os, time; os.fork() and os._exit(0); os.setsid(); os.write({writer}, b'%d' % os.getpid())"
    subprocess.Popen([sys.executable, "-c", code + "; time.sleep(1000)"], pass_fds=[writer]).wait()
    os.close(writer)
    return os.read(reader, 100).decode()


class Slow(Echo):
    async def step(self, actions, ground_truth):
        await asyncio.sleep(0.05)
        return super().step(actions, ground_truth)


class AsyncExit:
    async def reset(self):
        self.loop = asyncio.get_running_loop()

    async def step(self, actions):
        raise SystemExit(2)


class Heavy:
    def __init__(self):
        asyncio.get_running_loop()

    async def step(self, actions):
        return None, 0.0, True


class Closing(Echo):
    def close(self):
        with open(self.word, "a") as file:
            file.write("closed")
'''


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("envs")
    (folder / "e.py").write_text(ENVS)
    return folder


@pytest.fixture(scope="module")
def shared():
    runner = EnvRunner(num_workers=1, timeout_s=20)
    yield runner
    runner.close()


def ask(*actions):
    return EnvRequest(actions=actions, ground_truth=None, seats=SEATS)


async def say(env, action):
    return (await env.step(ask(action))).last_text


async def fault(awaitable):
    with pytest.raises(UserCodeError) as caught:
        await awaitable
    return caught.value


def test_an_object_keeps_its_state_and_its_thread(shared, base):
    async def main():
        one = await shared.open("e.py:Echo", base, {"word": "one"})
        two = await shared.open("e.py:Slow", base, {"word": "two"})
        assert (await one.reset({"prompt": "P", "seed": 1}, SEATS)).last_text == "P"
        words = await asyncio.gather(*(say(env, "x") for env in (one, two, one, two)))
        assert sorted(words) == ["one 1", "one 2", "two 1", "two 2"]
        assert await say(one, "thread") == await say(one, "thread") != await say(two, "thread")
        for env in (one, two):
            await env.close()

    asyncio.run(main())


def test_the_runner_works_from_one_event_loop_after_another(shared, base):
    async def main():
        env = await shared.open("e.py:Echo", base, {})
        answer = await say(env, "x")
        await env.close()
        return answer

    assert [asyncio.run(main()) for _ in range(2)] == ["ok 1", "ok 1"]


def test_environments_live_elsewhere_and_load_no_torch_of_their_own(shared, base, capfd):
    async def main():
        env = await shared.open("e.py:Echo", base, {})
        assert int(await say(env, "pid")) != os.getpid()
        assert await say(env, "torch") == "False"
        await env.close()

    asyncio.run(main())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("raise", ["Echo.step raised JSONDecodeError", "e.py:", "in step"]),
        ("system_exit", ["Echo.step raised SystemExit: 5"]),
        ("read", ["EOFError"]),
    ],
)
def test_what_is_raised_is_told_with_the_users_line(shared, base, action, words):
    async def main():
        env = await shared.open("e.py:Echo", base, {})
        error = await fault(env.step(ask(action)))
        assert error.kind == "raised"
        assert all(word in str(error) for word in words), str(error)
        assert await say(env, "x") == "ok 2"
        await env.close()

    asyncio.run(main())


def test_a_class_with_async_methods_is_made_on_an_event_loop(shared, base):
    async def main():
        env = await shared.open("e.py:Heavy", base, {})
        assert (await env.reset({}, SEATS)).texts == {}
        assert (await env.step(ask("x"))).terminated
        await env.close()
        leaver = await shared.open("e.py:AsyncExit", base, {})
        await leaver.reset({}, SEATS)
        assert "SystemExit" in str(await fault(leaver.step(ask("x"))))
        assert await say(await shared.open("e.py:Echo", base, {}), "x") == "ok 1"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("ref", "kwargs", "words"),
    [
        ("e.py:Missing", {}, "Missing"),
        ("nowhere.py:Echo", {}, "nowhere.py"),
        ("e.py:Echo", {"wrong": 1}, "wrong"),
        ("e.py:Echo", {"word": lambda: None}, "picklable"),
    ],
)
def test_what_cannot_be_made_says_why(shared, base, ref, kwargs, words):
    error = asyncio.run(fault(shared.open(ref, base, kwargs)))
    assert words in str(error)


def test_close_is_called_once(shared, base, tmp_path):
    async def main():
        env = await shared.open("e.py:Closing", base, {"word": str(tmp_path / "mark")})
        await env.reset({}, SEATS)
        await env.close()

    asyncio.run(main())
    assert (tmp_path / "mark").read_text() == "closed"


@pytest.mark.parametrize(("action", "computed"), [("sleep", "it waited"), ("spin", "it computed")])
def test_a_call_without_end_is_given_up_and_its_process_replaced(base, action, computed):
    runner = EnvRunner(num_workers=1, timeout_s=0.6)

    async def main():
        stuck = await runner.open("e.py:Echo", base, {})
        other = await runner.open("e.py:Echo", base, {})
        pid = int(await say(other, "pid"))
        error = await fault(stuck.step(ask(action)))
        assert error.kind == "timeout"
        assert computed in str(error)
        assert await say(other, "x") == "ok 2", "the others of its process go on"
        new = await runner.open("e.py:Echo", base, {})
        assert int(await say(new, "pid")) != pid, "nothing new is put into a process that holds a lost call"
        await stuck.close()
        assert is_alive(pid)
        await other.close()
        assert not is_alive(pid)
        assert await say(new, "x") == "ok 2"

    asyncio.run(main())
    assert runner.num_replaced == 1
    runner.close()


def test_after_the_grace_the_others_go_too(base):
    runner = EnvRunner(num_workers=1, timeout_s=0.5, grace_s=0.2)

    async def main():
        stuck = await runner.open("e.py:Echo", base, {})
        other = await runner.open("e.py:Echo", base, {})
        await fault(stuck.step(ask("sleep")))
        while runner.num_replaced == 0:
            await asyncio.sleep(0.02)
        error = await fault(other.step(ask("x")))
        assert error.kind == "worker_died"
        assert "did not come back" in str(error)
        await other.close()

    asyncio.run(main())
    runner.close()


@pytest.mark.parametrize(("action", "words"), [("exit", "exit code 3"), ("segfault", f"signal {int(signal.SIGSEGV)}")])
def test_a_process_that_dies_is_told_and_replaced(base, action, words):
    runner = EnvRunner(num_workers=1, timeout_s=20)

    async def main():
        doomed = await runner.open("e.py:Echo", base, {})
        neighbour = await runner.open("e.py:Echo", base, {})
        error = await fault(doomed.step(ask(action)))
        assert error.kind == "worker_died"
        assert words in str(error)
        assert (await fault(neighbour.step(ask("x")))).kind == "worker_died"
        for env in (doomed, neighbour):
            await env.close()
        assert await say(await runner.open("e.py:Echo", base, {}), "x") == "ok 1"

    asyncio.run(main())
    runner.close()


def test_closing_the_runner_leaves_no_process(base):
    runner = EnvRunner(num_workers=2, timeout_s=20)

    async def main():
        envs = [await runner.open("e.py:Echo", base, {}) for _ in range(2)]
        return [int(await say(env, "pid")) for env in envs]

    pids = asyncio.run(main())
    assert len(set(pids)) == 2
    runner.close()
    runner.close()
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("end", ["close", "exit"])
def test_a_daemon_of_an_environment_ends_with_its_process(base, end):
    runner = EnvRunner(num_workers=1, timeout_s=60)

    async def main():
        env = await runner.open("e.py:Echo", base, {})
        pid = int(await say(env, "daemon"))
        assert is_alive(pid), "there was nothing that could have been left"
        if end == "exit":
            await fault(env.step(ask("exit")))
            assert not is_alive(pid)
        return pid

    pid = asyncio.run(main())
    runner.close()
    assert not is_alive(pid)


def test_a_guardian_that_does_not_answer_is_killed_and_the_worker_with_it(base, monkeypatch):
    monkeypatch.setattr(process, "_BURIAL_S", 0.1)
    runner = EnvRunner(num_workers=1, timeout_s=60)

    async def main():
        env = await runner.open("e.py:Echo", base, {})
        return int(await say(env, "stop_guardian"))

    pid = asyncio.run(main())
    runner.close()
    deadline = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_workers_die_with_the_run(base):
    program = f"""
import asyncio, os, signal
from pathlib import Path
from dagrl.environments.protocol import EnvRequest, Seats
from dagrl.environments.runner import EnvRunner
async def main():
    env = await EnvRunner(num_workers=1, timeout_s=20).open("e.py:Echo", Path({str(base)!r}), {{}})
    request = EnvRequest(actions=("pid",), ground_truth=None, seats=Seats(actors=(0,)))
    print((await env.step(request)).last_text, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, timeout=60)
    pid = int(ended.stdout)
    for _ in range(100):
        if not is_alive(pid):
            break
        time.sleep(0.05)
    assert not is_alive(pid)


def is_alive(pid):
    """True unless the process is gone or waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
