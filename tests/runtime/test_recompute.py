"""The numbers of a step come out again from its log, whatever the estimator; what cannot is said, not guessed."""

from __future__ import annotations

import pytest

from dagrl.runtime.recompute import Recomputed, recompute_step, spread
from tests.small_teams import TWO, one_process, run, train

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def shared_models(tmp_path_factory):
    with one_process(tmp_path_factory.getbasetemp() / "models"):
        yield


def recomputed(ran) -> Recomputed:
    found = Recomputed()
    for row in ran.rows:
        recompute_step(ran.workflow, ran.folder / "trajectories" / f"step_{row['step']:06d}.parquet", row, found)
    return found


WAITS = "nodes.advantages.dependencies=[values_0, values_1, old_0, old_1, ref_0, ref_1]"
CASES = {
    "chained over rounds, cut off, KL in the reward": lambda folder: train(
        folder, "rollout.max_rounds=2", "nodes.caller.agent_options.env_kwargs.rounds=9", "actor.use_kl_loss=false",
        "actor.kl_loss_coef=0", "algorithm.use_kl_in_reward=true", WAITS, max_rounds=2,
    ),
    "each agent by itself": lambda folder: run(
        folder, TWO, "algorithm.adv_estimator=gae", "algorithm.reward_mode=team", "rollout.use_all_traj=false"
    ),
    "against the group": lambda folder: run(
        folder, TWO, "algorithm.adv_estimator=grpo", "algorithm.reward_mode=team"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_number_comes_out_again(case, tmp_path):
    found = recomputed(CASES[case](tmp_path))
    assert (found.wrong, found.left_out) == ([], set())
    assert found.num_numbers > 100


def test_an_estimator_that_remembers_earlier_steps_is_left_out_by_name(tmp_path):
    found = recomputed(run(tmp_path, TWO, "algorithm.adv_estimator=spiral", "algorithm.reward_mode=team"))
    assert found.wrong == []
    assert any("advantages by spiral" in told for told in found.left_out)


def test_steps_are_spread_from_the_first_to_the_last():
    assert list(spread([1, 2, 3, 4, 5, 6, 7], 3)) == [1, 4, 7]
    assert list(spread([1, 2], 5)) == [1, 2]
    assert list(spread([1, 2, 3], 1)) == [3]
    assert list(spread([], None)) == []
