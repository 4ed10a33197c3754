"""Roles that share a policy or a critic, told apart in real runs, while nothing else changes."""

from __future__ import annotations

import pytest
import torch

from dagrl.algorithms import explained_variance
from dagrl.errors import WorkflowError
from tests.small_teams import GIVE, TWO, is_same, one_process, run, speaker

pytestmark = pytest.mark.slow

ROLES = (speaker("a"), speaker("b", 0, ["a"]))
"""Two roles of one policy."""


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def test_gradients_of_roles_sum_to_that_of_the_step_and_change_no_weight(tmp_path):
    options = ("actor.ppo_epochs=1", "actor.entropy_coeff=0.01")
    plain = run(tmp_path / "plain", ROLES, *options)
    ran = run(tmp_path / "measured", ROLES, *options, "trainer.role_gradients_freq=2", "trainer.total_steps=2")
    first, second = ran.rows
    names = [f"agent_0/actor/gradient/{name}" for name in ("norm", "norm/a", "norm/b", "cosine/a/b")]
    assert not set(names) & second.keys(), "the second step is not the second one after the first"
    whole, a, b, cosine = (first[name] for name in names)
    assert whole == pytest.approx(first["agent_0/actor/grad_norm"], rel=1e-4)
    assert whole**2 == pytest.approx(a**2 + b**2 + 2 * a * b * cosine, rel=1e-4)
    assert -1 < cosine < 1 and a > 0 and b > 0
    assert all(is_same(plain, ran, part) for part in ("agent_0", "critic_0"))
    kept = [{name: value for name, value in row.items() if name not in names and "perf/" not in name and name != "time"}
            for row in ran.rows]  # fmt: skip
    assert [{name: row[name] for name in row if name in own} for row, own in zip(plain.rows, kept)] == kept


def test_a_shared_critic_is_told_apart_by_role(tmp_path):
    ran = run(tmp_path, TWO)
    row = ran.rows[0]
    for name in ("a", "b"):
        turns = ran.of(name)
        values, returns = (
            torch.tensor([one for turn in turns for one in turn[column]]) for column in ("values", "returns")
        )
        expected = explained_variance(values, returns)
        assert row[f"critic_0/explained_variance/{name}"] == pytest.approx(expected, abs=1e-6)


def test_a_team_without_roles_to_tell_apart_is_refused(tmp_path):
    with pytest.raises(WorkflowError, match="no trained policy speaks for several rollout nodes"):
        run(tmp_path, TWO, "trainer.role_gradients_freq=2", reward=GIVE)
