"""Warnings while running: each sign is told when it holds, not before, not twice, and not for a healthy run."""

import pytest

from dagrl.runtime.watchdog import PATIENCE, QUIET_STEPS, SIGNS, Watchdog

HEALTHY = {
    "reward/mean": 0.5,
    "reward/std": 0.4,
    "trajectory/count": 64.0,
    "trajectory/failed": 0.0,
    "agent_a/policy/entropy": 0.6,
    "agent_a/policy/sampler_gap_mean": 1e-6,
    "agent_a/cut": 0.0,
    "agent_a/turns": 64.0,
    "agent_a/response_tokens": 12.0,
    "agent_b/turns": 64.0,
    "agent_b/response_tokens": 5.0,
    "agent_a/actor/kl": 0.01,
}
SICK = {
    "no_signal": {"reward/std": 0.0},
    "entropy_collapse": {"agent_a/policy/entropy": 0.001},
    "cut_responses": {"agent_a/cut": 0.4},
    "full_context": {"trajectory/ended/max_context": 0.5},
    "sampler_drift": {"agent_a/policy/sampler_gap_mean": 0.3},
    "one_agent_talks": {"agent_b/response_tokens": 0.1},
    "failing_trajectories": {"trajectory/failed": 3.0},
    "large_updates": {"agent_a/actor/kl": 0.9},
}


def told(changes, steps):
    watchdog = Watchdog()
    return [watchdog.look(step, HEALTHY | changes) for step in range(1, steps + 1)]


def test_a_healthy_run_is_left_in_peace():
    assert not any(told({}, 30))


def test_every_sign_has_a_case_here():
    assert set(SICK) == {sign.name for sign in SIGNS}


@pytest.mark.parametrize("name", SICK)
def test_a_sign_is_told_once_it_has_held_and_then_not_again_for_a_while(name):
    lines = told(SICK[name], PATIENCE + QUIET_STEPS)
    assert [step for step, one in enumerate(lines, start=1) if one] == [PATIENCE, PATIENCE + QUIET_STEPS]
    assert lines[PATIENCE - 1][0].startswith(f"{name}: ")
    assert len(lines[PATIENCE - 1]) == 1


def test_low_entropy_of_a_team_that_solves_its_problems_is_no_warning():
    assert not any(told({"agent_a/policy/entropy": 0.001, "reward/mean": 0.95, "reward/std": 0.2}, 30))


def test_one_agent_alone_may_say_everything():
    alone = {name: value for name, value in HEALTHY.items() if not name.startswith("agent_b")}
    watchdog = Watchdog()
    assert not any(watchdog.look(step, alone) for step in range(1, 20))


def test_a_watchdog_goes_on_from_its_state():
    first, second = Watchdog(), Watchdog()
    for step in range(1, PATIENCE):
        first.look(step, HEALTHY | SICK["no_signal"])
    second.load_state_dict(first.state_dict())
    assert second.look(PATIENCE, HEALTHY | SICK["no_signal"])
