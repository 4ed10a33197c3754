"""codegen_verifier.yaml and single_agent_code.yaml: the review by hand, who gets what, and a short run of each."""

from __future__ import annotations

import json
import sys

import pyarrow.parquet as pq
import pytest

from dagrl.types import Observation, Task, Trajectory
from tests.fork_server import completed as dagrl
from tests.stream_builders import turn
from tests.workflows.files import WORKFLOWS, shipped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

REFERENCE = "x = int(input())\nprint(3 * x + 4)\n"
TRUTH = json.dumps({"inputs": ["0\n", "3\n", "8\n"], "outputs": ["4\n", "13\n", "28\n"]})
RIGHT = f"So:\n```python\n{REFERENCE}```"
WRONG = RIGHT.replace("3 * x", "2 * x")
GOOD, BLIND = '{"inputs": ["2"], "outputs": ["10"]}', '{"inputs": ["0", "0"], "outputs": ["4", "4"]}'
FALSE = '{"inputs": ["2"], "outputs": ["11"]}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "tests", "coder", "tester", "reports"),
    [
        (RIGHT, GOOD, 1.0, 1.0, False),
        (WRONG, GOOD, 0.0, 1.0, True),
        (WRONG, BLIND, 0.0, 0.5, False),  # valid, but they let it pass
        (RIGHT, FALSE, 1.0, 0.0, True),
        (WRONG, FALSE, 0.0, 0.0, True),
        (WRONG, "I would try 7", 0.0, 0.0, False),
        (RIGHT, f"{GOOD} or rather {FALSE}", 1.0, 0.0, True),
        (RIGHT, f"{GOOD[:-2]}", 1.0, 0.0, False),
        ("no program", GOOD, 0.0, 1.0, True),
        (RIGHT, '{"inputs": ["2", "2", "2"], "outputs": ["10", "10", "99"]}', 1.0, 1.0, False),  # the third is left out
    ],
)
def test_a_program_and_its_tests_are_judged_by_each_other_and_by_the_truth(program, tests, coder, tester, reports):
    env = shipped("codegen/review_env.py").CodeReviewEnv()
    env.reset("P", {"reference": REFERENCE})
    (report, to_tester), rewards, done = env.step([program, tests], TRUTH)
    assert (rewards, done, report is not None, to_tester) == ([coder, tester], not reports, reports, None)


@pytest.mark.slow
def test_a_report_says_what_failed_and_nothing_of_the_true_tests():
    env = shipped("codegen/review_env.py").CodeReviewEnv()
    env.reset("P", {"reference": REFERENCE})
    (report, _), _, _ = env.step([WRONG, '{"inputs": ["0", "2"], "outputs": ["4", "10"]}'], TRUTH)
    assert report == "input 2, expected 10: printed '8\\n'"


@pytest.mark.slow
def test_held_out_rows_do_without_a_reference_and_pay_for_no_test():
    env = shipped("codegen/review_env.py").CodeReviewEnv()
    env.reset("P", {"split": "test"})
    _, rewards, done = env.step([RIGHT, GOOD], TRUTH)
    assert (rewards, done) == ([1.0, 0.0], True)


def test_a_row_without_a_reference_is_refused():
    with pytest.raises(ValueError, match=r"extra_info\.reference"):
        shipped("codegen/review_env.py").CodeReviewEnv().reset("P", {})


@pytest.mark.slow
def test_each_attempt_is_paid_by_itself_and_the_last_one_counts():
    seen = Observation(
        round=0, node_id="review", texts={}, rewards={0: 0.0, 1: 1.0}, is_team_reward=False, terminated=False,
        truncated=False,
    )  # fmt: skip
    texts = ((0, WRONG), (1, GOOD), (0, RIGHT))
    turns = [turn(group, 0, (5,), response_text=text) for group, text in texts]
    task = Task(task_id="t", prompt="P", ground_truth=TRUTH)
    trajectory = Trajectory(task=task, sample=0, step=0, turns=turns, observations=[seen])
    scores = shipped("codegen/process.py").score(trajectory)
    assert (scores[0, 0], scores[0, 1], scores[1, 0], scores["score"], scores["retried"]) == (0.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.slow
def test_an_attempt_that_no_tester_had_room_for_is_judged_all_the_same():
    task = Task(task_id="t", prompt="P", ground_truth=TRUTH)
    alone = Trajectory(task=task, sample=0, step=0, turns=[turn(0, 0, (5,), response_text=RIGHT)])
    assert shipped("codegen/process.py").score(alone) == {(0, 0): 1.0, "score": 1.0, "first_program": 1.0}


def test_no_held_out_problem_is_trained_on_or_taught():
    train, test = ({json.loads(line)["prompt"][0]["content"] for line in (WORKFLOWS / "codegen" / f"{name}.jsonl")
                    .read_text().splitlines()} for name in ("train", "test"))  # fmt: skip
    taught = {shipped("small_model/programs.py").question(*problem) for problem in shipped("small_model/code.py").KNOWN}
    assert not train & test and not taught & test and len(train | test) == 144


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codegen_verifier", "single_agent_code"])
def test_the_coders_run(name, tmp_path):
    done = dagrl(
        "run", "--workflow", str(WORKFLOWS / f"{name}.yaml"), "--run-dir", "out", "trainer.total_steps=1",
        "model.recipe_kwargs={lesson_steps: 60, demo_steps: 1, batch_size: 16, hidden_size: 32}", "rollout.n=2",
        "data.train_batch_size=2", "data.val_max_prompts=1", "actor.ppo_mini_batch_size=4", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    turns = pq.read_table(tmp_path / "out" / "trajectories" / "step_000001.parquet", columns=["node"])
    nodes = turns.column("node").to_pylist()
    assert nodes.count("coder") == 4
    assert nodes.count("tester") == (4 if name == "codegen_verifier" else 0)
