"""Environments, hooks and rewards that do everything they must not: each costs its own sample and nothing else.

A case is a few lines of Python that the user's code runs when it meets the task of that name. All cases of a place are
played in one batch between tasks that behave, and those must come out as in a batch of their own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dagrl.environments import protocol
from dagrl.environments.runner import EnvRunner
from dagrl.experience import Experience, collate
from dagrl.nodes.reward import RewardNode
from dagrl.nodes.reward_parts import OneByOne, RewardPart
from dagrl.nodes.usage import Usage
from dagrl.rewards.runner import call_own_reward, call_reward
from dagrl.runtime.ledger import Ledger
from dagrl.runtime.player import PlayResult
from dagrl.types import FailedTrajectory, Trajectory
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.plugins import load
from tests.node_builders import node
from tests.play_builders import Team, play, rollout, task, workflow
from tests.stream_builders import trajectory, turn

pytestmark = pytest.mark.resilience

Cases = dict[str, str]
Scored = tuple[list[Trajectory], dict[str, str]]
"""A batch that the REWARD node went over, and why samples were dropped, by task."""

RAISES: Cases = {
    "ValueError": "raise ValueError('no')",
    "KeyError": "raise KeyError('no')",
    "deep": "return deep(0)",
    "SystemExit": "raise SystemExit(3)",
    "sys.exit": "sys.exit()",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "StopIteration": "raise StopIteration(1)",
    "StopAsyncIteration": "raise StopAsyncIteration",
    "CancelledError": "raise asyncio.CancelledError",
    "MemoryError": "raise MemoryError",
    "BaseException": "raise BaseException('no')",
    "group": "raise ExceptionGroup('no', [ValueError(1)])",
    "odd": "raise Odd",
    "surrogate": "raise ValueError('\\ud800')",
    "long": "raise ValueError('x' * 10**7)",
}
"""A name to lines that raise."""

HANGS: Cases = {
    "sleep": "time.sleep(1000)",
    "spin": "\nwhile True: pass",
    "regex": "re.match('(a+)+$', 'a' * 40 + 'b')",
    "C call": "ctypes.CDLL(None).sleep(1000)",
    "lock": "\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "socket": "\na, b = socket.socketpair()\na.recv(1)",
    "pipe": "\nr, w = os.pipe()\nos.read(r, 1)",
}

STATE: Cases = {
    "chdir": "os.chdir('/')",
    "SIGINT ignored": "signal_all(signal.SIGINT)",
    "SIGTERM ignored": "signal_all(signal.SIGTERM)",
    "alarm off": "\nif main(): signal.setitimer(signal.ITIMER_REAL, 0)",
    "seeds": "\nrandom.seed(0)\nnumpy.random.seed(0)",
    "threads": "\nfor _ in range(50): threading.Thread(target=time.sleep, args=(0.2,), daemon=True).start()",
    "flood": "print('x' * 5_000_000, flush=True)",
    "flood of errors": "print('x' * 5_000_000, file=sys.stderr, flush=True)",
    "environment": "os.environ['HOME'] = '/nowhere'",
    "own answer": "\nthing[:] = []",
}
"""What it does to the process before it answers as it should; the score must not change."""

TOOLS = '''
import asyncio, ctypes, os, random, re, signal, socket, sys, threading, time
import numpy

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("cannot be shown")

class Unshowable:
    def __repr__(self):
        raise RuntimeError("cannot be shown")

def deep(n):
    return deep(n + 1)

def main():
    return threading.current_thread() is threading.main_thread()

def signal_all(number):
    if main():
        signal.signal(number, signal.SIG_IGN)

def behave(cases, name, good, thing=None):
    """Runs the lines of a case; the value that they return, or `good`."""
    if name not in cases:
        return good
    lines = "\\n".join("    " + line for line in (cases[name] + "\\nreturn good").splitlines())
    scope = dict(globals())
    exec("def run(good, thing):\\n" + lines, scope)
    return scope["run"](good, thing)
'''
ENVIRONMENT = """
from tools import behave

CASES = {cases}

class Env:
    def reset(self, prompt=None):
        self.name = prompt
        return behave(CASES["reset"], prompt, None)

    def step(self, actions, ground_truth):
        return behave(CASES["step"], self.name, (None, 0.25 + len(actions[0]), True), actions)

    def close(self):
        behave(CASES["close"], self.name, None)
"""
HOOKS = """
from tools import behave

CASES = {cases}

def pre_process(tokenizer, prompt_id, obs=None, trajectory=None):
    return behave(CASES["pre"], trajectory.task.prompt, list(prompt_id), prompt_id)

def post_process(tokenizer, prompt_id, response_id, trajectory=None):
    return behave(CASES["post"], trajectory.task.prompt, prompt_id + response_id, prompt_id)

def when(trajectory):
    return behave(CASES["when"], trajectory.task.prompt, True, trajectory.turns)

async def pre_process_async(tokenizer, prompt_id, obs=None, trajectory=None):
    return behave(CASES["async"], trajectory.task.prompt, list(prompt_id), prompt_id)
"""
REWARD = """
from tools import behave

CASES = {cases}

def score(trajectory):
    return behave(CASES, trajectory.task.task_id, 0.5, trajectory.turns)
"""

BAD_STEPS = [
    "None", "1", "'text'", "()", "(None,)", "(None, 1.0)", "(None, 1.0, True, False, {}, 6)", "{}", "[]", "object()",
    "(None, None, True)", "(None, '1', True)", "(None, float('nan'), True)", "(None, float('inf'), True)",
    "(None, -float('inf'), True)", "(None, True, True)", "(None, 1j, True)", "(None, 1e308, True)",
    "(None, 10**400, True)", "(None, [1.0, 2.0], True)", "(None, [], True)", "(None, {5: 1.0}, True)",
    "(None, {}, True)", "(None, {'0': 1.0}, True)", "(None, numpy.ones((2, 2)), True)", "(None, numpy.nan, True)",
    "(None, Unshowable(), True)", "(None, b'1', True)", "(None, 1.0, None)", "(None, 1.0, 1)", "(None, 1.0, 'no')",
    "(None, 1.0, (True, False, True))", "(None, 1.0, numpy.ones(2))", "(None, 1.0, [None, None])", "(5, 1.0, True)",
    "(b'text', 1.0, True)", "(['a', 'b'], 1.0, True)", "({7: 'a'}, 1.0, True)", "({0: 5}, 1.0, True)",
    "(Unshowable(), 1.0, True)", "(numpy.ones(3), 1.0, True)", "(None, 1.0, True, 'late')",
    "(i for i in (None, 1, True))",
]  # fmt: skip
BAD_RESETS = [
    "5", "1.5", "True", "b'text'", "[1]", "['a', 'b']", "{7: 'a'}", "{0: 5}", "object()", "Unshowable()", "(1, 2, 3)",
    "numpy.ones(3)", "float('nan')", "{None: 'a'}", "{(0,): 'a'}", "set()", "[[]]", "lambda: 'x'", "type", "{0: None}",
]  # fmt: skip
BAD_IDS = [
    "None", "[]", "()", "'text'", "5", "[-1]", "[10**9]", "[1.5]", "['1']", "[None]", "[True]", "[[1]]", "{1: 2}",
    "{1, 2}",
    "b'ids'", "iter([1])", "(i for i in [1])", "[float('nan')]", "[1j]", "numpy.ones(3)", "numpy.bool_(True)",
    "[10**400]", "Unshowable()", "[Unshowable()]", "object()", "range(3)", "[numpy.float64(1)]", "[numpy.bool_(1)]",
    "behave", "[1, 2, '3']",
]  # fmt: skip
BAD_CONDITIONS = [
    "None", "1", "0", "'yes'", "[]", "[True]", "1.0", "float('nan')", "object()", "Unshowable()", "numpy.ones(2)",
    "numpy.float64(1)", "{}", "(True,)", "behave", "b''", "1j", "...", "NotImplemented", "range(1)",
]  # fmt: skip
BAD_SCORES = [
    "None", "True", "False", "'1'", "'nan'", "b'1'", "float('nan')", "float('inf')", "-float('inf')", "1e308", "-1e39",
    "10**400", "1j", "[]", "[1.0]", "(1.0,)", "{}", "{'acc': 1.0}", "{'score': None}", "{'score': 'x'}",
    "{'score': float('nan')}", "{'score': 1.0, 'length': float('inf')}", "{'score': True}", "{9: 1.0}", "{0: None}",
    "{0: float('nan')}", "{(0, 9): 1.0}", "{(0,): 1.0}", "{('a', 0): 1.0}", "{0: 1.0, 'note': 1.0}", "{True: 1.0}",
    "{None: 1.0}", "{1.5: 1.0}", "numpy.ones(2)", "numpy.nan", "numpy.bool_(True)", "object()", "Unshowable()",
    "(i for i in [1.0])", "asyncio.sleep(0)", "behave", "{'score': Unshowable()}",
]  # fmt: skip
GOOD = tuple(f"good {number}" for number in range(8))


def returning(values: list[str]) -> Cases:
    return {f"gives {value}": f"return {value}" for value in values}


def played_cases(place: str) -> Cases:
    bad = {"reset": BAD_RESETS, "step": BAD_STEPS, "pre": BAD_IDS, "post": BAD_IDS, "when": BAD_CONDITIONS, "async": []}
    return RAISES | returning(bad[place])


def behaving(result: PlayResult) -> dict[str, Any]:
    """What came of each task that behaves."""
    return {
        one.task.prompt: (one.reward, [(turn.response_text, turn.prompt_ids, turn.reward) for turn in one.turns])
        for one in result.trajectories
    }


class Stage:
    """Files of one kind of misbehaviour in a folder, and the batches played on them."""

    def __init__(self, folder: Path, cases: Mapping[str, Cases], *, timeout_s: float = 120.0) -> None:
        places = ("reset", "step", "close", "pre", "post", "when", "async")
        table = {place: dict(cases.get(place, {})) for place in places}
        files = {"tools.py": TOOLS, "env.py": ENVIRONMENT.format(cases=table)}
        hooks = HOOKS.format(cases=table)
        if "async" in cases:
            hooks = hooks.replace("def pre_process(", "def pre_process_plain(").replace(
                "pre_process_async", "pre_process"
            )
        options = {"process_path": "hooks.py", "when": "hooks.py:when", "env_path": "env.py:Env"}
        flow = [rollout("a", **options)]
        self._flow = workflow(folder, flow, files=files | {"hooks.py": hooks}, max_rounds=1, rewards_with_env=True,
                              hook_timeout_s=timeout_s)  # fmt: skip
        self._timeout_s = timeout_s
        self.failures = folder / "failures"

    def play(self, *names: str) -> PlayResult:
        runner = EnvRunner(num_workers=2, timeout_s=self._timeout_s)
        try:
            team = Team(lambda prompt, request: "ab" if request.seed % 2 else "abc")
            tasks = [task(name, f"t:{name}") for name in names]
            return play(self._flow, team, runner, tasks, failures_dir=self.failures)
        finally:
            runner.close()


def mixed(names: list[str]) -> list[str]:
    """`names` with those that behave spread among them."""
    order = [*names, *GOOD]
    random.Random(3).shuffle(order)
    return order


def expected_kind(name: str, kinds: str) -> str:
    """The word in the books: of `raised|bad_return` the first for what raises, the second for what gives nonsense."""
    return kinds.split("|")[name.startswith("gives")]


def settled(experience: Experience, failed: Sequence[FailedTrajectory]) -> dict[str, Any]:
    """The row of the books for a step of these samples, one of each task; what does not balance is an assertion."""
    ledger = Ledger(["a"], Usage())
    tasks = [one.task for one in (*experience.trajectories, *failed)]
    ledger.issue(0, tasks, 1)
    row = ledger.settle(0, experience, failed)
    ledger.check(len(tasks))
    return row


def check_dropped(result: PlayResult, cases: Cases, kinds: str) -> None:
    """Every case is dropped with its reason, and is in the books."""
    fates = {one.task.prompt: one.kind for one in result.failed}
    assert set(fates) == set(cases), set(fates) ^ set(cases)
    for name, fate in fates.items():
        assert fate.endswith(expected_kind(name, kinds)), (name, fate)
    experience = collate(list(result.trajectories))
    experience.note_update("policy", experience.turns_of([0], only_trained=True))
    row = settled(experience, result.failed)
    assert (row["trained"], len(row["dropped"])) == (len(GOOD), len(cases))
    assert {task_id.removeprefix("t:"): kind for _, task_id, _, kind in row["dropped"]} == fates


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """A run has its own handler of SIGINT, so a KeyboardInterrupt can only come from user code."""
    handler = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tasks that behave, alone."""
    return behaving(Stage(tmp_path_factory.mktemp("good"), {}).play(*GOOD))


@pytest.mark.parametrize("place", ["reset", "step", "pre", "post", "when", "async"])
def test_what_raises_or_gives_nonsense_is_dropped_alone(place: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    cases = played_cases(place)
    stage = Stage(tmp_path, {place: cases})
    result = stage.play(*mixed(list(cases)))
    check_dropped(result, cases, "raised|bad_return")
    assert behaving(result) == expected
    assert len(list(stage.failures.glob("*.json"))) == len(cases)


def test_a_close_that_raises_costs_nothing_but_is_counted(tmp_path: Path, expected: dict[str, Any]) -> None:
    result = Stage(tmp_path, {"close": RAISES}).play(*mixed(list(RAISES)))
    assert not result.failed and result.metrics["env/close_failed"] == len(RAISES)
    assert {name: fate for name, fate in behaving(result).items() if name in expected} == expected


@pytest.mark.parametrize("place", ["step", "reset"])
def test_environments_that_hang_are_found_and_the_others_finish(
    place: str, tmp_path: Path, expected: dict[str, Any]
) -> None:
    """All hang at the same time. A process that one of them holds is killed, and what lived in it played again."""
    result = Stage(tmp_path, {place: HANGS}, timeout_s=6.0).play(*mixed(list(HANGS)))
    check_dropped(result, HANGS, "env_timeout|")
    assert behaving(result) == expected


@pytest.mark.parametrize("place", ["pre", "post", "when", "async"])
def test_hooks_that_hang_are_found(place: str, tmp_path: Path) -> None:
    names = list(HANGS) if place == "pre" else ["sleep", "spin", "regex"]
    cases = {name: HANGS[name] for name in names}
    result = Stage(tmp_path, {place: cases}, timeout_s=0.5).play(*cases)
    assert {one.task.prompt for one in result.failed} == set(cases)
    assert all(one.kind.endswith("_timeout") for one in result.failed)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("place", ["step", "pre", "when"])
def test_what_user_code_does_to_its_process_changes_no_score(
    place: str, tmp_path: Path, expected: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    before = (os.getcwd(), *handlers, torch.get_num_threads(), threading.main_thread())
    result = Stage(tmp_path, {place: STATE}).play(*mixed(list(STATE)))
    capfd.readouterr()
    assert not result.failed
    fates = behaving(result)
    assert {name: fate for name, fate in fates.items() if name in expected} == expected
    if place != "step":  # an environment that empties its own actions has itself to blame for what it says
        assert {reward for reward, _ in fates.values()} <= {2.25, 3.25}
    now = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    assert (os.getcwd(), *now, torch.get_num_threads(), threading.main_thread()) == before


def scored(folder: Path, cases: Cases, *, timeout_s: float = 120.0) -> Scored:
    """One trajectory for each case and for each that behaves, through the REWARD node."""
    (folder / "tools.py").write_text(TOOLS)
    (folder / "score.py").write_text(REWARD.format(cases=cases))
    function = load("score.py:score", folder)
    judge = partial(call_own_reward, function, kwargs={}, timeout_s=timeout_s)
    parts = [RewardPart(judge=OneByOne(judge))]
    reward = RewardNode(node(NodeKind.REWARD), parts, reward_mode="chained", adds=False, max_failed_fraction=1.0)
    batch = [trajectory(name, [turn(0, 0, [5, 6])]) for name in mixed(list(cases))]
    experience = collate(batch)
    metrics = reward.run(experience, 0)
    experience.note_update("policy", experience.turns_of([0], only_trained=True))
    row = settled(experience, [])
    assert metrics["unknown"] == len(row["dropped"]) == sum(np.isnan(one.reward) for one in batch)
    assert row["trained"] + len(row["dropped"]) == len(batch)
    return batch, {task_id: kind for _, task_id, _, kind in row["dropped"]}


def check_scores(scored: Scored, cases: Cases, kinds: str) -> None:
    """Nobody got a score that the function did not give; a sample without one is not a sample with 0."""
    batch, dropped = scored
    assert set(dropped) == set(cases)
    for one in batch:
        name = one.task.task_id
        if name in cases:
            assert dropped[name] == f"reward_{expected_kind(name, kinds)}" and np.isnan(one.reward), (name, one.reward)
        else:
            assert one.reward == 0.5


def test_rewards_that_raise_or_give_nonsense_are_no_score(tmp_path: Path) -> None:
    cases = RAISES | returning(BAD_SCORES)
    check_scores(scored(tmp_path, cases), cases, "raised|bad_return")


def test_rewards_that_hang_are_found(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "score.py").write_text(REWARD.format(cases=HANGS))
    function = load("score.py:score", tmp_path)
    judge = partial(call_own_reward, function, kwargs={}, timeout_s=0.5)
    parts = [RewardPart(judge=OneByOne(judge))]
    reward = RewardNode(node(NodeKind.REWARD), parts, reward_mode="chained", adds=False, max_failed_fraction=1.0)
    batch = [trajectory(name, [turn(0, 0, [5, 6])]) for name in HANGS]
    reward.score(batch)
    assert [one.unscored for one in batch] == ["timeout"] * len(HANGS)
    assert all(np.isnan(one.reward) for one in batch)


def test_what_a_reward_does_to_the_process_changes_no_score(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = os.getcwd()
    batch, _ = scored(tmp_path, STATE)
    capfd.readouterr()
    assert [one.reward for one in batch] == [0.5] * len(batch) and all(one.turns for one in batch)
    assert os.getcwd() == folder and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_at_least_250_cases_are_played() -> None:
    places = [len(played_cases(place)) for place in ("reset", "step", "pre", "post", "when", "async")]
    hangs = 2 * len(HANGS) + len(HANGS) + 9 + len(HANGS)
    total = sum(places) + len(RAISES) + hangs + 4 * len(STATE) + len(RAISES) + len(BAD_SCORES)
    print(f"{total} cases of misbehaving user code")
    assert total >= 250


def test_twin_without_the_checks_of_returns_wrong_scores_come_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = returning(["True", "'1'", "1e308"])

    def unchecked(function: Any, one: Trajectory, **kwargs: Any) -> Any:
        from dagrl.rewards.runner import RewardResult

        return RewardResult(team=float(function(one)))

    monkeypatch.setattr(sys.modules[__name__], "call_own_reward", unchecked)
    with pytest.raises(AssertionError):
        check_scores(scored(tmp_path, cases), cases, "raised|bad_return")


def test_twin_without_the_time_limit_what_is_late_is_waited_for(tmp_path: Path) -> None:
    naps = {"nap": "time.sleep(15)"}
    (tmp_path / "limited").mkdir()
    limited = Stage(tmp_path / "limited", {"step": naps}, timeout_s=6.0).play(*mixed(["nap"]))
    check_dropped(limited, naps, "env_timeout|")
    waiting = Stage(tmp_path, {"step": naps}, timeout_s=3600.0).play(*mixed(["nap"]))
    with pytest.raises(AssertionError):
        check_dropped(waiting, naps, "env_timeout|")
    assert not waiting.failed and "nap" in {one.task.prompt for one in waiting.trajectories}


def test_twin_without_containment_the_process_is_changed(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "score.py").write_text(REWARD.format(cases=STATE))
    function = load("score.py:score", tmp_path)
    folder = os.getcwd()
    try:
        call_reward(function, trajectory("chdir", [turn(0, 0, [5])]))
        assert os.getcwd() != folder
    finally:
        os.chdir(folder)


def test_twin_without_the_numbers_check_an_environments_nan_is_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    seats = protocol.Seats(actors=(0,))
    monkeypatch.setattr(protocol, "_number", float)
    assert np.isnan(protocol.read_step((None, float("nan"), True), seats).rewards[0])


def test_a_hang_that_nothing_can_interrupt_ends_the_process_with_its_stacks(tmp_path: Path) -> None:
    """A deadlock inside C code, holding the interpreter's lock: no signal handler and no other thread can run."""
    import subprocess

    program = """
import ctypes, dagrl.limits
dagrl.limits._LAST_RESORT_FACTOR, dagrl.limits._LAST_RESORT_S = 1.0, 1.0
def stuck():
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex); libc.pthread_mutex_lock(mutex)
with dagrl.limits.time_limit(0.5):
    stuck()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and "in stuck" in ended.stderr, json.dumps(ended.stderr)
