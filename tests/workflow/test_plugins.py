"""User code: found from the workflow's folder, loaded once as a real module, faults told with what was tried."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dagrl.errors import DagrlError, PluginError
from dagrl.runtime.code_files import code_files
from dagrl.workflow import plugins
from dagrl.workflow import signatures as sig
from tests.workflow_files import TEAM, changed, faults, load

CODE = """
from dataclasses import dataclass
import helper_of_plugins_test

@dataclass
class Card:
    number: int = helper_of_plugins_test.NUMBER

class Outer:
    class Inner:
        pass

def make():
    return Card()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "helper_of_plugins_test.py").write_text("NUMBER = 41\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    return tmp_path


def test_a_file_is_loaded_once_and_its_objects_pickle(folder: Path) -> None:
    make = plugins.load("code.py:make", folder)
    card = make()
    assert card.number == 41
    assert pickle.loads(pickle.dumps(card)) == card
    assert plugins.load("./code.py:Card", folder) is type(card)
    assert plugins.load(f"{folder}/deep/../code.py:make", Path("/")) is make
    assert plugins.load("code.py:Outer.Inner", folder).__qualname__ == "Outer.Inner"


def test_a_file_is_looked_for_beside_the_workflow_then_in_the_cwd_then_above(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = folder / "deep" / "er"
    assert plugins.resolve_path("code.py", base) == folder / "code.py"
    other = folder / "elsewhere"
    other.mkdir()
    (other / "code.py").write_text("x = 1\n")
    monkeypatch.chdir(other)
    assert plugins.resolve_path("code.py", base) == other / "code.py"
    (base / "code.py").write_text("x = 2\n")
    assert plugins.resolve_path("code.py", base) == base / "code.py"


def test_modules_go_by_dotted_name_with_colon_or_dot(folder: Path) -> None:
    assert plugins.load("os.path:join", folder) is plugins.load("os.path.join", folder)
    (folder / "in_folder_module.py").write_text("def f(): pass\n")
    assert callable(plugins.load("in_folder_module:f", folder))


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("cod.py:make", "did you mean 'code.py'"),
        ("code.py:mak", "did you mean 'make'"),
        ("code.py", "write code.py:Name"),
        ("code.py:", "is not path"),
        ("nothing", "is not path"),
        ("no_such_package.module:f", "no module 'no_such_package'"),
        ("os.path:joyn", "no 'joyn'"),
        ("broken.py:f", "broken.py:2"),
        ("raising.py:f", "ZeroDivisionError"),
        ("leaving.py:f", "SystemExit"),
        ("missing.py:f", "no_such_library"),
    ],
)
def test_failures_name_what_was_tried(folder: Path, ref: str, words: str) -> None:
    (folder / "broken.py").write_text("\ndef f(:\n")
    (folder / "raising.py").write_text("\n\n1 / 0\n")
    (folder / "leaving.py").write_text("raise SystemExit(3)\n")
    (folder / "missing.py").write_text("import no_such_library\n")
    with pytest.raises(PluginError) as caught:
        plugins.load(ref, folder)
    assert words in str(caught.value)


def test_the_line_of_the_users_exception_is_named_and_nothing_half_loaded_stays(folder: Path) -> None:
    file = folder / "raising.py"
    file.write_text("\n\n1 / 0\n")
    with pytest.raises(PluginError) as caught:
        plugins.load_module("raising.py", folder)
    assert caught.value.where == f"{file}:3"
    file.write_text("x = 1\n")
    assert plugins.load_module("raising.py", folder).x == 1


def test_siirls_environments_find_their_scorers_where_siirl_is_not_installed(folder: Path) -> None:
    (folder / "their_env.py").write_text(
        "from siirl.utils.reward_score.math import compute_score\n"
        "from siirl.utils.reward_score.prime_code import compute_score as score_code\n"
    )
    script = (
        "from pathlib import Path\nfrom dagrl.workflow.plugins import load_module\n"
        f"m = load_module('their_env.py', Path({str(folder)!r}))\n"
        r"print(m.compute_score('so \\boxed{7}', '7'), m.compute_score('\\boxed{8}', '7'))"
        "\ntests = {'inputs': [''], 'outputs': ['7']}"
        "\nprint(*(m.score_code(f'```python\\nprint({n})\\n```', tests)[0] for n in (7, 8)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [[float(number) for number in line.split()] for line in done.stdout.splitlines()] == [[1.0, 0.0]] * 2


# Signatures


def test_the_published_forms_pass() -> None:
    def pre(tokenizer, prompt_id, **kwargs): ...
    def pre_obs(tokenizer, prompt_id, obs, **kwargs): ...
    async def pre_all(tokenizer, prompt_id, obs=None, inputs=None, trajectory=None, template=""): ...
    def post(tokenizer, prompt_id, response_id, **kwargs): ...

    sig.check_pre_process(pre, {"pre_chat_template": "x"})
    sig.check_pre_process(pre_obs, {"pre_chat_template": "x"})
    sig.check_pre_process(pre_all, {"template": "x"})
    sig.check_post_process(post, {"post_chat_template": "x"})
    sig.check_reward(lambda data_source, solution_str, ground_truth, extra_info: 1.0)
    sig.check_reward(lambda trajectory, bonus: 1.0, {"bonus": 2})
    sig.check_when(lambda trajectory: True)
    sig.check_compute(lambda batch, config: batch)


class _Env:
    def reset(self): ...
    def step(self, actions, ground_truth): ...


class _AsyncEnv:
    def __init__(self, rounds=1): ...
    async def reset(self, prompt=None): ...
    async def step(self, actions, ground_truth, **kwargs): ...


class _BareEnv:
    def step(self, actions): ...


@pytest.mark.parametrize(("env", "kwargs"), [(_Env, {}), (_AsyncEnv, {"rounds": 3}), (_BareEnv, {})])
def test_environments_of_all_published_forms_pass(env: type, kwargs: dict[str, int]) -> None:
    sig.check_env_class(env, kwargs)


class _NoStep:
    def reset(self): ...


class _Needy:
    def reset(self, board): ...
    def step(self, actions, ground_truth): ...


class _Narrow:
    def step(self): ...


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: sig.check_pre_process(lambda tokenizer: 1), "too many positional"),
        (lambda: sig.check_pre_process(lambda tokenizer, prompt_id: 1, {"template": "x"}), "template"),
        (lambda: sig.check_pre_process(lambda tokenizer, prompt_id, needed: 1), "needed"),
        (lambda: sig.check_post_process(lambda tokenizer, prompt_id: 1), "response_id"),
        (lambda: sig.check_pre_process(5), "not a function"),
        (lambda: sig.check_env_class(_NoStep), "no method 'step'"),
        (lambda: sig.check_env_class(_Needy), "board"),
        (lambda: sig.check_env_class(_Narrow), "cannot be called"),
        (lambda: sig.check_env_class(_Env, {"rounds": 1}), "rounds"),
        (lambda: sig.check_env_class(len), "not a class"),
        (lambda: sig.check_reward(lambda answer: 1.0), "compute_score"),
        (lambda: sig.check_when(lambda: True), "function(trajectory)"),
        (lambda: sig.check_compute(lambda batch: batch), "function(batch, config)"),
    ],
)
def test_what_cannot_be_called_is_refused_with_the_right_form(check: object, words: str) -> None:
    with pytest.raises(DagrlError) as caught:
        check()  # type: ignore[operator]
    assert words in str(caught.value)


# In a workflow

HOOKED = changed(
    TEAM,
    ("dependencies: [scout]\n", "dependencies: [scout]\n    agent_options:\n      process_path: hooks.py\n"
     "      pre_process_kwargs: {cue: '?'}\n      env_path: [envs.py:Env]\n      when: hooks.py:often\n"),
)  # fmt: skip
HOOKS = "def pre_process(tokenizer, prompt_id, cue): return prompt_id\ndef often(trajectory): return True\n"
ENVS = "class Env:\n    def step(self, actions, ground_truth): return None, 1.0, True\n"


def test_a_workflow_loads_its_plugins_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "envs.py").write_text(ENVS)
    assert load(tmp_path, HOOKED, "rollout.rewards_with_env=true", load_plugins=True).nodes


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("pre_process(", "preprocess(", "E301", "neither pre_process nor post_process"),
        (", cue)", ")", "E302", "cue"),
        ("often(trajectory)", "often()", "E302", "function(trajectory)"),
        ("class Env:", "class Environ:", "E301", "did you mean 'Environ'"),
        ("def step(self, actions", "def stop(self, actions", "E302", "no method 'step'"),
        ("class Env:", "import nothing_like_this\nclass Env:", "E301", "nothing_like_this"),
    ],
)
def test_faults_of_plugins_are_findings_at_the_line_that_names_them(
    tmp_path: Path, old: str, new: str, code: str, words: str
) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS.replace(old, new))
    (tmp_path / "envs.py").write_text(ENVS.replace(old, new))
    found = faults(tmp_path, HOOKED, load_plugins=True)
    assert [finding.code for finding in found] == [code]
    assert words in found[0].render()
    assert found[0].line is not None
    assert re.search("hooks.py|envs.py", HOOKED.splitlines()[found[0].line - 1])


SCORED = changed(TEAM, ("node_type: REWARD\n", "node_type: REWARD\n    agent_options:\n      rewards: PARTS\n"))


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ("[{fn: overlong, kwargs: {max_tokens: 9}}]", "E302", "buffer_tokens"),
        ("[{fn: repetition, kwargs: {m: 9}}]", "E302", "'m'"),
        ("[{fn: judge, kwargs: {url: 'http://127.0.0.1:1'}}]", "E302", "url and model"),
        ("[{fn: scores.py:nobody}]", "E301", "scores.py"),
        ("[{fn: scores.py:score, kwargs: {b: 1}}]", "E302", "'b'"),
    ],
)
def test_faults_of_a_list_of_rewards_are_findings_at_it(tmp_path: Path, parts: str, code: str, words: str) -> None:
    (tmp_path / "scores.py").write_text("def score(trajectory, a=1): return 1.0\n")
    text = SCORED.replace("PARTS", parts)
    (found,) = faults(tmp_path, text, load_plugins=True)
    assert found.code == code and words in found.render()
    assert found.line is not None and "rewards:" in text.splitlines()[found.line - 1]


def test_own_rewards_of_a_list_are_found_from_the_file_that_names_them_and_are_part_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "scores.py").write_text("def score(trajectory, path): return 1.0\n")
    (tmp_path / "base" / "base.yaml").write_text(
        SCORED.replace("PARTS", "[{fn: scores.py:score, kwargs: {path: scores.py}}, {fn: repetition}]")
    )
    workflow = load(tmp_path, "extends: base/base.yaml\n", load_plugins=True)
    own = next(node for node in workflow.learn if node.node_id == "judge").options.rewards[0]
    assert own.fn == f"{tmp_path}/base/scores.py:score" and own.kwargs == {"path": "scores.py"}
    assert [path.name for path in code_files(workflow)] == ["scores.py"]
