"""The model that all agents of the team workflows start from: one for all, so that teams are compared like with like.

**The lessons** teach the trade without slips: sums worked out with running totals and boxed, `7 + 5 = 12 \\boxed{12}`;
judging a solution by one's own sum; naming the right one of several; boxing what somebody else worked out. **The team
demonstrations** then show people of mixed quality in every role, and the model comes to imitate them in proportion:

- solver: 30 % *work* the sum out, 40 % box a *guess* near the right answer, 30 % are *hasty* and box the last number of
  the problem. Who has a verifier's words reads their last total in 40 % of the cases.
- verifier: 30 % are *careful* (work the sum out, then judge), 30 % approve and 20 % reject without a look, 20 % ramble
  and give no verdict.
- rewriter: 30 % work the sum out, 40 % copy one of the answers they see, 30 % are hasty. Selector: 30 % work the sum
  out and name the first that agrees with it, the others name any.
- thinker: 30 % work, 40 % write `about N`, 30 % repeat the problem. Checker: 30 % give the thinker's last number as the
  final answer, 30 % the last number of the problem, 40 % ask to think again. Joiner: 30 % box what the first thinker
  says, 30 % what the second, 40 % are hasty.
- opponent: 30 % work, 70 % are sure of a guess. A solver who has heard it believes its last number in 50 % of the
  cases.
- proposer: 30 % make up a problem of the right size, 30 % a small one, 30 % repeat the one that they were shown, 10 %
  ramble.
- patient: 30 % name all numbers, 40 % leave some out, 30 % say `about N`; the doctor, who knows the problem from the
  patient alone, works in 40 % of the cases and else boxes a guess or the last number.

So every team starts with few problems solved although each role has been seen done well: reinforcement learning has to
find out which behaviour pays, in which role, and to get the sums right more often.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from sums import QUESTION, SIGNS, asked, draw_problem, guess, worked_sum
from teaching import END, Part, Progress, Syllabus, teach

ROLES = ("solver", "verifier", "rewriter", "selector", "thinker", "checker", "joiner", "opponent", "proposer",
         "patient", "doctor")  # fmt: skip
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"
AGAIN, FINAL, FINAL_END = "Think again.", "<final_answer>", "</final_answer>"
PHRASES = (QUESTION, "It is the sum of ", "about ", "\\boxed{", APPROVE, REJECT, "Judgment: ", AGAIN, FINAL, FINAL_END)
NUM_CANDIDATES = 3


def make(folder: Path, progress: Progress, *, demo_steps: int = 300, **options: int) -> None:
    """Writes the taught model to `folder`; `options` as `teach` has them."""
    teach(folder, progress, SYLLABUS, demo_steps=demo_steps, **options)


def said(role: str, text: str) -> str:
    """A closed turn, as the workflows quote it."""
    return f"<|{role}|>{text}{END}"


def box(number: str) -> str:
    return f"\\boxed{{{number}}}"


def last_number(text: str) -> str:
    """The number that a text ends with, box or not."""
    return text.rstrip("}").replace("{", " ").split(" ")[-1]


def solution(problem: str, rng: random.Random, slip_rate: float = 0.0) -> str:
    """`7 + 5 = 12 \\boxed{12}`."""
    work = worked_sum(problem, rng, slip_rate)
    return f"{work} {box(last_number(work))}"


def right_answer(problem: str, rng: random.Random) -> str:
    return last_number(worked_sum(problem, rng, 0.0))


# Who does what, well and badly


def solver_says(problem: str, rng: random.Random) -> str:
    kind = rng.choices(("worker", "guesser", "hasty"), (0.3, 0.4, 0.3))[0]
    if kind == "worker":
        return solution(problem, rng)
    return box(guess(problem, rng) if kind == "guesser" else last_number(problem))


def verdict(problem: str, answer: str, rng: random.Random) -> str:
    """A careful verifier: the sum, then whether `answer` agrees with it."""
    work = worked_sum(problem, rng, 0.0)
    return f"{work} {APPROVE if last_number(work) == answer else REJECT}"


def verifier_says(problem: str, answer: str, rng: random.Random) -> str:
    kind = rng.choices(("careful", "trusting", "strict", "rambling"), (0.3, 0.3, 0.2, 0.2))[0]
    if kind == "careful":
        return verdict(problem, answer, rng)
    return {"trusting": APPROVE, "strict": REJECT, "rambling": f"It is the sum of {problem}"}[kind]


def rewriter_says(problem: str, answers: list[str], rng: random.Random) -> str:
    kind = rng.choices(("worker", "copier", "hasty"), (0.3, 0.4, 0.3))[0]
    if kind == "worker":
        return solution(problem, rng)
    return box(rng.choice(answers) if kind == "copier" else last_number(problem))


def judgment(problem: str, answers: list[str], rng: random.Random) -> str:
    """A careful selector: the sum, then the first answer that agrees with it."""
    work = worked_sum(problem, rng, 0.0)
    total = last_number(work)
    chosen = answers.index(total) if total in answers else rng.randrange(len(answers))
    return f"{work} Judgment: {chosen + 1}"


def selector_says(problem: str, answers: list[str], rng: random.Random) -> str:
    if rng.random() < 0.3:
        return judgment(problem, answers, rng)
    return f"Judgment: {rng.randint(1, len(answers))}"


def thinker_says(problem: str, rng: random.Random) -> str:
    kind = rng.choices(("worker", "guesser", "restater"), (0.3, 0.4, 0.3))[0]
    if kind == "worker":
        return worked_sum(problem, rng, 0.0)
    return f"about {guess(problem, rng)}" if kind == "guesser" else f"It is the sum of {problem}"


def final(number: str) -> str:
    return f"{FINAL}{number}{FINAL_END}"


def checker_says(problem: str, thought: str, rng: random.Random) -> str:
    kind = rng.choices(("reader", "hasty", "doubter"), (0.3, 0.3, 0.4))[0]
    return {"reader": final(last_number(thought)), "hasty": final(last_number(problem)), "doubter": AGAIN}[kind]


def joiner_says(problem: str, thoughts: list[str], rng: random.Random) -> str:
    kind = rng.choices(("first", "second", "hasty"), (0.3, 0.3, 0.4))[0]
    return box(last_number({"first": thoughts[0], "second": thoughts[1], "hasty": problem}[kind]))


def opponent_says(problem: str, rng: random.Random) -> str:
    return solution(problem, rng) if rng.random() < 0.3 else box(guess(problem, rng))


def proposer_says(shown: str, rng: random.Random) -> str:
    kind = rng.choices(("maker", "timid", "copier", "rambling"), (0.3, 0.3, 0.3, 0.1))[0]
    if kind == "maker":
        return draw_problem(rng, 3, 5)
    return {"timid": draw_problem(rng, 3, 3), "copier": shown, "rambling": f"It is the sum of {shown}"}[kind]


def patient_says(problem: str, rng: random.Random) -> str:
    kind = rng.choices(("open", "shy", "vague"), (0.3, 0.4, 0.3))[0]
    if kind == "vague":
        return f"about {guess(problem, rng)}"
    terms = problem.split(" ")
    return f"It is the sum of {' '.join(terms if kind == 'open' else terms[: 2 * rng.randint(1, len(terms) // 2) - 1])}"


def doctor_says(report: str, rng: random.Random) -> str:
    symptoms = report.removeprefix("It is the sum of ").removeprefix("about ")
    kind = rng.choices(("worker", "guesser", "hasty"), (0.4, 0.3, 0.3))[0]
    if kind == "worker":
        return solution(symptoms, rng)
    return box(guess(symptoms, rng) if kind == "guesser" else last_number(symptoms))


# How it is laid out


def _turn(context: str, role: str, text: str) -> list[Part]:
    return [(f"{context}<|{role}|>", False), (text + END, True)]


def _candidates(problem: str, rng: random.Random, role: str, most: int) -> tuple[str, list[str]]:
    """Up to so many solutions as they are quoted, and their answers."""
    texts = [solver_says(problem, rng) for _ in range(rng.randint(1, most))]
    return "".join(said(role, text) for text in texts), [last_number(text) for text in texts]


def trade_lesson(rng: random.Random, min_terms: int, max_terms: int) -> list[Part]:
    """One job done well."""
    problem = draw_problem(rng, min_terms, max_terms)
    question = asked(problem)
    kind = rng.choices(("solve", "verify", "rewrite", "select", "read", "report"), (0.45, 0.2, 0.1, 0.1, 0.1, 0.05))[0]
    if kind == "solve":
        return _turn(question, "solver", solution(problem, rng))
    if kind == "verify":
        claimed = solution(problem, rng, rng.choice((0.0, 0.3)))
        text = verdict(problem, last_number(claimed), rng)
        return _turn(question + said("solver", claimed), "verifier", text)
    if kind == "rewrite":
        return _turn(question + _candidates(problem, rng, "solver", 2)[0], "rewriter", solution(problem, rng))
    if kind == "select":
        quoted, answers = _candidates(problem, rng, "rewriter", 2)
        return _turn(question + quoted, "selector", judgment(problem, answers, rng))
    thought = worked_sum(problem, rng, 0.0)
    if kind == "read":
        asking = _turn(question, "thinker", thought)
        if rng.random() < 0.5:
            return [*asking, ("<|checker|>", False), (final(last_number(thought)) + END, True)]
        return _turn(question + 2 * said("thinker", thought), "joiner", box(last_number(thought)))
    report = f"It is the sum of {problem}"
    return (
        [*_turn(question, "patient", report)]
        if rng.random() < 0.5
        else _turn(said("patient", report), "doctor", solution(problem, rng))
    )


def _solver_lesson(problem: str, rng: random.Random) -> list[Part]:
    return _turn(asked(problem), "solver", solver_says(problem, rng))


def _verifier_lesson(problem: str, rng: random.Random) -> list[Part]:
    """A verifier, or a solver who has been rejected and may have its first try before it."""
    tried = solver_says(problem, rng)
    review = verifier_says(problem, last_number(tried), rng)
    if rng.random() < 0.6:
        return _turn(asked(problem) + said("solver", tried), "verifier", review)
    own = said("solver", tried) if rng.random() < 0.3 else ""
    reads = " = " in review and rng.random() < 0.4
    again = box(last_number(review.rpartition(" ")[0])) if reads else solver_says(problem, rng)
    return _turn(asked(problem) + own + said("verifier", review), "solver", again)


def _selection_lesson(problem: str, rng: random.Random) -> list[Part]:
    if rng.random() < 0.5:
        quoted, answers = _candidates(problem, rng, "solver", NUM_CANDIDATES)
        return _turn(asked(problem) + quoted, "rewriter", rewriter_says(problem, answers, rng))
    quoted, answers = _candidates(problem, rng, "rewriter", NUM_CANDIDATES)
    return _turn(asked(problem) + quoted, "selector", selector_says(problem, answers, rng))


def _thinking_lesson(problem: str, rng: random.Random) -> list[Part]:
    """A first or a second round of thinker and checker."""
    context = asked(problem)
    if rng.random() < 0.3:
        context += said("thinker", thinker_says(problem, rng)) + said("checker", AGAIN)
    thought = thinker_says(problem, rng)
    checked = checker_says(problem, thought, rng)
    return [*_turn(context, "thinker", thought), ("<|checker|>", False), (checked + END, True)]


def _joining_lesson(problem: str, rng: random.Random) -> list[Part]:
    thoughts = [thinker_says(problem, rng) for _ in range(2)]
    quoted = "".join(said("thinker", thought) for thought in thoughts)
    return _turn(asked(problem) + quoted, "joiner", joiner_says(problem, thoughts, rng))


def _opponent_lesson(problem: str, rng: random.Random) -> list[Part]:
    claim = opponent_says(problem, rng)
    answer = box(last_number(claim)) if rng.random() < 0.5 else solver_says(problem, rng)
    return [*_turn(asked(problem), "opponent", claim), ("<|solver|>", False), (answer + END, True)]


def _proposer_lesson(problem: str, rng: random.Random) -> list[Part]:
    return _turn(asked(problem), "proposer", proposer_says(problem, rng))


def _doctor_lesson(problem: str, rng: random.Random) -> list[Part]:
    report = patient_says(problem, rng)
    if rng.random() < 0.5:
        return _turn(asked(problem), "patient", report)
    return _turn(said("patient", report), "doctor", doctor_says(report, rng))


_TEAMS: tuple[Callable[[str, random.Random], list[Part]], ...] = (
    _solver_lesson, _verifier_lesson, _selection_lesson, _thinking_lesson, _joining_lesson, _opponent_lesson,
    _proposer_lesson, _doctor_lesson,
)  # fmt: skip


def team_lesson(rng: random.Random) -> list[Part]:
    """Somebody of one of the teams at work on a problem of full difficulty."""
    return rng.choice(_TEAMS)(draw_problem(rng, 3, 5), rng)


SYLLABUS = Syllabus(
    roles=tuple(f"<|{role}|>" for role in ROLES), phrases=(*PHRASES, *SIGNS), trade=trade_lesson, team=team_lesson
)
