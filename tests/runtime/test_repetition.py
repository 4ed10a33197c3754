"""Repetition in conversations, against looking at every place by hand; loud where agents parrot."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dagrl.environments.runner import EnvRunner
from dagrl.experience import collate
from dagrl.runtime.repetition import GRAM, repetition_metrics
from dagrl.runtime.summary import step_metrics
from dagrl.runtime.watchdog import Watchdog
from dagrl.types import GenerationRequest, Task, Trajectory, Turn
from dagrl.workflow.graph import load_workflow
from tests.play_builders import Team, play, rollout, workflow
from tests.stream_builders import turn

ROOT = Path(__file__).resolve().parents[2]
GROUPS = load_workflow(ROOT / "workflows" / "marft.yaml").groups
"""A reasoner and an actor, of one model."""


def talk(*turns: Turn) -> Trajectory:
    return Trajectory(task=Task(task_id="t", prompt="?"), sample=0, step=0, turns=list(turns))


def said(group: int, round: int, text: str, branch: int = 0) -> Turn:
    """A letter is a token."""
    return turn(group, round, tuple(text.encode()), node_id=f"node_{group}", branch=branch)


def shares(*talks: Trajectory) -> dict[str, float]:
    return {name.removeprefix("agent_"): value for name, value in repetition_metrics(GROUPS, talks).items()}


def test_an_agent_that_says_what_the_other_said_repeats_it_and_not_itself() -> None:
    assert shares(talk(said(0, 0, "abcdefgh"), said(1, 0, "abcdefgh"))) == {
        "reasoner/repeats_self": 0.0, "actor/repeats_self": 0.0, "actor/repeats_others": 1.0,
    }  # fmt: skip


def test_loops_within_a_response_and_answers_given_again_are_repetitions_of_itself() -> None:
    assert shares(talk(said(0, 0, "abcdabcdabcd")))["reasoner/repeats_self"] == 5 / 9
    assert shares(talk(said(0, 0, "abcdefgh"), said(0, 1, "abcdefgh")))["reasoner/repeats_self"] == 5 / 10
    assert shares(talk(said(0, 0, "abcdefgh")), talk(said(0, 0, "abcdefgh")))["reasoner/repeats_self"] == 0.0


def test_short_turns_and_tries_side_by_side_are_not_compared() -> None:
    assert shares(talk(said(0, 0, "abc"), said(1, 0, "abc"))) == {}
    tries = [said(0, 0, "abcdefgh", branch) for branch in range(3)]
    assert shares(talk(*tries))["reasoner/repeats_self"] == 0.0
    assert shares(talk(*tries, said(0, 1, "abcdefgh")))["reasoner/repeats_self"] == 1 / 4


def by_hand(talks: list[Trajectory], group: int) -> tuple[float, float]:
    """Every place of every turn, looked for in all text before it."""
    own = again = heard = copied = 0
    for one in talks:
        for place, own_turn in enumerate(one.turns):
            if own_turn.agent_group != group:
                continue
            others = [other.response_ids for other in one.turns[:place] if other.agent_group != group]
            mine = [other.response_ids for other in one.turns[:place] if other.agent_group == group]
            ids = own_turn.response_ids
            for at in range(len(ids) - GRAM + 1):
                gram, before = ids[at : at + GRAM], ids[: at + GRAM - 1]
                own, heard = own + 1, heard + bool(others)
                again += any(gram == text[n : n + GRAM] for text in (*mine, before) for n in range(len(text)))
                copied += any(gram == text[n : n + GRAM] for text in others for n in range(len(text)))
    return again / own, copied / heard


def test_shares_are_those_counted_place_by_place() -> None:
    dice = random.Random(0)
    talks = [
        talk(*(said(group, round, "".join(dice.choices("ab", k=dice.randrange(12)))) for round in range(3)
               for group in (0, 1)))
        for _ in range(40)
    ]  # fmt: skip
    found = shares(*talks)
    for group, name in enumerate(("reasoner", "actor")):
        assert (found[f"{name}/repeats_self"], found[f"{name}/repeats_others"]) == pytest.approx(by_hand(talks, group))


def warnings(tmp_path: Path, say: Callable[[random.Random, list[str]], str], steps: int = 8) -> dict[str, int]:
    """Warning → the step it was first told after. From the fourth step on the second agent of a team speaks by `say`,
    given all that was said in the conversation; all else is new at every turn."""
    flow = workflow(tmp_path, [rollout("a"), rollout("b", "a", group=1)], max_rounds=3)
    watchdog, found, dice = Watchdog(), {}, random.Random(0)
    for step in range(steps):
        said: list[str] = []

        def script(_: str, request: GenerationRequest, step: int = step, said: list[str] = said) -> str:
            is_parrot = request.agent_group == 1 and step >= 3
            said.append(say(dice, said) if is_parrot else "".join(dice.choices("abcdefgh", k=40)))
            return said[-1]

        played = play(flow, Team(script), EnvRunner(), step=step)
        experience = collate(played.trajectories)
        for line in watchdog.look(step + 1, step_metrics(flow, experience, played.failed, step=step)):
            found.setdefault(line.split(":")[0], step + 1)
    return found


def test_a_team_with_a_parrot_is_told_so_five_steps_later_and_another_is_not(tmp_path: Path) -> None:
    assert warnings(tmp_path, lambda dice, said: said[-1]) == {"repeats_others": 8}
    assert warnings(tmp_path, lambda dice, said: (said[1] if len(said) > 1 else "first") * 2) == {"repeats_itself": 8}
    assert warnings(tmp_path, lambda dice, said: "".join(dice.choices("abcdefgh", k=40))) == {}
