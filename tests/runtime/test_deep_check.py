"""`validate --deep`: every part is tried once, what fails is a finding with its place, what works is a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagrl.runtime.deep_check import deep_check
from dagrl.runtime.memory_estimate import count_weights, estimate
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.sections import ActorSpec, CriticSpec, ModelSpec
from tests.workflow_files import CHAIN, changed, write

HOOKS = """
from string import Template

def pre_process(tokenizer, prompt_id, obs=None, pre_chat_template="${prompt}"):
    return tokenizer.encode(Template(pre_chat_template).safe_substitute(prompt=tokenizer.decode(prompt_id)))

def post_process(tokenizer, prompt_id, response_id, post_chat_template=""):
    return prompt_id + tokenizer.encode(post_chat_template) + response_id
"""

ENV = """
from siirl.utils.reward_score.math import compute_score

class CheckingEnv:
    def __init__(self):
        pass

    def reset(self):
        return None

    async def step(self, actions, ground_truth):
        score = compute_score(actions[-1], ground_truth)
        return [f"{action} This answer is judged." for action in actions], score, score == 1
"""

ROW = {"prompt": "2 + 3 = ?", "ground_truth": "5", "data_source": "sums"}
FLAGS = ("data.train_files=train.jsonl", "rollout.rewards_with_env=true")


def project(folder: Path, text: str = CHAIN, env: str = ENV) -> Path:
    (folder / "process.py").write_text(HOOKS)
    (folder / "checking_env.py").write_text(env)
    (folder / "train.jsonl").write_text(json.dumps(ROW) + "\n")
    return write(folder, text)


def test_a_project_in_siirls_form_is_tried_from_data_to_reward(tmp_path: Path) -> None:
    report = deep_check(load_workflow(project(tmp_path), FLAGS, load_plugins=True))
    assert report.findings == []
    told = "\n".join(report.lines)
    assert "train data: 1 rows" in told
    assert "environment checking_env.py:CheckingEnv: reset and step work" in told
    assert "the right answer gives 1, junk gives 0" in told


def test_the_default_reward_knows_the_right_answer(tmp_path: Path) -> None:
    report = deep_check(load_workflow(project(tmp_path), FLAGS[:1]))
    assert report.findings == []
    assert any("reward of node score: the right answer gives 1" in line for line in report.lines)


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("score = compute_score(actions[-1], ground_truth)", "raise KeyError('answer')", "E501", "KeyError"),
        ("score = compute_score(actions[-1], ground_truth)", "score = 1.0", "W501", "1 for junk"),
        ("score == 1", "'maybe'", "E501", "maybe"),
        ("return None", "return 5", "E501", "reset"),
    ],
)
def test_an_environment_that_fails_its_trial_is_a_finding(
    tmp_path: Path, old: str, new: str, code: str, words: str
) -> None:
    file = project(tmp_path, env=changed(ENV, (old, new)))
    found = deep_check(load_workflow(file, FLAGS)).findings
    assert [finding.code for finding in found] == [code]
    assert words in found[0].message
    assert found[0].line is not None


def test_data_and_models_that_are_not_there_are_findings(tmp_path: Path) -> None:
    file = project(tmp_path)
    (tmp_path / "empty").mkdir()
    flags = ("data.train_files=nothing.jsonl", "model.path=empty", *FLAGS[1:])
    found = deep_check(load_workflow(file, flags)).findings
    assert {finding.code for finding in found} == {"E502", "E503"}


def test_a_reward_function_that_raises_is_a_finding(tmp_path: Path) -> None:
    text = changed(CHAIN, ("node_role: reward,", "node_role: reward, executable_ref: 'score.py:score',"))
    file = project(tmp_path, text)
    (tmp_path / "score.py").write_text("def score(data_source, solution_str, ground_truth, extra_info):\n    1 / 0\n")
    found = deep_check(load_workflow(file, FLAGS[:1])).findings
    assert [finding.code for finding in found] == ["E504"]
    assert "ZeroDivisionError" in found[0].message


def test_weights_are_counted_from_the_headers_of_their_files(tmp_path: Path) -> None:
    for number, shape in enumerate([[3, 4], [5]]):
        tensors = {f"w{number}": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
        entry = tensors | {"__metadata__": {"format": "pt"}}
        header = json.dumps(entry).encode()
        (tmp_path / f"{number}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert count_weights(tmp_path) == 17
    assert count_weights(tmp_path / "none") is None


def test_memory_is_sixteen_bytes_per_trained_weight_in_either_type() -> None:
    for dtype, reference in (("float32", 4), ("bfloat16", 2)):
        model = ModelSpec(path="m", dtype=dtype)
        group = AgentGroup(
            index=0, name="0", model=model, adapter=None, actor=ActorSpec(), is_trained=True, needs_reference=True,
            critic_owner=0, critic=CriticSpec(), critic_model=model,
        )  # fmt: skip
        got = estimate(group, 1000, 500)
        assert got.policy + got.training == 16_000
        assert (got.reference, got.critic) == (1000 * reference, 8000)
