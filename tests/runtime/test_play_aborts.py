"""Play that ends when it is enough: the order of tasks counts, never who is done first; nothing is left open."""

from __future__ import annotations

import asyncio
import random

import pytest

from dagrl.environments.runner import EnvRunner
from dagrl.errors import FaultBudgetError
from dagrl.nodes.usage import Usage
from dagrl.runtime.player import Player
from tests.play_builders import SEED, Team, env, rollout, task, workflow

TASKS = [task(f"Q{at}", f"t{at}") for at in range(6)]
CHAIN = (rollout("a"), rollout("b", "a", group=1))
WORLD = """
import os, time
LOG = os.path.join(os.path.dirname(__file__), "log.txt")

def note(word):
    with open(LOG, "a") as log:
        log.write(word + "\\n")

class World:
    def __init__(self):
        time.sleep(0.02)
        note("made")

    def reset(self, prompt=None):
        self.prompt = prompt

    def step(self, actions):
        note("step " + self.prompt)
        time.sleep(0.2 if self.prompt > "Q1" else 0.0)
        return "on", 0.0, False

    def close(self):
        note("closed")
"""


def played(flow, *, delay=None, say=lambda prompt, request: f"{request.seed % 1000}", enough=3, runner=None, told=None):
    """Until `enough` tasks were told; the result, and what it used."""
    usage, seen = Usage(), [] if told is None else told

    def is_enough(samples):
        seen.append([(one.task.task_id, one.sample) for one in samples])
        return len(seen) == enough

    player = Player(flow, Team(say, delay=delay).models, runner or EnvRunner(), run_seed=SEED, usage=usage)
    return asyncio.run(player.play_until(TASKS, step=0, n=2, is_enough=is_enough)), usage


def said(result):
    return [(one.task.task_id, one.sample, [turn.response_text for turn in one.turns]) for one in result.trajectories]


@pytest.mark.parametrize("slowest", ["first", "last", "any"])
def test_it_plays_the_first_tasks_until_it_is_enough_whoever_is_fastest(tmp_path, slowest):
    flow, draw = workflow(tmp_path, CHAIN), random.Random(2)
    delays = {
        "first": lambda request: 0.2 if request.agent_group == 0 and not draw.randrange(3) else 0.0,
        "last": lambda request: 0.05 * request.agent_group,
        "any": lambda request: draw.random() * 0.05,
    }
    told: list[object] = []
    calm, used = played(flow)
    hasty, also_used = played(flow, delay=delays[slowest], told=told)
    assert [told, calm.num_tasks] == [[[(f"t{at}", sample) for sample in range(2)] for at in range(3)], 3]
    assert said(calm) == said(hasty)
    assert used == also_used, "what was aborted is not counted, however far it was"
    assert used.generated_tokens[0] == sum(len(one.turns[0].response_ids) for one in calm.trajectories)


def test_where_it_is_never_enough_all_are_played(tmp_path):
    flow = workflow(tmp_path, CHAIN)
    result, _ = played(flow, enough=99)
    assert (result.num_tasks, len(result.trajectories)) == (6, 12)


def test_what_is_behind_the_end_does_not_start_where_there_is_no_room(tmp_path):
    asked = []

    def say(prompt, request):
        asked.append(prompt)
        return "x"

    played(workflow(tmp_path, (rollout("a"),), max_concurrency=2), say=say, enough=2)
    assert {prompt[:2] for prompt in asked} <= {"Q0", "Q1", "Q2"}


FAULTS = """
def post_process(tokenizer, prompt_id, response_id):
    if "bad" in tokenizer.decode(response_id):
        raise ValueError("no use")
    return prompt_id + response_id
"""


def test_faults_count_up_to_the_end_only(tmp_path):
    """Task 1 breaks, and so do 3, 4 and 5, at once, while task 0 is slow."""
    flow = workflow(tmp_path, (rollout("a", process_path="h.py"),), files={"h.py": FAULTS}, max_failed_fraction=0.2)
    say = lambda prompt, request: "fine" if prompt[:2] in ("Q0", "Q2") else "bad"  # noqa: E731
    result, _ = played(flow, say=say)
    assert [(one.task.task_id, one.sample) for one in result.failed] == [("t1", 0), ("t1", 1)]
    assert [one.task.task_id for one in result.trajectories] == ["t0", "t0", "t2", "t2"]
    with pytest.raises(FaultBudgetError):
        played(flow, say=say, enough=99)


def test_environments_of_what_is_aborted_are_closed_once_each(tmp_path):
    nodes = (rollout("a"), env("world", "a", env_path="w.py:World"))
    flow = workflow(tmp_path, nodes, files={"w.py": WORLD}, max_rounds=2)
    runner = EnvRunner(num_workers=2)
    try:
        result, used = played(flow, enough=2, runner=runner)
    finally:
        runner.close()
    log = (tmp_path / "log.txt").read_text().split("\n")
    assert result.num_tasks == 2
    assert log.count("made") == log.count("closed") == 12
    assert log.count("step Q0") == log.count("step Q1") == 4
    assert used.env_calls == 4 * 3, "a reset and two steps for each of four samples"
