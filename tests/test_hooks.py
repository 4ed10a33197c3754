"""Hooks: what they are given, what they may give back, and what becomes of their faults."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from dagrl.backends.scripted import ScriptedTokenizer
from dagrl.errors import DagrlError, PluginError, UserCodeError
from dagrl.hooks import Condition, Hooks, HookScene
from dagrl.types import Task, Trajectory
from dagrl.workflow.spec import AgentOptions

TOKENIZER = ScriptedTokenizer()
SCENE = HookScene(trajectory=Trajectory(task=Task(task_id="t7", prompt="Q"), sample=2, step=0), inputs={"a": ["hi"]})


@pytest.fixture
def make(tmp_path):
    """`make(text of process.py, timeout_s=…, **agent options)` gives the hooks."""

    def build(text, timeout_s=20.0, name="process.py", **options):
        path = tmp_path / name
        path.write_text(text)
        return Hooks(AgentOptions(process_path=str(path), **options), tmp_path, timeout_s=timeout_s)

    return build


def pre(hooks, ids=(70, 71), obs=None, scene=SCENE):
    return asyncio.run(hooks.pre(TOKENIZER, ids, obs, scene))


def post(hooks, ids=(70, 71), response=(72,)):
    return asyncio.run(hooks.post(TOKENIZER, ids, response, SCENE))


def test_without_hooks_ids_stay_and_the_response_is_added(tmp_path):
    hooks = Hooks(AgentOptions(), tmp_path)
    assert pre(hooks) == (70, 71)
    assert post(hooks) == (70, 71, 72)
    assert not hooks.has_pre
    assert not hooks.takes_inputs


@pytest.mark.parametrize("prefix", ["def", "async def"])
def test_sync_and_async_hooks_get_tokenizer_ids_obs_and_their_keywords(make, prefix):
    hooks = make(
        f"{prefix} pre_process(tokenizer, prompt_id, obs, extra):\n"
        "    return prompt_id + obs + tokenizer.encode(extra)\n"
        f"{prefix} post_process(tokenizer, prompt_id, response_id, extra):\n    return response_id + [extra]\n",
        pre_process_kwargs={"extra": "!"},
        post_process_kwargs={"extra": 9},
    )
    assert pre(hooks, obs=[80]) == (70, 71, 80, *TOKENIZER.encode("!"))
    assert post(hooks) == (72, 9)


def test_siirls_hook_gets_obs_among_its_keywords(make):
    hooks = make("def pre_process(tokenizer, prompt_id, **kwargs):\n    return prompt_id + (kwargs['obs'] or [99])\n")
    assert pre(hooks) == (70, 71, 99)
    assert pre(hooks, obs=[80]) == (70, 71, 80)


def test_a_hook_need_not_take_obs(make):
    assert pre(make("def pre_process(tokenizer, prompt_id):\n    return prompt_id\n"), obs=[80]) == (70, 71)


def test_inputs_and_trajectory_come_to_those_who_name_them(make):
    hooks = make(
        "def pre_process(tokenizer, prompt_id, inputs, trajectory):\n"
        "    return [len(inputs['a'][0]), trajectory.sample]\n"
    )
    assert hooks.takes_inputs
    assert pre(hooks) == (2, 2)


def test_hooks_get_copies(make):
    hooks = make(
        "def pre_process(tokenizer, prompt_id, obs):\n    prompt_id.clear()\n    obs.clear()\n    return [1]\n"
    )
    ids, obs = [70], [80]
    pre(hooks, ids, obs)
    assert (ids, obs) == ([70], [80])


def test_imports_beside_the_file_and_dataclasses_work(make, tmp_path):
    (tmp_path / "beside_hooks.py").write_text("NUMBER = 5\n")
    hooks = make(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom beside_hooks import NUMBER\n\n"
        "@dataclass\nclass State:\n    ids: list[int]\n\n"
        "def pre_process(tokenizer, prompt_id, obs):\n    return State(prompt_id).ids + [NUMBER]\n"
    )
    assert pre(hooks) == (70, 71, 5)


class Index(int):
    pass


@pytest.mark.parametrize("value", [[1, 2], (1, 2), [np.int64(1), np.int32(2)], [Index(1), 2]])
def test_ids_may_be_any_whole_numbers(make, value):
    hooks = make(
        "def pre_process(tokenizer, prompt_id, obs, value):\n    return value\n", pre_process_kwargs={"value": value}
    )
    ids = pre(hooks)
    assert ids == (1, 2)
    assert {type(one) for one in ids} == {int}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        5,
        {"input_ids": [1]},
        [1.0],
        [True],
        [np.bool_(True)],
        [np.float32(1)],
        ["1"],
        [None],
        [[1]],
        [-1],
        [len(TOKENIZER)],
        [10**30],
        np.array([1, 2]),
        torch.tensor([1, 2]),
        [torch.tensor(1)],
        range(3),
    ],
)
@pytest.mark.parametrize("hook", ["pre_process", "post_process"])
def test_what_a_hook_must_not_give_back(make, hook, value):
    names = {"pre_process": "tokenizer, prompt_id, obs", "post_process": "tokenizer, prompt_id, response_id"}[hook]
    hooks = make(f"def {hook}({names}, value):\n    return value\n", **{f"{hook}_kwargs": {"value": value}})
    with pytest.raises(UserCodeError) as caught:
        pre(hooks) if hook == "pre_process" else post(hooks)
    assert caught.value.kind == "bad_return"
    assert f"process.py:{hook}" in str(caught.value)
    assert "task 't7', sample 2" in str(caught.value)


@pytest.mark.parametrize("prefix", ["def", "async def"])
@pytest.mark.parametrize(
    "statement",
    [
        "raise ValueError('bad')",
        "raise SystemExit(3)",
        "raise KeyboardInterrupt",
        "import json; json.loads('{')",
        "pre_process.x",
    ],
)
def test_whatever_a_hook_raises_names_its_line(make, prefix, statement):
    hooks = make(f"{prefix} pre_process(tokenizer, prompt_id, obs):\n    {statement}\n")
    with pytest.raises(UserCodeError) as caught:
        pre(hooks)
    assert caught.value.kind == "raised"
    assert "process.py:2 in pre_process" in str(caught.value)


def test_a_message_that_cannot_be_shown_is_no_second_fault(make):
    hooks = make(
        "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError\n"
        "def pre_process(tokenizer, prompt_id, obs):\n    raise Odd\n"
    )
    with pytest.raises(UserCodeError, match="Odd"):
        pre(hooks)


@pytest.mark.parametrize(
    "sleep", ["def {}:\n    import time; time.sleep(30)", "async def {}:\n    import asyncio; await asyncio.sleep(30)"]
)
def test_a_hook_without_end_is_given_up_and_the_next_call_works(make, sleep):
    text = sleep.format("post_process(tokenizer, prompt_id, response_id)")
    hooks = make(text + "\ndef pre_process(tokenizer, prompt_id, obs):\n    return prompt_id\n", timeout_s=0.2)
    with pytest.raises(UserCodeError) as caught:
        post(hooks)
    assert caught.value.kind == "timeout"
    assert pre(hooks) == (70, 71)


def test_hooks_run_one_after_the_other_and_waiting_does_not_count_as_their_time(make):
    hooks = make(
        "import time\nbusy = []\n"
        "def pre_process(tokenizer, prompt_id, obs):\n"
        "    busy.append(1); most = len(busy); time.sleep(0.05); busy.pop(); return [most]\n",
        timeout_s=0.3,
    )

    async def main():
        return await asyncio.gather(*(hooks.pre(TOKENIZER, [1], None, SCENE) for _ in range(8)))

    assert asyncio.run(main()) == [(1,)] * 8


def test_outside_the_main_thread_hooks_are_refused_because_nothing_could_end_them(make):
    hooks = make("def pre_process(tokenizer, prompt_id, obs):\n    return prompt_id\n")
    with ThreadPoolExecutor(1) as pool, pytest.raises(DagrlError, match="main thread"):
        pool.submit(pre, hooks).result()


def test_a_hook_that_swallows_every_exception_is_given_up_all_the_same(make):
    text = "def pre_process(tokenizer, prompt_id, obs):\n    while True:\n        try:\n            n = 0\n"
    hooks = make(text + "            while True: n += 1\n        except Exception:\n            pass\n", timeout_s=0.2)
    with pytest.raises(UserCodeError) as caught:
        pre(hooks)
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("x = 1\n", {}, "neither pre_process nor post_process"),
        ("pre_process = 5\n", {}, "not a function"),
        ("def pre_process(tokenizer):\n    pass\n", {}, "cannot be called"),
        ("def pre_process(tokenizer, prompt_id, obs, cue):\n    pass\n", {}, "'cue'"),
        ("def pre_process(tokenizer, prompt_id, obs):\n    pass\n", {"pre_process_kwargs": {"cue": 1}}, "'cue'"),
        ("def post_process(tokenizer, prompt_id):\n    pass\n", {}, "cannot be called"),
        ("def pre_process(:\n", {}, "syntax"),
        ("import nowhere_to_be_found\n", {}, "nowhere_to_be_found"),
    ],
)
def test_hooks_that_cannot_work_are_refused_when_they_are_loaded(make, text, options, words):
    with pytest.raises(PluginError) as caught:
        make(text, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(("value", "holds"), [(True, True), (False, False), (np.bool_(False), False)])
def test_a_condition_says_yes_or_no(tmp_path, value, holds):
    assert asyncio.run(condition(tmp_path, value).holds(SCENE)) is holds


@pytest.mark.parametrize("value", [None, 1, "yes", []])
def test_a_condition_that_says_neither_is_a_fault(tmp_path, value):
    with pytest.raises(UserCodeError) as caught:
        asyncio.run(condition(tmp_path, value).holds(SCENE))
    assert caught.value.kind == "bad_return"


def condition(folder, value):
    """`when` that gives what the trajectory's task holds."""
    (folder / "when.py").write_text("def gives(trajectory):\n    return trajectory.task.ground_truth\n")
    SCENE.trajectory.task = replace(SCENE.trajectory.task, ground_truth=value)
    return Condition("when.py:gives", folder)
