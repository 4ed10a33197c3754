"""CREDIT nodes in whole runs: every rule trains, counts what it plays, and finds the agent that the reward hangs on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagrl.errors import DagrlError, FaultBudgetError, WorkflowError
from dagrl.nodes.credit_rules import num_rollouts
from dagrl.runtime.forecast.whole import forecast
from dagrl.workflow.extra_play_section import CreditSpec
from tests.openai_server import chat, serving
from tests.small_teams import node, one_process, speaker, team, train

SCORES = """
def first(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str[:1] == ground_truth)

def of_agent_0(trajectory):
    said = [turn.response_text[:1] for turn in trajectory.turns if turn.agent_group == 0]
    return float(said == [trajectory.task.ground_truth])

def judge(trajectory):
    return {0: 1.0, 1: 0.25}

def by_agent(trajectory):
    return {turn.agent_group: 1.0 for turn in trajectory.turns}

def team_judge(trajectory):
    return 1.0
"""
ONE_STEP = ("trainer.total_steps=1", "data.train_batch_size=32")
PAIR = (speaker("a"), speaker("b", 1, ["a"]))


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def credited(*, judge=None, reward="scores.py:first", estimator="grpo", reward_mode=None, **credit):
    """Two agents in a row, with a CREDIT node between reward and advantages."""
    algorithm = {"adv_estimator": estimator, "reward_mode": reward_mode}
    made = team(PAIR, reward={"executable_ref": reward}, critics=False, algorithm=algorithm)
    keys = {} if judge is None else {"executable_ref": judge}
    nodes = [one | {"dependencies": [*one["dependencies"], "credit"]} if one["node_id"] == "advantages" else one
             for one in made["nodes"]]  # fmt: skip
    nodes.append(node("credit", "COMPUTE", role="CREDIT", after=["reward"], options={"credit": credit}, **keys))
    return made | {"nodes": nodes}


def run(folder: Path, made, *overrides: str, files=None):
    return train(folder, *overrides, team=made, files={"scores.py": SCORES, **(files or {})})


def ledger(ran):
    return [json.loads(line) for line in (ran.folder / "ledger.jsonl").read_text().splitlines()]


SAMPLES = 8
"""Of a step: four prompts, two samples each."""
EXTRA = {
    "shared": ({}, 0),
    "difference": ({}, SAMPLES * 2),
    "leave_one_out": ({"samples": 2}, 4 * 2 * 2),
    "siblings": ({"samples": 3}, SAMPLES * 2 * 3),
    "shapley": ({}, SAMPLES * 2),
}
"""Rule to its options and the rollouts that it has played in a step. The empty coalition says nothing and is not."""


@pytest.mark.parametrize("rule", EXTRA)
def test_what_a_rule_says_that_it_needs_is_what_it_has_played(rule):
    options, extra = EXTRA[rule]
    spec = CreditSpec(rule=rule, **options)
    declared = num_rollouts(spec, num_players=2, num_rounds=1, num_samples=2)
    silent = SAMPLES if rule == "shapley" else 0  # the empty coalition, which says nothing here, need not be played
    assert 4 * declared - silent == extra


def test_a_plan_counts_extra_rollouts_and_their_tokens(tmp_path):
    made = credited(rule="siblings", samples=3)
    ran = run(tmp_path, made, "trainer.total_steps=1", "stop_when.tokens=100")
    found = forecast(ran.workflow)
    plain = forecast(run(tmp_path / "plain", credited(), "trainer.total_steps=1").workflow)
    assert found.extra == {"credit": EXTRA["siblings"][1]}
    assert found.tokens == plain.tokens * (1 + EXTRA["siblings"][1] / SAMPLES)
    assert found.at_most["judge_calls"] == SAMPLES + EXTRA["siblings"][1]
    assert ledger(ran)[-1]["totals"]["tokens"] <= found.at_most["tokens"]


def test_extra_rollouts_that_user_code_breaks_count_as_any_failed_ones(tmp_path):
    """b's hook cannot do without a: every rollout for a's credit fails, so nothing is known of a's part."""
    files = {"hooks_b.py": "def pre_process(tokenizer, prompt_id, obs=None, inputs=None):\n"
                           "    return prompt_id + tokenizer.encode(inputs['a'][0][:1])\n"}  # fmt: skip
    made = json.loads(json.dumps(credited(rule="difference")))
    (b,) = [one for one in made["nodes"] if one["node_id"] == "b"]
    b["agent_options"]["process_path"] = "hooks_b.py"
    with pytest.raises(FaultBudgetError, match="pre_process_raised"):
        run(tmp_path / "strict", made, files=files)
    ran = run(tmp_path / "lenient", made, "rollout.max_failed_fraction=1", files=files)
    (first, _) = [row for row in ledger(ran) if row["kind"] == "step"]
    assert [reason for *_, reason in first["dropped"]] == ["no_credit"] * SAMPLES
    assert ran.series("credit/unknown") == [SAMPLES] * 2
    assert len(list((ran.folder / "failures").glob("step1_*.json"))) == SAMPLES


@pytest.mark.parametrize("rule", EXTRA)
def test_a_run_with_each_rule_trains_and_its_extra_rollouts_are_in_the_books(tmp_path, rule):
    options, extra = EXTRA[rule]
    ran = run(tmp_path, credited(rule=rule, **options))
    rows = [row for row in ledger(ran) if row["kind"] == "step"]
    assert [row["extra"] for row in rows] == [extra, extra]
    assert rows[-1]["totals"]["extra"] == 2 * extra
    assert rows[-1]["totals"]["issued"] == rows[-1]["totals"]["trained"] == 2 * SAMPLES
    assert rows[-1]["totals"]["judge_calls"] == 2 * (SAMPLES + extra)
    own = sum(len(turn["response_ids"]) for turn in ran.turns())
    spent = sum(agent["tokens"] for agent in rows[0]["agents"].values())
    assert (spent > own) == (extra > 0)


USELESS = {
    "difference": {},
    "siblings": {"samples": 2},
    "shapley": {"instead": "text", "text": "d"},
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", USELESS)
def test_an_agent_that_the_reward_does_not_hang_on_gets_exactly_0(tmp_path, rule):
    """The reward looks at what agent 0 says alone, who speaks first: agent 1 can change nothing."""
    ran = run(tmp_path, credited(reward="scores.py:of_agent_0", rule=rule, **USELESS[rule]), *ONE_STEP)
    assert {turn["reward"] for turn in ran.of("b")} == {0.0}
    assert len({turn["reward"] for turn in ran.of("a")}) > 1


@pytest.mark.slow
def test_leave_one_out_gives_such_an_agent_0_in_the_mean_over_each_prompt(tmp_path):
    """Its baseline is the mean over the prompt's samples without it, which are the samples themselves then."""
    ran = run(tmp_path, credited(reward="scores.py:of_agent_0", rule="leave_one_out", samples=2), *ONE_STEP)
    by_prompt = {}
    for turn in ran.of("b"):
        by_prompt.setdefault(turn["task_id"], []).append(turn["reward"])
    assert {sum(own) for own in by_prompt.values()} == {0.0}
    assert any(any(own) for own in by_prompt.values())


@pytest.mark.slow
def test_difference_is_the_reward_that_is_lost_without_the_agent(tmp_path):
    """The last to speak is heard by the reward: without b the text of a counts, so b brings their difference."""
    ran = run(tmp_path, credited(rule="difference"), *ONE_STEP)
    for a, b in zip(ran.of("a"), ran.of("b"), strict=True):
        truth = json.loads(a["ground_truth"])
        assert b["reward"] == float(b["response"][:1] == truth) - float(a["response"][:1] == truth)


@pytest.mark.slow
def test_shapley_credits_of_a_run_sum_to_the_teams_reward(tmp_path):
    ran = run(tmp_path, credited(rule="shapley"), *ONE_STEP)
    sums = {}
    for turn in ran.turns():
        sums.setdefault(turn["trajectory"], [0.0, turn["trajectory_reward"]])[0] += turn["reward"]
    assert {round(total - reward, 6) for total, reward in sums.values()} == {0.0}
    assert {reward for _, reward in sums.values()} == {0.0, 1.0}


def test_siblings_say_the_same_until_the_turn_that_is_drawn_anew(tmp_path):
    """a's own turn is drawn anew for its credit, b's only for b's: so b's extra rollouts give no token of a."""
    ran = run(tmp_path, credited(rule="siblings", samples=1), "trainer.total_steps=1")
    (row,) = [row for row in ledger(ran) if row["kind"] == "step"]
    own = {name: sum(len(t["response_ids"]) for t in ran.of(name)) for name in "ab"}
    assert row["agents"]["0"]["tokens"] <= own["a"] + SAMPLES * 2
    assert row["agents"]["1"]["tokens"] > own["b"]


@pytest.mark.slow
def test_initial_weights_stand_in_for_an_agent_and_change_nothing_before_it_has_learnt(tmp_path):
    """In the first step both are the same weights and draws, so everybody says the same and brings nothing; what there
    is to learn from is the share in the team's reward."""
    made = credited(rule="difference", instead="initial", team_share=1.0)
    ran = run(tmp_path, made, "actor.optim.lr=0.3", "data.train_batch_size=32")

    def credits(step):
        return {turn["reward"] - turn["trajectory_reward"] for turn in ran.turns(step)}

    assert credits("step_000001") == {0.0}
    assert len(credits("step_000002")) > 1


def test_a_judge_says_what_each_agents_part_is_worth(tmp_path):
    ran = run(tmp_path, credited(rule="judge", judge="scores.py:judge", team_share=2.0))
    for name, own in (("a", 1.0), ("b", 0.25)):
        assert all(turn["reward"] == own + 2 * turn["trajectory_reward"] for turn in ran.of(name))


def test_a_model_behind_a_server_judges_each_agents_part(tmp_path):
    """The judge prefers short answers: nothing but an end sign."""
    with serving(chat(lambda asked: f"Score: {10 if asked == 'judge:' else 5}")) as server:
        made = credited(rule="judge")
        (credit,) = [one for one in made["nodes"] if one["node_id"] == "credit"]
        credit["agent_options"]["reward_kwargs"] = {"url": server.url, "model": "tiny", "prompt": "judge:{response}"}
        ran = run(tmp_path, made, "trainer.total_steps=1", "data.train_batch_size=8")
    for turn in ran.turns():
        assert turn["reward"] == (0.5 if turn["response"] else 1.0)
    (row,) = [row for row in ledger(ran) if row["kind"] == "step"]
    assert row["judge_calls"] == 3 * 16  # the REWARD node's, and two agents of every sample


@pytest.mark.parametrize(
    ("made", "code", "message"),
    [
        (credited(estimator="gae_marft"), "E403", "carries rewards from agent to agent"),
        (credited(reward_mode="team"), "E403", "reward_mode team gives out the team's reward"),
        (credited(rule="judge"), "E406", "the judge of 'credit' is not named: no url and no model"),
        (credited(judge="scores.py:judge"), "E406", "names a judge, and its rule is shared"),
        (credited(rule="difference", instead="text"), "E406", "go together"),
        (credited(rule="leave_one_out", samples=3), "E405", "leave_one_out wants 3 rollouts"),
    ],
)  # fmt: skip
def test_what_would_count_twice_or_cannot_be_is_refused(tmp_path, made, code, message):
    with pytest.raises(WorkflowError) as caught:
        run(tmp_path, made)
    assert any(found.code == code and message in found.message for found in caught.value.findings)


def test_an_advantage_node_that_does_not_wait_for_the_credit_is_refused(tmp_path):
    made = credited()
    nodes = [one | {"dependencies": ["reward"]} if one["node_id"] == "advantages" else one for one in made["nodes"]]
    with pytest.raises(WorkflowError, match="add 'credit' to its dependencies"):
        run(tmp_path, made | {"nodes": nodes})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (credited(reward="scores.py:by_agent"), "it would be counted twice"),
        (credited(rule="judge", judge="scores.py:team_judge"), "gave one number for the team"),
    ],
)
def test_rewards_that_a_run_shows_to_count_twice_end_it_with_a_reason(tmp_path, made, message):
    with pytest.raises(DagrlError, match=message):
        run(tmp_path, made)
