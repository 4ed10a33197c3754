"""REWARD nodes of several parts, weights by outcome, and a model as a judge behind a real server."""

from __future__ import annotations

import pytest

from dagrl.backends.openai_chat import ChatServer
from dagrl.errors import DagrlError, FaultBudgetError
from dagrl.experience import collate
from dagrl.nodes.model_judge import ModelJudge, server_of
from dagrl.nodes.reward import RewardNode
from dagrl.nodes.reward_parts import OneByOne, RewardPart
from dagrl.nodes.usage import Usage
from dagrl.rewards.judge import Rubric, question, read_score
from dagrl.rewards.runner import RewardResult
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.spec import AgentOptions
from tests.node_builders import node
from tests.openai_server import Raw, chat, serving
from tests.stream_builders import trajectory, turn

BUSY = 503, {"error": {"message": "busy"}}
LATER = Raw(b"HTTP/1.1 503 busy\r\nRetry-After: 100000\r\nContent-Length: 0\r\n\r\n")
"""Not within any budget."""


def reward_node(parts, *, mode="team", usage=None, **options):
    named = node(NodeKind.REWARD, groups=(0, 1, 2), options=AgentOptions(**options))
    return RewardNode(named, parts, reward_mode=mode, adds=False, max_failed_fraction=0.5, usage=usage)


def part(judge, weight=1.0, name=None):
    return RewardPart(judge=OneByOne(judge), weight=weight, name=name)


def team(value):
    return lambda one: RewardResult(team=value)


def two_agents(task_id="a"):
    return trajectory(task_id, [turn(0, 0, [5, 6]), turn(1, 0, [7])])


def test_parts_are_summed_with_their_weights_and_each_is_logged_as_it_was():
    played = two_agents()
    experience = collate([played])
    style = lambda one: RewardResult(by_turn={(0, 0): 1.0, (1, 0): 0.0}, parts={"words": 3.0})  # noqa: E731
    metrics = reward_node([part(team(1.0), name="right"), part(style, -0.5, "style")]).run(experience, 0)
    assert [one.reward for one in played.turns] == [1.0 - 0.5, 1.0]
    assert played.reward == 1.0 - 0.5 * 0.5
    assert metrics["parts/right"] == 1.0
    assert metrics["parts/style"] == 0.5
    assert metrics["parts/style/words"] == 3.0


def test_held_out_problems_are_judged_by_the_first_part_alone():
    played, asked = two_agents(), []

    def second(one):
        asked.append(one)
        return RewardResult(team=5.0)

    scorer = reward_node([part(team(1.0), 0.25, "right"), part(second, name="style")], incorrect_reward_weight=0.5)
    scorer.score_outcome([played])
    assert played.reward == 1.0 and not asked
    trained = two_agents()
    scorer.score([trained])
    assert trained.reward == 0.25 + 5.0 and len(asked) == 1


def test_a_part_without_a_verdict_leaves_the_trajectory_without_a_reward_and_later_parts_unasked():
    batch, asked = [two_agents("a"), two_agents("b")], []

    def last(one):
        asked.append(one.task.task_id)
        return RewardResult(team=1.0)

    unsure = lambda one: None if one.task.task_id == "a" else RewardResult(team=0.5)  # noqa: E731
    reward_node([part(team(1.0), name="x"), part(unsure, name="y"), part(last, name="z")]).score(batch)
    assert [one.unscored for one in batch] == ["undecided", None]
    assert [one.reward for one in batch[0].turns] == [0.0, 0.0]
    assert batch[1].reward == 2.5 and asked == ["b"]


def solver_rewriter_selector(selected: float, solvers=(1.0, 0.0), spoke=True):
    """Miles' team: two solvers, a rewriter, and a selector whose reward says how it came out."""
    turns = [turn(0, 0, [5], node_id="solver"), turn(0, 0, [6], node_id="solver", branch=1)]
    turns += [turn(1, 0, [7], node_id="rewriter")]
    rewards = {(0, 0): solvers[0], (0, 1): solvers[1], (1, 0): 1.0}
    if spoke:
        turns.append(turn(2, 0, [8], node_id="selector"))
        rewards[2, 0] = selected
    return trajectory("a", turns), part(lambda one: RewardResult(by_turn=rewards))


@pytest.mark.parametrize(
    ("selected", "spoke", "expected"),
    [(1.0, True, [1.2, 0.0, 1.2, 1.2]), (0.0, True, [0.8, 0.0, 0.8, 0.0]), (1.0, False, [0.8, 0.0, 0.8])],
)
def test_miles_weights_every_role_by_what_the_selector_earned(selected, spoke, expected):
    played, rule = solver_rewriter_selector(selected, spoke=spoke)
    scorer = reward_node(
        [rule], correct_reward_weight=1.2, incorrect_reward_weight=0.8, outcome_node="selector", mode="per_agent"
    )
    scorer.score([played])
    assert [one.reward for one in played.turns] == pytest.approx(expected)
    assert played.reward == rule.judge.judge_all([played], Usage())[0].score


def test_a_weight_may_be_for_some_roles_alone():
    played, rule = solver_rewriter_selector(0.0)
    weights = {"incorrect_reward_weight": {"solver": 0.5, "rewriter": -1.0}}
    reward_node([rule], mode="per_agent", **weights).score([played])
    assert [one.reward for one in played.turns] == [0.5, 0.0, -1.0, 0.0]


def test_without_a_named_node_the_last_turn_decides():
    for reward, expected in ((1.0, 2.0), (0.5, 0.25)):
        played = two_agents()
        reward_node([part(team(reward))], correct_reward_weight=2.0, incorrect_reward_weight=0.5).score([played])
        assert [one.reward for one in played.turns] == [expected, expected]


def test_the_score_beside_rewards_of_turns_decides_unless_a_node_is_named():
    rule = part(lambda one: RewardResult(by_turn={(0, 0): 1.0, (1, 0): 0.0}, outcome=1.0))
    for node_id, expected in ((None, 2.0), ("agent_1", 1.0), ("agent_0", 2.0)):
        played = two_agents()
        reward_node([rule], mode="per_agent", correct_reward_weight=2.0, outcome_node=node_id).score([played])
        assert [one.reward for one in played.turns] == [expected, 0.0]


# A model as a judge


def judging(server, **kwargs):
    rubric = Rubric(**({"url": server.url, "model": "tiny", "timeout_s": 60.0, "budget_s": 120.0} | kwargs))
    return ModelJudge(rubric, ChatServer(server_of(rubric)))


def test_a_judge_is_asked_about_the_problem_the_answer_and_the_reference():
    played = trajectory("a", [turn(0, 0, [5], response_text="{scale} is 7"), turn(1, 0, [6], response_text="I agree")])
    told = question(Rubric(url="http://x", model="m", node="agent_0"), played)
    assert "[Problem]\np\n" in told and "[Reference answer]\n7\n" in told and "from 0 (useless or wrong) to 10" in told
    assert "{scale} is 7" in told, "what an agent says is never filled in"
    assert "I agree" in question(Rubric(url="http://x", model="m"), played)


@pytest.mark.parametrize(
    ("verdict", "score"),
    [
        ("Score: 10", 1.0),
        ("It says 'Score: 3'.\nScore: 7.5", 0.75),
        ("**Score:** 0", 0.0),
        ("score: -1", None),
        ("Score: 11", None),
        ("Score: ten", None),
        ("", None),
    ],
)
def test_the_last_score_on_the_scale_counts(verdict, score):
    assert read_score(verdict, 10) == score


def test_a_judges_scores_come_in_the_order_of_the_trajectories_and_every_request_is_counted():
    batch = [trajectory(str(number), [turn(0, 0, [5], response_text=f"#{number}#")]) for number in range(40)]
    usage = Usage()
    with serving(chat(lambda text: f"Score: {int(text.split('#')[1]) % 11}")) as server:
        verdicts = judging(server).judge_all(batch, usage)
        assert len(server.questions("/v1/chat/completions")) == 40
    assert [one.score for one in verdicts] == [number % 11 / 10 for number in range(40)]
    assert usage.judge_calls == 40


def test_no_answer_in_time_and_an_answer_without_a_score_are_unknown_and_never_zero():
    batch = [trajectory(name, [turn(0, 0, [5], response_text=name)]) for name in ("slow", "vague", "fine")]
    experience, usage = collate(batch), Usage()

    def answer(path, asked):
        said = asked["messages"][0]["content"].split("[Answer to judge]\n")[1].split("\n")[0]
        if said == "slow":
            return LATER
        return chat(lambda text: "quite good" if said == "vague" else "Score: 0")(path, asked)

    with serving(answer) as server:
        metrics = reward_node([RewardPart(judge=judging(server), name="judge")], usage=usage).run(experience, 0)
    assert [one.unscored for one in batch] == ["judge_silent", "judge_unread", None]
    assert (metrics["unknown"], metrics["mean"], metrics["parts/judge"]) == (2.0, 0.0, 0.0)
    assert experience.turns.is_trained.tolist() == [False, False, True]
    assert experience.excuses == {0: "reward_judge_silent", 1: "reward_judge_unread"}
    assert usage.judge_calls == 3


def test_a_judge_that_is_busy_is_asked_again_and_that_counts_as_a_call():
    replies, usage = iter([BUSY, BUSY]), Usage()
    good = chat(lambda text: "Score: 5")
    with serving(lambda path, asked: next(replies, None) or good(path, asked)) as server:
        assert judging(server).judge_all([two_agents()], usage)[0].score == 0.5
    assert usage.judge_calls == 3


def test_a_judge_that_never_answers_is_waited_for_as_long_as_it_may_take():
    def answer(path, asked):
        server.is_closing.wait()

    with serving(answer) as server, pytest.raises(FaultBudgetError, match=r"no answer within 0\.3 s|none of 1"):
        judging(server, timeout_s=0.3, budget_s=0.5).judge_all([two_agents()], Usage())


def test_a_judge_that_answers_nobody_stops_the_run():
    with serving(lambda path, asked: BUSY) as server, pytest.raises(FaultBudgetError, match="none of 2"):
        judging(server, budget_s=0.4).judge_all([two_agents("a"), two_agents("b")], Usage())


def test_a_model_that_is_not_there_is_said_at_once():
    missing = 404, {"error": {"message": "no model 'tiny'"}}
    with serving(lambda path, asked: missing) as server, pytest.raises(DagrlError, match="no model 'tiny'"):
        judging(server).judge_all([two_agents()], Usage())


@pytest.mark.parametrize("wrong", [{"prompt": "how good is it?"}, {"scale": 0}, {"timeout_s": -1}])
def test_a_rubric_that_cannot_work_is_refused(wrong):
    with pytest.raises(DagrlError):
        Rubric(**({"url": "http://x", "model": "m"} | wrong))
