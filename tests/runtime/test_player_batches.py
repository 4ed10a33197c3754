"""A batch in play: order, seeds, sampling, budgets, faults; nothing depends on who is done first."""

import asyncio
import random
from contextlib import nullcontext
from dataclasses import replace

import pytest

from dagrl.backends.scripted import TurnKey, replay, turn_seed
from dagrl.environments.runner import EnvRunner
from dagrl.errors import DagrlError, FaultBudgetError
from dagrl.types import FinishReason, StopReason
from tests.play_builders import SEED, Team, only, play, rollout, task, workflow


class Idle:
    """What a generator has besides `generate`."""

    def begin_batch(self):
        pass

    def away(self):
        return nullcontext()

    def metrics(self):
        return {}

    async def close(self):
        pass


CHAIN = (rollout("a"), rollout("b", "a", group=1))


def plain(result):
    """A result without its clocks."""
    return [
        replace(one, seconds=0.0, turns=[replace(turn, seconds=0.0) for turn in one.turns])
        for one in result.trajectories
    ]


def tasks(count):
    return [task(f"Q{at}", f"t{at}") for at in range(count)]


def test_the_order_of_completion_changes_nothing(tmp_path):
    diamond = [
        rollout("a"),
        rollout("b", "a", group=1),
        rollout("c", "a", num_parallel=2),
        rollout("d", "b", "c", group=2),
    ]
    flow = workflow(tmp_path, diamond, max_rounds=2)
    draw = random.Random(3)
    say = lambda prompt, request: f"{request.seed % 1000}"  # noqa: E731
    calm = play(flow, Team(say), EnvRunner(), tasks(3), n=2)
    hasty = play(flow, Team(say, delay=lambda request: draw.random() * 0.02), EnvRunner(), tasks(3), n=2)
    assert plain(calm) == plain(hasty)


def test_results_are_in_the_order_of_tasks_then_samples(tmp_path):
    flow = workflow(tmp_path, CHAIN)
    team = Team(lambda prompt, request: "x", delay=lambda request: 0.02 if len(team.generator.requests) < 4 else 0.0)
    result = play(flow, team, EnvRunner(), tasks(3), n=2, step=5)
    assert [(one.task.task_id, one.sample) for one in result.trajectories] == [
        (f"t{at}", sample) for at in range(3) for sample in range(2)
    ]
    assert {one.step for one in result.trajectories} == {5}


def test_a_fast_trajectory_does_not_wait_for_a_slow_one(tmp_path):
    order = []

    def say(prompt, request):
        order.append((prompt[:2], request.agent_group))
        return "x"

    released = asyncio.Event()

    class Gate(Team):
        async def hold(self, request):
            if self.text(0, request.prompt_ids).startswith("Q0") and request.agent_group == 0:
                await released.wait()
            elif request.agent_group == 1:
                released.set()

    team = Gate(say)
    generate = team.generator.generate

    class Held(Idle):
        async def generate(self, request):
            await team.hold(request)
            return await generate(request)

    team.models.generator = Held()
    result = play(workflow(tmp_path, CHAIN), team, EnvRunner(), tasks(2))
    assert len(result.trajectories) == 2
    assert order == [("Q1", 0), ("Q1", 1), ("Q0", 0), ("Q0", 1)]


def test_no_more_trajectories_than_allowed_are_under_way(tmp_path):
    under_way = []

    class Counting(Idle):
        def __init__(self, inner):
            self.inner, self.now = inner, 0

        async def generate(self, request):
            self.now += 1
            under_way.append(self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await self.inner.generate(request)

    team = Team(lambda prompt, request: "x")
    team.models.generator = Counting(team.generator)
    play(workflow(tmp_path, CHAIN, max_concurrency=2), team, EnvRunner(), tasks(5))
    assert max(under_way) == 2


def test_every_generation_has_the_seed_of_what_it_is_for(tmp_path):
    flow = workflow(tmp_path, [rollout("a", num_parallel=2)], max_rounds=2)
    team = Team(lambda prompt, request: "x")
    play(flow, team, EnvRunner(), tasks(2), n=2, step=3)
    expected = {
        turn_seed(SEED, TurnKey(node_id="a", round=round, task_id=f"t{at}", sample=sample, step=3, branch=branch))
        for at in range(2)
        for sample in range(2)
        for round in range(2)
        for branch in range(2)
    }
    assert {request.seed for request in team.generator.requests} == expected
    assert len(team.generator.requests) == len(expected) == 16


def test_a_replay_says_what_is_written_for_each_turn(tmp_path):
    flow = workflow(tmp_path, CHAIN)
    texts = {TurnKey(node_id="a", task_id="t0"): "first", TurnKey(node_id="b", task_id="t0"): "second"}
    script = replay(texts, SEED)
    trajectory = only(play(flow, Team(lambda prompt, request: script(request)), EnvRunner()))
    assert [turn.response_text for turn in trajectory.turns] == ["first", "second"]
    with pytest.raises(DagrlError, match="no text"):
        play(flow, Team(lambda prompt, request: script(request)), EnvRunner(), step=1)


def test_a_nodes_own_sampling_and_the_validation_sampling_are_used(tmp_path):
    nodes = [rollout("a", sampling={"temperature": 0.5, "seed": 11}), rollout("b", "a", group=1)]
    flow = workflow(tmp_path, nodes, val_kwargs={"temperature": 0.0, "max_tokens": 9})
    team = Team(lambda prompt, request: "x")
    trained = only(play(flow, team, EnvRunner()))
    checked = only(play(flow, team, EnvRunner(), sampling="val"))
    assert [turn.temperature for turn in trained.turns] == [0.5, 1.0]
    assert checked.turns[1].temperature == 1.0, "log-probs of greedy responses are taken at temperature 1"
    params = [request.params for request in team.generator.requests]
    assert [one.temperature for one in params[1:]] == [1.0, flow.play[0].val_sampling.temperature, 0.0]
    assert params[3].max_tokens == 9
    assert team.generator.requests[0].seed == turn_seed(11, TurnKey(node_id="a", task_id="t0"))


def test_a_turn_keeps_what_the_engine_said(tmp_path):
    trajectory = only(
        play(workflow(tmp_path, [rollout("a", sampling={"max_tokens": 3})]), Team(lambda p, r: "long"), EnvRunner())
    )
    (turn,) = trajectory.turns
    assert turn.response_text == "lon"
    assert turn.finish_reason is FinishReason.LENGTH
    assert turn.rollout_logprobs == (-1.0, -1 / 2, -1 / 3)
    assert turn.transcript_ids == (*turn.prompt_ids, *turn.response_ids)


def test_an_empty_response_is_a_turn_like_any_other(tmp_path):
    team = Team(lambda prompt, request: "")
    team.tokenizers[0].eos_token_id = None
    trajectory = only(play(workflow(tmp_path, CHAIN), team, EnvRunner()))
    assert [turn.response_ids for turn in trajectory.turns] == [(), ()]
    assert trajectory.turns[1].prompt_ids == trajectory.turns[0].prompt_ids


def test_the_budget_shortens_the_response_and_then_ends_the_trajectory(tmp_path):
    # "QQ" leaves 3 of 5 tokens, fewer than max_tokens; the second agent has no room at all
    flow = workflow(tmp_path, CHAIN, max_context_len=5, sampling={"max_tokens": 4})
    trajectory = only(play(flow, Team(lambda prompt, request: "aaaa"), EnvRunner(), [task("QQ")]))
    assert [turn.response_text for turn in trajectory.turns] == ["aaa"]
    assert trajectory.turns[0].finish_reason is FinishReason.LENGTH
    assert trajectory.stop_reason is StopReason.MAX_CONTEXT
    assert trajectory.truncated


def test_a_prompt_is_never_cut(tmp_path):
    flow = workflow(tmp_path, CHAIN, max_context_len=4, sampling={"max_tokens": 3})
    result = play(flow, Team(lambda prompt, request: "x"), EnvRunner(), [task("four"), task("abc", "t1")])
    assert [(one.kind, one.task.prompt) for one in result.failed] == [("prompt_too_long", "four")]
    assert "'a'" in result.failed[0].message
    assert "4 tokens" in result.failed[0].message
    assert len(result.trajectories[0].turns[0].prompt_ids) == 3


HOOK = """
def pre_process(tokenizer, prompt_id, obs):
    if tokenizer.decode(prompt_id) == "Q0":
        raise ValueError("no")
    return prompt_id
"""


def test_a_fault_drops_one_trajectory_and_leaves_the_others_alone(tmp_path):
    flow = workflow(tmp_path, [rollout("a", process_path="p.py")], files={"p.py": HOOK}, max_failed_fraction=0.5)
    result = play(flow, Team(lambda prompt, request: "x"), EnvRunner(), tasks(2), n=2)
    assert [one.task.task_id for one in result.trajectories] == ["t1", "t1"]
    assert [(one.task.task_id, one.sample, one.kind) for one in result.failed] == [
        ("t0", 0, "pre_process_raised"),
        ("t0", 1, "pre_process_raised"),
    ]


def test_too_many_faults_stop_the_run_and_say_which(tmp_path):
    flow = workflow(tmp_path, [rollout("a", process_path="p.py")], files={"p.py": HOOK}, max_failed_fraction=0.4)
    with pytest.raises(FaultBudgetError, match=r"of 4 trajectories failed[\s\S]*pre_process_raised[\s\S]*p\.py:4"):
        play(flow, Team(lambda prompt, request: "x"), EnvRunner(), tasks(2), n=2)


def test_an_error_of_the_engine_is_not_a_fault_of_a_trajectory(tmp_path):
    def say(prompt, request):
        raise DagrlError("the engine is gone")

    with pytest.raises(DagrlError, match="engine is gone"):
        play(workflow(tmp_path, CHAIN), Team(say), EnvRunner(), tasks(3))


def test_messages_without_a_chat_template_are_refused(tmp_path):
    team = Team(lambda prompt, request: "x")
    team.tokenizers[0].chat_template = None
    with pytest.raises(DagrlError, match="no chat template"):
        play(workflow(tmp_path, CHAIN), team, EnvRunner(), [task([{"role": "user", "content": "Q"}])])
