"""The adapters in envs/ to environments written elsewhere, each opened by its path in a worker process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dagrl.environments.protocol import EnvAnswer, EnvRequest, Seats
from dagrl.environments.runner import EnvRunner
from dagrl.errors import UserCodeError

ENVS = Path(__file__).parents[2] / "envs"
TEXTARENA, PETTINGZOO = "textarena_env.py:TextArenaEnv", "pettingzoo_env.py:PettingZooEnv"
GYMNASIUM, REASONING = "gymnasium_env.py:GymnasiumEnv", "reasoning_gym_env.py:ReasoningGymEnv"
TICTACTOE = {"game": "pettingzoo.classic.tictactoe_v3"}
LAKE = {"world": "FrozenLake-v1", "actions": ["left", "down", "right", "up"], "options": {"is_slippery": False}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runner() -> Iterator[EnvRunner]:
    pytest.importorskip("textarena")
    pytest.importorskip("pettingzoo")
    runner = EnvRunner(num_workers=1, timeout_s=120)
    yield runner
    runner.close()


class Seat:
    """One environment with all its players, driven by hand."""

    def __init__(self, runner: EnvRunner, ref: str, kwargs: dict[str, Any], *, num_players: int = 2) -> None:
        self.runner, self.ref, self.kwargs = runner, ref, kwargs
        self.seats = Seats(actors=(0,) * num_players)

    def play(self, *steps: Sequence[str], truth: Any = None, **offers: Any) -> list[EnvAnswer]:
        """The answer to `reset`, then to each step."""

        async def played() -> list[EnvAnswer]:
            env = await self.runner.open(self.ref, ENVS, self.kwargs)
            answers = [await env.reset({"seed": 3, "prompt": "", "extra_info": {}} | offers, self.seats)]
            for actions in steps:
                request = EnvRequest(actions=tuple(actions), ground_truth=truth, seats=self.seats)
                answers.append(await env.step(request))
            await env.close()
            return answers

        return asyncio.run(played())


def moves(*texts: str) -> list[list[str]]:
    """Of two players in turns, the first beginning."""
    return [[text, ""] if place % 2 == 0 else ["", text] for place, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("ref", "kwargs", "form"),
    [(TEXTARENA, {"game": "TicTacToe-v0"}, "[{}]"), (PETTINGZOO, TICTACTOE, "I take {}")],
)
def test_a_game_is_played_in_turns_to_its_end(runner, ref, kwargs, form):
    """Cells are numbered by rows in one package and by columns in the other; 0, 4 and 8 are a diagonal in both."""
    start, *answers = Seat(runner, ref, kwargs).play(*moves(*(form.format(cell) for cell in (0, 1, 4, 2, 8))))
    assert [answer.terminated for answer in answers] == [False, False, False, False, True]
    assert [answer.rewards for answer in answers] == [(0.0, 0.0)] * 4 + [(1.0, -1.0)]
    is_shown = [[text is not None for text in answer.seat_texts] for answer in (start, *answers)]
    assert is_shown == [[True, False], [False, True], [True, False], [False, True], [True, False], [False, False]]
    assert not any(answer.is_team_reward for answer in answers)


@pytest.mark.parametrize(
    ("ref", "kwargs", "tries"), [(TEXTARENA, {"game": "TicTacToe-v0"}, 2), (PETTINGZOO, TICTACTOE, 1)]
)
@pytest.mark.parametrize("text", ["I do not know", "[9]"])
def test_who_makes_no_legal_move_loses(runner, ref, kwargs, tries, text):
    """TextArena lets a player try once more."""
    *before, last = Seat(runner, ref, kwargs).play(["[4]", ""], *[["", text]] * tries)
    assert not any(answer.terminated for answer in before) and last.terminated
    assert last.rewards[1] == -1.0 and last.rewards[0] >= 0.0


@pytest.mark.parametrize(("ref", "kwargs"), [(TEXTARENA, {"game": "TicTacToe-v0"}), (PETTINGZOO, TICTACTOE)])
@pytest.mark.parametrize("bot", [0, 1])
def test_a_bot_draws_legal_moves_by_the_seed(runner, ref, kwargs, bot):
    """The task says who is a bot, as held-out tasks do; the other player takes the first cell that it is offered."""
    table = Seat(runner, ref, kwargs)

    def game(seed: int) -> list[EnvAnswer]:
        steps: list[list[str]] = []
        while True:
            answers = table.play(*steps, seed=seed, extra_info={"bots": {str(bot): "random"}})
            if answers[-1].terminated:
                return answers
            shown = answers[-1].seat_texts[1 - bot]
            assert shown is not None and answers[-1].seat_texts[bot] is None
            offered = [word.strip(" '[]\n") for word in shown.rpartition(":")[2].split(",")]
            steps.append([f"[{offered[0]}]" if seat != bot else "" for seat in (0, 1)])

    games = [game(seed) for seed in (1, 1, 2, 3)]
    assert games[0] == games[1]
    assert any(one != games[0] for one in games[2:]), "other seeds, other moves"
    assert all(one[-1].rewards[bot] == 0.0 and one[-1].rewards[1 - bot] in (-1.0, 0.0, 1.0) for one in games)


@pytest.mark.parametrize("bots", [{"2": "random"}, {"0": "clever"}, {"0": "random", "1": "random"}])
def test_bots_that_cannot_be_are_refused(runner, bots):
    with pytest.raises(UserCodeError, match="bots is"):
        Seat(runner, PETTINGZOO, TICTACTOE).play(extra_info={"bots": bots})


def test_a_world_of_gymnasium_is_walked_by_names(runner):
    way = ["down", "down", "I could go left, but I go right", "right", "down", "right"]
    start, *answers = Seat(runner, GYMNASIUM, LAKE, num_players=1).play(*([word] for word in way))
    assert [answer.last_text for answer in (start, *answers)] == ["0", "4", "8", "9", "10", "14", "15"]
    assert [answer.rewards for answer in answers] == [(0.0,)] * 5 + [(1.0,)]
    assert [answer.terminated for answer in answers] == [False] * 5 + [True]


def test_a_text_that_names_no_action_leaves_the_world_as_it_is(runner):
    answers = Seat(runner, GYMNASIUM, LAKE, num_players=1).play(["down"], ["downwards?"], ["down"])
    assert [answer.last_text for answer in answers[1:]] == ["4", "4\nName one of: left, down, right, up.", "8"]


def test_a_time_limit_of_gymnasium_truncates(runner):
    kwargs = LAKE | {"options": {"is_slippery": False, "max_episode_steps": 2}}
    last = Seat(runner, GYMNASIUM, kwargs, num_players=1).play(["up"], ["up"])[-1]
    assert (last.terminated, last.truncated) == (False, True)


def test_numbers_name_actions_where_no_names_are_given_and_several_numbers_are_read(runner):
    start, stood = Seat(runner, GYMNASIUM, {"world": "Blackjack-v1"}, num_players=1).play(["0"], seed=0)
    assert start.last_text is not None and len(start.last_text.split(", ")) == 3
    assert stood.terminated and stood.rewards[0] in (-1.0, 0.0, 1.0, 1.5)


@pytest.mark.parametrize("kwargs", [{"world": "Pendulum-v1"}, LAKE | {"actions": ["go"]}, LAKE | {"shows": "all"}])
def test_worlds_that_cannot_be_told_in_words_are_refused(runner, kwargs):
    with pytest.raises(UserCodeError):
        Seat(runner, GYMNASIUM, kwargs, num_players=1).play()


def test_problems_of_reasoning_gym_are_scored_by_their_family(runner):
    reasoning_gym = pytest.importorskip("reasoning_gym")
    entry = reasoning_gym.create_dataset("chain_sum", size=1, seed=1)[0]
    rows = Seat(runner, REASONING, {})
    offers = {"prompt": entry["question"], "extra_info": {"metadata": json.dumps(entry["metadata"])}}
    said = ["thinking", f"\\boxed{{{entry['answer']}}}"]
    right = rows.play(said, truth=entry["answer"], **offers)[-1]
    wrong = rows.play(["", "\\boxed{123456}"], truth=entry["answer"], **offers)[-1]
    assert (right.rewards, right.terminated) == ((1.0, 1.0), True)
    assert (wrong.rewards[0] < 1.0, wrong.terminated) == (True, False)
