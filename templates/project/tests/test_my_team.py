"""Everything that the project brings, tried without a model. `pytest` in the project's folder runs it."""

import json
from pathlib import Path

from envs.my_env import MyEnv
from process import post_process, pre_process
from reward import compute_score

from dagrl.environments.conformance import Trial, check_environment
from dagrl.workflow.graph import load_workflow

ROOT = Path(__file__).resolve().parents[1]


class Letters:
    """A tokenizer of one id per character."""

    def encode(self, text, add_special_tokens=True):
        return [ord(character) for character in text]


def test_the_workflow_is_right():
    workflow = load_workflow(ROOT / "workflow.yaml", load_plugins=True)
    assert workflow.warnings == ()


def test_the_environment_keeps_its_promises():
    assert check_environment(MyEnv, Trial(actions=("b", "b"), ground_truth="b")) == []
    assert check_environment(MyEnv, Trial(actions=("b", "c"), ground_truth="b")) == []


def test_the_environment_ends_after_the_last_try():
    env = MyEnv(num_tries=2)
    assert env.step(["b", "c"], "b") == ("wrong", 0.0, False)
    assert env.step(["b", "c"], "b") == ("wrong", 0.0, True)


def test_the_right_letter_is_worth_one():
    assert compute_score("letters", "b", "b", {}) == 1.0
    assert compute_score("letters", "bb", "b", {}) == 0.0


def test_hooks_put_the_conversation_together():
    assert bytes(pre_process(Letters(), list(b"Say b"), None, cue=" Reader:")) == b"Say b Reader:"
    assert bytes(pre_process(Letters(), list(b"Say b"), list(b"wrong"), cue=" Reader:")) == b"Say b wrong Reader:"
    assert bytes(post_process(Letters(), list(b"Say b"), list(b"c"), cue=" Reader:")) == b"Say b Reader:c"


def test_every_row_has_a_problem_and_an_answer():
    for name in ("train", "test"):
        for line in (ROOT / "data" / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            assert row["prompt"] == f"Say {row['ground_truth']}"
