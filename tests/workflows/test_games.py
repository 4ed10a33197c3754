"""textarena.yaml, pettingzoo.yaml and gymnasium.yaml: their hooks by hand, and a short run of each."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from tests.fork_server import completed as dagrl
from tests.workflows.files import WORKFLOWS, shipped

TAUGHT = "model.recipe_kwargs={lesson_steps: 80, demo_steps: 1, batch_size: 32, hidden_size: 32}"
SHOWN = """[GAME] As Player 1, you will be 'X', while your opponent is 'O'.

 0 | 1 | 2 
---+---+---
 3 | 4 | 5 
---+---+---
 6 | 7 | 8 
[Player 0] [4]
 0 | 1 | 2 
---+---+---
 X | O | 5 
---+---+---
 6 | 7 | O 

Available Moves: '[0]'"""  # noqa: W291


def test_the_players_hook_shows_the_last_board_from_the_movers_side():
    process = shipped("textarena/process.py")
    assert process.board(SHOWN) == "...mt...t"
    assert process.board(SHOWN.replace("be 'X', while your opponent is 'O'", "be 'O', while your opponent is 'X'")) == (
        "...tm...m"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["textarena", "pettingzoo"])
def test_self_play_runs_with_one_policy_in_both_seats(name, tmp_path):
    """Hardly taught, they know how a move is written."""
    pytest.importorskip(name)
    done = dagrl(
        "run", "--workflow", str(WORKFLOWS / f"{name}.yaml"), "--run-dir", "out", TAUGHT, "trainer.total_steps=2",
        "data.train_batch_size=8", "data.val_max_prompts=4", "rollout.val_kwargs.n=1", "actor.ppo_mini_batch_size=4",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    turns = pq.read_table(tmp_path / "out" / "trajectories" / "step_000001.parquet").to_pylist()
    seats = {turn["node"] for turn in turns}
    assert seats == {"player_0", "player_1"} and {turn["agent_group"] for turn in turns} == {0}
    games: dict[tuple[str, int], list[dict[str, object]]] = {}
    for turn in turns:
        games.setdefault((turn["task_id"], turn["sample"]), []).append(turn)
    assert len(games) == 8
    assert all(game[0]["node"] == "player_0" for game in games.values()), "who begins"
    assert all(len({turn["round"] for turn in game}) == len(game) for game in games.values()), "one move in a round"
    held_out = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert {"val/player_0_against_random/reward", "val/player_1_against_random/reward"} <= held_out[0].keys()


@pytest.mark.slow
def test_a_walker_on_the_frozen_lake_runs(tmp_path):
    pytest.importorskip("gymnasium")
    done = dagrl(
        "run", "--workflow", str(WORKFLOWS / "gymnasium.yaml"), "--run-dir", "out", TAUGHT, "trainer.total_steps=2",
        "data.train_batch_size=2", "data.val_max_prompts=2", "actor.ppo_mini_batch_size=8", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    turns = pq.read_table(tmp_path / "out" / "trajectories" / "step_000002.parquet").to_pylist()
    first = turns[0]
    assert (first["node"], first["round"]) == ("walker", 0)
    assert {turn["observation"].partition("\n")[0] for turn in turns} <= {str(field) for field in range(16)}
