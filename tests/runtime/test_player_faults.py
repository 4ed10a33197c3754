"""Environments that hang or kill their process, in a batch: their trajectories go, the others are unharmed."""

import pytest

from dagrl.environments.runner import EnvRunner
from dagrl.errors import FaultBudgetError
from tests.play_builders import Team, play, rollout, task, workflow

ENVS = """
import os
import time


class Guess:
    def __init__(self):
        self.said = []

    def reset(self, prompt=None):
        self.prompt = prompt

    def step(self, actions, ground_truth):
        if self.prompt == "hang":
            time.sleep(1000)
        if self.prompt == "die":
            os._exit(1)
        if self.prompt == "nan":
            return None, float("nan"), False
        self.said += actions
        return " ".join(self.said), 1.0, len(self.said) == 2
"""


@pytest.fixture
def flow(tmp_path):
    nodes = [rollout("a", env_path="e.py:Guess")]
    return workflow(tmp_path, nodes, files={"e.py": ENVS}, max_rounds=3, rewards_with_env=True)


def batch(*prompts):
    return [task(prompt, f"t{at}") for at, prompt in enumerate(prompts)]


def team():
    return Team(lambda prompt, request: f"{request.seed % 100}")


def shown(result):
    return [
        (one.task.task_id, one.sample, one.reward, [turn.response_text for turn in one.turns])
        for one in result.trajectories
    ]


@pytest.mark.parametrize(("prompt", "kind"), [("hang", "env_timeout"), ("nan", "env_bad_return")])
def test_a_fault_takes_its_own_trajectory_only(flow, prompt, kind):
    runner = EnvRunner(num_workers=1, timeout_s=1.0)
    result = play(flow, team(), runner, batch("x", prompt, "y"))
    runner.close()
    assert [one.kind for one in result.failed] == [kind]
    assert [one.task.task_id for one in result.trajectories] == ["t0", "t2"]
    assert len(result.failed[0].turns) == 1


def test_a_dead_process_is_replaced_within_the_batch(flow):
    runner = EnvRunner(num_workers=1, timeout_s=20)
    result = play(flow, team(), runner, batch("die"))
    assert [one.kind for one in result.failed] == ["env_worker_died"]
    again = play(flow, team(), runner, batch("x"))
    runner.close()
    assert len(again.trajectories) == 1
    assert again.metrics["env/workers_replaced"] == 1.0


def test_the_number_of_workers_changes_nothing(flow):
    results = []
    for num_workers in (1, 3):
        runner = EnvRunner(num_workers=num_workers, timeout_s=20)
        results.append(shown(play(flow, team(), runner, batch("x", "y", "z"), n=2)))
        runner.close()
    assert results[0] == results[1]
    assert len(results[0]) == 6


LOG = """
class Log:
    def __init__(self, path):
        self.path = path
        self.note("open")

    def note(self, word):
        with open(self.path, "a") as file:
            file.write(word + " ")

    def step(self, actions):
        return None, 0.0, True

    def close(self):
        self.note("close")
"""
REFUSES = """
def pre_process(tokenizer, prompt_id, obs):
    if tokenizer.decode(prompt_id) == "bad":
        raise ValueError("bad")
    return prompt_id
"""


def test_every_environment_is_closed_when_the_batch_is_given_up(tmp_path):
    log = tmp_path / "log"
    options = {"process_path": "p.py", "env_path": "l.py:Log", "env_kwargs": {"path": str(log)}}
    flow = workflow(
        tmp_path,
        [rollout("a", **options)],
        files={"l.py": LOG, "p.py": REFUSES},
        max_failed_fraction=0.0,
    )
    runner = EnvRunner(num_workers=1, timeout_s=20)
    slow = Team(lambda prompt, request: "x", delay=lambda request: 30.0)
    with pytest.raises(FaultBudgetError, match="pre_process_raised"):
        play(flow, slow, runner, batch("x", "y", "bad"))
    runner.close()
    words = log.read_text().split()
    assert words.count("open") == words.count("close") > 0
