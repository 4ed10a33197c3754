"""Workers killed by the dozen, stopped, or holding everyone up: no wrong score, the others unharmed, all counted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagrl.environments.runner import EnvRunner
from dagrl.errors import TimeUp
from dagrl.limits import time_limit
from dagrl.rewards.equivalence import EquivalenceChecker, Reply, _Worker
from dagrl.runtime import player
from dagrl.runtime.player import PlayResult
from tests.play_builders import Team, play, rollout, task, workflow

pytestmark = pytest.mark.resilience

ENDLESS = "9^{9^{9^{9}}}"
NUM_IDLE_DEATHS = 14
NUM_BUSY_QUESTIONS = 3
"""Each is asked twice, so it costs two workers: 20 deaths in all."""
PATIENCE_S = 120.0
NUM_DEATHS = 20
ENVIRONMENT = """
import ctypes, os, signal, time

class Env:
    def reset(self, prompt=None):
        self.name = prompt

    def step(self, actions, ground_truth):
        if self.name.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.name == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.name == "hold":
            ctypes.PyDLL(None).sleep(1000)
        if self.name == "exit":
            os._exit(0)
        if self.name == "crash":
            ctypes.string_at(0)
        time.sleep(0.01)
        return None, float(len(actions[0])), True
"""


def workers() -> list[int]:
    """Answer checkers that this process has started and that live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            is_worker = b"equivalence_worker.py" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if is_worker and int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def cpu_ticks(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])
    except OSError:
        return 0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def kill_while_idle(checker: EquivalenceChecker) -> None:
    """Kills the worker between two questions and looks at the answers around it."""
    (worker,) = workers()
    os.kill(worker, signal.SIGKILL)
    until(lambda: worker not in workers())
    assert checker.check(gold="x+1", answer="1+x") is True
    assert checker.check(gold="x+1", answer="x+2") is False


def kill_while_busy(checker: EquivalenceChecker) -> None:
    """Kills the worker, and the one that takes its place, while each thinks about the same question."""
    verdicts: list[bool | None] = []
    asking = threading.Thread(target=lambda: verdicts.append(checker.check(gold="9", answer=ENDLESS)))
    killed = set(workers())
    (worker,) = killed
    before = cpu_ticks(worker)
    asking.start()
    until(lambda: cpu_ticks(worker) > before + 20)
    os.kill(worker, signal.SIGKILL)
    until(lambda: len(set(workers()) - killed) == 1)
    (second,) = set(workers()) - killed
    until(lambda: checker.num_replaced > 0 and second in workers() and cpu_ticks(second) > 0)
    until(lambda: _is_asked(second))
    os.kill(second, signal.SIGKILL)
    asking.join(PATIENCE_S)
    assert verdicts == [None], "unknown, which is not wrong"
    assert checker.check(gold="x+1", answer="1+x") is True


def _is_asked(pid: int) -> bool:
    """Whether it has set the limit of CPU time that belongs to a question."""
    try:
        limits = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return False
    return "unlimited" not in next(line for line in limits.splitlines() if line.startswith("Max cpu time")).split()[3]


def kill_twenty(checker: EquivalenceChecker) -> None:
    assert checker.check(gold="x+1", answer="1+x") is True
    for _ in range(NUM_IDLE_DEATHS):
        kill_while_idle(checker)
    for _ in range(NUM_BUSY_QUESTIONS):
        kill_while_busy(checker)
    assert checker.num_replaced == NUM_IDLE_DEATHS + 2 * NUM_BUSY_QUESTIONS == NUM_DEATHS, "witness: all died"


@pytest.fixture
def checkers() -> Iterator[Callable[[type[EquivalenceChecker]], EquivalenceChecker]]:
    made: list[EquivalenceChecker] = []

    def make(kind: type[EquivalenceChecker]) -> EquivalenceChecker:
        made.append(kind(1, cpu_limit_s=600.0, wall_limit_s=600.0))
        return made[-1]

    yield make
    for checker in made:
        checker.close()


def test_twenty_deaths_of_the_answer_checker_give_no_wrong_score(checkers) -> None:
    kill_twenty(checkers(EquivalenceChecker))


def test_twin_a_checker_that_keeps_its_dead_worker_turns_red(checkers) -> None:
    class Keeping(EquivalenceChecker):
        def _ask(self, gold: str, answer: str) -> Reply:
            worker = self._idle.get()
            worker = _Worker(self._start_limit_s) if worker is None else worker
            try:
                return worker.ask(gold, answer, self._cpu_limit_s, self._wall_limit_s)
            finally:
                self._idle.put(worker)

    with pytest.raises(AssertionError):
        kill_twenty(checkers(Keeping))


def test_an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_question(checkers) -> None:
    checker = checkers(EquivalenceChecker)
    assert checker.check(gold="x+1", answer="1+x") is True
    with pytest.raises(TimeUp), time_limit(0.2):
        checker.check(gold="9", answer=ENDLESS)
    assert checker.num_replaced == 1
    assert [checker.check(gold="x+1", answer=answer) for answer in ("1+x", "x+2")] == [True, False]


def team() -> Team:
    return Team(lambda prompt, request: "a" * (1 + request.seed % 5))


def played(folder: Path, names: list[str], *, timeout_s: float = 120.0) -> PlayResult:
    nodes = [rollout("a", env_path="env.py:Env")]
    flow = workflow(folder, nodes, files={"env.py": ENVIRONMENT}, max_rounds=1, rewards_with_env=True)
    runner = EnvRunner(num_workers=2, timeout_s=timeout_s)
    try:
        return play(flow, team(), runner, [task(name, name) for name in names])
    finally:
        runner.close()


def scores(result: PlayResult) -> dict[str, float]:
    return {one.task.prompt: one.reward for one in result.trajectories}


GOOD = [f"good {number}" for number in range(12)]


def kill_environments(folder: Path) -> None:
    expected = scores(played(folder, GOOD))
    assert len(expected) == len(GOOD)
    doomed = [f"die {number}" for number in range(NUM_DEATHS)]
    mixed = [name for pair in zip(doomed, GOOD) for name in pair] + doomed[len(GOOD) :]
    result = played(folder, mixed)
    assert scores(result) == expected
    assert {one.task.prompt: one.kind for one in result.failed} == dict.fromkeys(doomed, "env_worker_died")
    assert result.metrics["env/retried"] >= NUM_DEATHS, "witness: each died, alone at last"


def test_twenty_deaths_of_environments_cost_those_that_die_and_nobody_else(tmp_path: Path) -> None:
    kill_environments(tmp_path)


def test_twin_without_the_second_try_the_innocent_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "_is_unlucky", lambda played: False)
    with pytest.raises(AssertionError):
        kill_environments(tmp_path)


@pytest.mark.parametrize(("name", "kind"), [("stop", "env_timeout"), ("hold", "env_timeout"),
                                            ("exit", "env_worker_died"), ("crash", "env_worker_died")])  # fmt: skip
def test_a_process_that_is_silent_or_gone_takes_nobody_along(tmp_path: Path, name: str, kind: str) -> None:
    """Stopped by a signal, or one environment holding the interpreter's lock: found within the time limit."""
    result = played(tmp_path, [*GOOD[:3], name, *GOOD[3:]], timeout_s=5.0)
    assert {one.task.prompt: one.kind for one in result.failed} == {name: kind}
    assert scores(result) == scores(played(tmp_path, GOOD))
    assert result.metrics["env/workers_replaced"] >= 1.0
