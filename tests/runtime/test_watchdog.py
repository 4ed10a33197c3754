"""Warnings while running: each sign is told when it holds, not before, not twice, and not for a healthy run."""

from pathlib import Path

import pytest

from dagrl.runtime.watchdog import PATIENCE, QUIET_STEPS, SIGNS, Watchdog, as_markdown

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
    "one_role_trains": {"role/a/trained_share": 0.97, "role/b/trained_share": 0.03, "role/b/tokens": 6.0},
    "failing_trajectories": {"trajectory/failed": 3.0},
    "large_updates": {"agent_a/actor/kl": 0.9},
    "repeats_itself": {"agent_a/repeats_self": 0.95},
    "repeats_others": {"agent_b/repeats_others": 0.95},
}


def told(changes, steps):
    """Of a run whose reward rises, unless `changes` say otherwise."""
    watchdog = Watchdog()
    return [watchdog.look(step, HEALTHY | {"reward/mean": 0.3 + step / 1000} | changes) for step in range(1, steps + 1)]


def test_a_healthy_run_is_left_in_peace():
    assert not any(told({}, 30))


def test_every_sign_has_a_case_here_and_stands_in_the_docs():
    assert {*SICK, "reward_stands_still", "lazy_agent"} == {sign.name for sign in SIGNS}
    page = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
    assert as_markdown() in page.read_text(encoding="utf-8"), "run `make reference`"


def of_rewards(*rewards):
    watchdog = Watchdog()
    lines = [watchdog.look(step, HEALTHY | {"reward/mean": reward}) for step, reward in enumerate(rewards, start=1)]
    return [step for step, one in enumerate(lines, start=1) if any("reward_stands_still" in line for line in one)]


def test_a_reward_that_never_leaves_its_first_noise_is_told_and_one_that_rose_once_is_not():
    noise = [0.2 + 0.05 * (step % 3) for step in range(60)]
    assert of_rewards(*noise) == [30 + PATIENCE - 1]
    assert of_rewards(*(reward + 0.004 * step for step, reward in enumerate(noise))) == []
    assert of_rewards(*noise[:20], *(reward + 0.3 for reward in noise[:40])) == [], "it stands, but higher"
    assert of_rewards(*[0.95] * 60) == [], "solved from the beginning"


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


def repeated(*shares):
    watchdog = Watchdog()
    metrics = [HEALTHY | {"agent_a/repeats_self": share, "agent_b/repeats_others": 0.2} for share in shares]
    return [step for step, one in enumerate(metrics, start=1) if watchdog.look(step, one)]


def test_repetition_is_told_where_it_is_most_of_what_is_said_and_more_than_at_the_start():
    assert repeated(*[0.1] * 10, *[0.55] * 10) == [15]
    assert repeated(*[0.1] * 10, *[0.45] * 10) == [], "under half"
    assert repeated(*[0.6] * 10, *[0.75] * 10) == [], "its job is to repeat, and it does it as ever"
    assert repeated(*[0.6] * 10, *[0.85] * 10) == [15]
    assert repeated(*[0.95] * 10) == [5], "nothing new is said from the beginning"


def test_what_is_usual_is_remembered_with_the_state():
    first, second = Watchdog(), Watchdog()
    for step in range(1, 11):
        first.look(step, HEALTHY | {"agent_a/repeats_self": 0.6})
    second.load_state_dict(first.state_dict())
    for watchdog in (first, second):
        assert not any(watchdog.look(step, HEALTHY | {"agent_a/repeats_self": 0.75}) for step in range(11, 29))


def test_a_watchdog_goes_on_from_its_state():
    first, second = Watchdog(), Watchdog()
    for step in range(1, PATIENCE):
        first.look(step, HEALTHY | SICK["no_signal"])
    second.load_state_dict(first.state_dict())
    assert second.look(PATIENCE, HEALTHY | SICK["no_signal"])


def warning(name, changes):
    """What is told of a sign that holds."""
    return next(line for lines in told(changes, PATIENCE) for line in lines if line.startswith(f"{name}: "))


@pytest.mark.parametrize(
    ("name", "changes", "cause"),
    [
        ("one_agent_talks", {"agent_b/response_tokens": 0.1}, "here a says 99%; b says 0.1 tokens in a turn"),
        (
            "one_agent_talks",
            {"agent_b/response_tokens": 0.1, "agent_b/empty": 0.9},
            "here a says 99%; b is silent in 90% of its turns",
        ),
        (
            "one_agent_talks",
            {"agent_b/turns": 3.0},
            "here a says 98%; b is asked in 3 turns of the step only",
        ),
        ("one_role_trains", SICK["one_role_trains"], "here a has 97.0%; b has 3.0% and says 6.0 tokens in a conv"),
    ],
)
def test_a_warning_says_which_of_its_causes_it_is_as_far_as_the_numbers_say(name, changes, cause):
    assert cause in warning(name, changes)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"agent_a/actor/kl": 1e-9}, "here no update moves a policy by more than 1.0e-09 nats"),
        ({"trajectory/solved": 0.0}, "here no conversation is solved"),
        ({}, "here a step of 64 trajectories sees no gain below 0.100"),
    ],
)
def test_a_reward_that_stands_still_is_told_with_its_likely_cause(changes, cause):
    watchdog = Watchdog()
    lines = [
        line
        for step in range(1, 60)
        for line in watchdog.look(step, HEALTHY | {"reward/mean": 0.2 + 0.05 * (step % 3)} | changes)
    ]
    assert len(lines) == 1 and cause in lines[0]


@pytest.mark.parametrize(
    ("heard", "cause"), [(0.0, "here a, whom nobody reads"), (0.5, "here a, though 50% of the others' turns read it")]
)
def test_an_agent_whose_message_changes_nothing_is_told_after_several_probes(heard, cause):
    probed = {"influence/kl/a": 1e-5, "influence/kl/b": 0.2, "influence/heard/a": heard, "influence/heard/b": 1.0}
    watchdog, told_at = Watchdog(), []
    for step in range(1, 41):
        seen = HEALTHY | {"reward/mean": 0.3 + step / 1000} | (probed if step % 4 == 1 else {})
        told_at += [(step, line) for line in watchdog.look(step, seen)]
        copied = Watchdog()
        copied.load_state_dict(watchdog.state_dict())
        watchdog = copied
    assert [step for step, _ in told_at] == [9 + PATIENCE - 1], "the third probe is that of step 9"
    assert told_at[0][1].startswith("lazy_agent: ")
    awake = Watchdog()
    lines = [awake.look(step, HEALTHY | {"reward/mean": step / 1000, "influence/kl/a": 0.01}) for step in range(1, 20)]
    assert not any(lines)
    assert cause in warning_of(probed)


def warning_of(probed):
    """Where every step is probed."""
    return next(line for lines in told(probed, 20) for line in lines if line.startswith("lazy_agent"))
