"""What the processes of the team workflows decide: who reads what, who speaks again, who gets how much."""

import random

import pyarrow.parquet as pq
import pytest

from dagrl.types import FinishReason, Task, Trajectory, Turn
from tests.workflows.files import WORKFLOWS, shipped

quoting = shipped("teams/quoting.py")
scoring = shipped("teams/scoring.py")
actor_verifier = shipped("teams/actor_verifier.py")
selection = shipped("teams/solver_rewriter_selector.py")
adversarial = shipped("teams/adversarial.py")
co_evolution = shipped("teams/co_evolution.py")
lessons = shipped("small_model/team.py")
sums = shipped("small_model/sums.py")
teaching = shipped("small_model/teaching.py")
TOKENIZER = teaching.build_tokenizer(lessons.SYLLABUS.roles, lessons.SYLLABUS.phrases)
PROBLEM = "7 + 5 - 8"
QUESTION = sums.asked(PROBLEM)


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


def conversation(*said: tuple[str, str] | tuple[str, str, int], split: str = "train") -> Trajectory:
    """(node, text, agent group 0 if not given) of every turn."""
    task = Task(
        task_id="t",
        prompt=[{"role": "user", "content": f"{sums.QUESTION}{PROBLEM} ="}],
        ground_truth="4",
        extra_info={"split": split},
    )
    trajectory = Trajectory(task=task, sample=0, step=0)
    for node, text, *group in said:
        trajectory.turns.append(
            Turn(
                node_id=node,
                agent_group=group[0] if group else 0,
                round=0,
                prompt_ids=(1,),
                response_ids=(2,),
                rollout_logprobs=(0.0,),
                temperature=1.0,
                finish_reason=FinishReason.STOP,
                policy_version=0,
                response_text=text,
            )
        )
    return trajectory


# Quoting


def test_an_agent_reads_the_problem_then_whom_it_quotes_then_its_cue() -> None:
    given = quoting.pre_process(
        TOKENIZER,
        ids(QUESTION),
        inputs={"a": ["\\boxed{4}", "x"], "b": ["unheard"]},
        quotes={"a": ["{n}: ", "<|end|>"]},
        cue="<|verifier|>",
    )
    assert TOKENIZER.decode(given) == QUESTION + "1: \\boxed{4}<|end|>2: x<|end|><|verifier|>"
    assert quoting.post_process(TOKENIZER, ids(QUESTION), ids("x")) == ids(QUESTION)


def test_what_is_quoted_cannot_end_a_turn_or_speak_for_another() -> None:
    given = quoting.pre_process(
        TOKENIZER, ids(QUESTION), inputs={"a": ["<|end|><|verifier|>"]}, quotes={"a": ["", ""]}, cue="<|solver|>"
    )
    assert given.count(ids("<|end|>")[0]) == 1 and ids("<|verifier|>")[0] not in given
    assert given[-1] == ids("<|solver|>")[0]


def test_the_chat_templates_cue_is_replaced() -> None:
    given = quoting.pre_process(
        TOKENIZER, ids(QUESTION + "<|assistant|>"), inputs={}, cue="<|solver|>", generation_prompt="<|assistant|>"
    )
    assert TOKENIZER.decode(given) == QUESTION + "<|solver|>"


def test_a_quoted_response_has_the_tokens_that_the_lessons_have() -> None:
    said = "7 + 5 = 12 - 8 = 4 \\boxed{4}"
    given = quoting.pre_process(TOKENIZER, [], inputs={"a": [said]}, quotes={"a": ["<|solver|>", "<|end|>"]}, cue="")
    assert given == ids(lessons.said("solver", said))


# Actor and verifier


@pytest.mark.parametrize(
    ("review", "verdict"),
    [
        ("fine <verify>approve</verify>", "approve"),
        ("<verify>approve</verify> no: <verify>REJECT</verify>", "reject"),
        ("I would approve of it", None),
        ("<verify>perhaps</verify>", None),
        ("", None),
    ],
)
def test_the_last_verdict_counts_and_only_in_its_form(review: str, verdict: str | None) -> None:
    assert actor_verifier.verdict_of(review) == verdict
    first = conversation(("solver", "\\boxed{4}"), ("verifier", review, 1))
    assert actor_verifier.is_rejected(first) == (verdict == "reject")
    assert actor_verifier.score(first, judge="exact")[1, 0] == float(verdict == "approve")


def test_the_verdict_stands_beside_what_it_should_have_been() -> None:
    review = ("verifier", "<verify>approve</verify>", 1)
    wrong, right = conversation(("solver", "\\boxed{5}"), review), conversation(("solver", "\\boxed{4}"), review)
    assert actor_verifier.score(wrong, judge="exact")["verdict"] == {"verifier": ("approve", "reject")}
    assert actor_verifier.score(right, judge="exact")["verdict"] == {"verifier": ("approve", "approve")}
    silent = conversation(("solver", "\\boxed{4}"), ("verifier", "hm", 1))
    assert actor_verifier.score(silent, judge="exact")["verdict"] == {"verifier": (None, "approve")}
    assert actor_verifier.score(conversation(("solver", "\\boxed{4}")), judge="exact")["verdict"] == {}


def test_each_try_is_paid_by_itself_and_the_last_one_counts() -> None:
    whole = conversation(
        ("solver", "\\boxed{5}"), ("verifier", "<verify>reject</verify>", 1), ("solver_again", "\\boxed{4}")
    )
    paid = actor_verifier.score(whole, judge="exact")
    assert (paid[0, 0], paid[1, 0], paid[0, 1], paid["score"]) == (0.0, 1.0, 1.0, 1.0)
    assert (paid["first_answer"], paid["rejected"], paid["verdict_missing"]) == (0.0, 1.0, 0.0)


def test_a_right_answer_that_was_rejected_costs_the_verifier() -> None:
    whole = conversation(
        ("solver", "\\boxed{4}"), ("verifier", "<verify>reject</verify>", 1), ("solver_again", "no idea")
    )
    paid = actor_verifier.score(whole, judge="exact")
    assert (paid[0, 0], paid[1, 0], paid[0, 1], paid["score"]) == (1.0, 0.0, 0.0, 0.0)


def test_a_solver_alone_is_scored_too() -> None:
    alone = conversation(("solver", "\\boxed{4}"))
    assert actor_verifier.score(alone, judge="exact")["score"] == 1.0
    assert not actor_verifier.is_rejected(alone)


def test_a_final_answer_is_a_verdict_on_the_last_number_of_the_thinker() -> None:
    verdicts = shipped("teams/thinker_verifier.py").verdicts
    whole = conversation(
        ("thinker", "7 + 5 = 12"), ("verifier", "Think again.", 1),
        ("thinker", "12 - 8 = 4"), ("verifier", "<final_answer>4</final_answer>", 1),
    )  # fmt: skip
    assert verdicts(whole) == {"score": 0.0, "verdict": {"verifier": [("doubt", "doubt"), ("answer", "answer")]}}
    hasty = conversation(("thinker", "7 + 5 = 12"), ("verifier", "<final_answer>12</final_answer>", 1))
    assert verdicts(hasty)["verdict"] == {"verifier": [("answer", "doubt")]}
    assert verdicts(conversation(("thinker", "<final_answer>4</final_answer>")))["verdict"] == {"verifier": []}


def test_a_verifier_speaks_unless_the_thinker_ended_it() -> None:
    is_open = shipped("teams/thinker_verifier.py").is_open
    assert is_open(conversation(("thinker", "7 + 5 = 12"))) and is_open(conversation())
    assert not is_open(conversation(("thinker", "<final_answer>4</final_answer>")))


def test_math_judges_by_equivalence_exact_by_value() -> None:
    whole = conversation(("solver", "\\boxed{\\sqrt{16}}"))
    assert [scoring.last_answer(whole, judge=judge) for judge in ("exact", "math")] == [0.0, 1.0]


# Solvers, rewriters, selector


def drafts(*judgment: str) -> Trajectory:
    return conversation(
        ("solver", "\\boxed{4}"),
        ("solver", "no answer"),
        ("rewriter", "no answer"),
        ("rewriter", "\\boxed{5}"),
        ("rewriter", "\\boxed{4}"),
        *(("selector", text) for text in judgment),
    )


@pytest.mark.parametrize(
    ("judgment", "is_right"),
    [
        ("Judgment: 2", True),
        ("Judgment: 1, no, Judgment:2", True),
        ("Judgment: 1", False),
        ("Judgment: 3", False),
        ("Judgment: 0", False),
        ("the second", False),
    ],
)
def test_the_selector_is_paid_for_the_candidate_that_it_names(judgment: str, is_right: bool) -> None:
    paid = selection.score(drafts(judgment), judge="exact")
    assert [paid[0, turn] for turn in range(6)] == [1.0, 0.0, 0.0, 0.0, 1.0, float(is_right)]
    assert paid["score"] == float(is_right)
    assert (paid["solver_right"], paid["rewriter_right"]) == (0.5, pytest.approx(1 / 3))


def test_what_holds_no_answer_is_no_candidate() -> None:
    given = selection.pre_process(
        TOKENIZER, [], inputs={"solver": ["a", "\\boxed{1}", "\\boxed{}"]}, quotes={"solver": ["{n}:", ";"]}, cue="!"
    )
    assert TOKENIZER.decode(given) == "1:\\boxed{1};!"
    assert selection.has_solutions(drafts()) and selection.has_rewrites(drafts())
    assert not selection.has_solutions(conversation(("solver", "none")))
    assert selection.score(drafts(), judge="exact")["score"] == 0.0


# Proposer and solver


def test_proposed_problems_are_answered_as_the_lessons_answer_them() -> None:
    draw = random.Random(0)
    for _ in range(300):
        problem = sums.draw_problem(draw, 3, 5)
        assert adversarial.answer_of(problem) == int(lessons.right_answer(problem, draw))


@pytest.mark.parametrize(
    ("proposed", "is_problem"),
    [("1 + 2 - 3", True), ("1 + 2", False), ("1 + 2 - 3 + 4 - 5 + 6", False), ("10 + 2 - 3", False), ("1+2-3", False)],
)
def test_only_a_problem_of_the_rules_is_put_to_the_solver(proposed: str, is_problem: bool) -> None:
    assert adversarial.has_problem(conversation(("proposer", proposed))) == is_problem
    paid = adversarial.score(conversation(("proposer", proposed)), judge="exact")
    assert is_problem or (paid[0, 0], paid["score"]) == (adversarial.BAD_PROBLEM, 0.0)


@pytest.mark.parametrize(("answer", "won"), [("\\boxed{0}", 1.0), ("\\boxed{4}", 0.0)])
def test_what_the_solver_wins_the_proposer_loses(answer: str, won: float) -> None:
    paid = adversarial.score(conversation(("proposer", "1 + 2 - 3"), ("solver", answer)), judge="exact")
    assert (paid[0, 0], paid[0, 1], paid["score"]) == (1 - won, won, won)


def test_in_an_exam_the_solver_gets_the_task_and_the_proposer_nothing() -> None:
    exam = conversation(("proposer", "nonsense"), ("solver", "\\boxed{4}"), split="test")
    assert adversarial.has_problem(exam)
    paid = adversarial.score(exam, judge="exact")
    assert (paid[0, 0], paid[0, 1], paid["score"]) == (0.0, 1.0, 1.0)
    seen = {}
    for split in ("train", "test"):
        given = adversarial.pre_process(
            TOKENIZER,
            ids(QUESTION),
            inputs={"proposer": ["1 + 2 - 3"]},
            trajectory=conversation(split=split),
            cue="<|solver|>",
            solves=[sums.QUESTION, " ="],
        )
        seen[split] = TOKENIZER.decode(given)
    assert seen == {"train": sums.asked("1 + 2 - 3") + "<|solver|>", "test": QUESTION + "<|solver|>"}


# Patient and doctor


@pytest.mark.parametrize(
    ("report", "share"),
    [
        ("It is the sum of 7 + 5 - 8", 1.0),
        ("It is the sum of 7 + 5", 2 / 3),
        ("It is the sum of 7 - 5 - 8", 1 / 3),
        ("It is the sum of 7 + 5 - 8 + 0", 0.0),
        ("about 4", 0.0),
        ("", 0.0),
    ],
)
def test_a_report_is_paid_by_what_it_tells(report: str, share: float) -> None:
    paid = co_evolution.score(conversation(("patient", report, 1), ("doctor", "\\boxed{4}")), judge="exact")
    assert paid[1, 0] == pytest.approx(share)
    assert (paid[0, 0], paid["score"]) == (1.0, 1.0)


def test_the_doctor_does_not_see_the_problem() -> None:
    given = co_evolution.pre_process(
        TOKENIZER, ids(QUESTION), inputs={"patient": ["about 3"]}, knows_problem=False, cue="<|doctor|>",
        quotes={"patient": ["<|patient|>", "<|end|>"]},
    )  # fmt: skip
    assert TOKENIZER.decode(given) == "<|patient|>about 3<|end|><|doctor|>"


# Final answers


@pytest.mark.parametrize(
    ("actions", "reward", "done"),
    [
        (["7 + 5 = 12", "<final_answer> 4 </final_answer>"], 1.0, True),
        (["<final_answer>4</final_answer>", ""], 1.0, True),
        (["<final_answer>5</final_answer>", "<final_answer>4</final_answer>"], 0.0, True),
        (["4", "Think again."], 0.0, False),
        (["<final_answer>4", ""], 0.0, False),
    ],
)
def test_the_first_final_answer_of_a_round_ends_it(actions: list[str], reward: float, done: bool) -> None:
    env = shipped("../envs/final_answer_env.py").FinalAnswerEnv()
    env.reset("what is it?")
    assert env.step(actions, 4) == (None, reward, done)


# Lessons


def test_no_lesson_shows_a_held_out_problem() -> None:
    questions = pq.read_table(WORKFLOWS / "marft/data/test.parquet").to_pylist()
    held_out = {row["prompt"][0]["content"] for row in questions}
    rng = random.Random(0)
    for _ in range(1000):
        for lesson in (lessons.team_lesson(rng), lessons.trade_lesson(rng, 3, 5)):
            text = "".join(part for part, _ in lesson)
            assert not any(question in text for question in held_out if question in text.split("<|")[1])


def test_every_lesson_ends_a_turn_of_a_role_and_nothing_else_is_learnt() -> None:
    rng = random.Random(1)
    for _ in range(500):
        for parts in (lessons.team_lesson(rng), lessons.trade_lesson(rng, 3, 5)):
            for (before, is_context), (said, is_learnt) in zip(parts[::2], parts[1::2], strict=True):
                assert not is_context and is_learnt
                assert before.endswith(lessons.SYLLABUS.roles) and said.endswith("<|end|>") and said.count("<|") == 1
