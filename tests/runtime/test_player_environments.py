"""Environments in play: who acts, what is observed, how a trajectory ends, where rewards stand."""

import json

import pytest

from dagrl.environments.runner import EnvRunner
from dagrl.errors import DagrlError
from dagrl.types import StopReason
from tests.play_builders import Team, env, only, play, prompts, rollout, task, workflow

END = "<|end|>"
ENVS = '''
import json


class Log:
    """Writes every call down and answers with how many there were; done at `last`."""

    def __init__(self, path=None, last=99, reward=1.0, obs="count", ends="terminated"):
        self.path, self.last, self.reward, self.obs, self.ends = path, last, reward, obs, ends
        self.count = 0
        self.note("init")

    def note(self, *what):
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(what) + "\\n")

    def reset(self, prompt=None):
        self.note("reset", prompt)

    def step(self, actions, ground_truth):
        self.note("step", actions, ground_truth)
        self.count += 1
        obs = f"#{self.count}" if self.obs == "count" else self.obs
        is_last = self.count == self.last
        done = is_last if self.ends == "terminated" else (False, is_last)
        return obs, self.reward, done

    def close(self):
        self.note("close")


class Greeting:
    def reset(self, prompt=None, seed=None):
        return f"hello {prompt} {isinstance(seed, int)}"

    async def step(self, actions, ground_truth):
        return None, 0.0, True


class Faulty:
    def __init__(self, at):
        self.at = at

    def reset(self):
        if self.at == "reset":
            raise ValueError("no start")

    def step(self, actions):
        if self.at == "step":
            raise KeyError(actions[0])
        return None, 0.0, self.at == "close"

    def close(self):
        if self.at == "close":
            raise RuntimeError("stuck")
'''


@pytest.fixture(scope="module")
def runner():
    runner = EnvRunner(num_workers=1, timeout_s=20)
    yield runner
    runner.close()


@pytest.fixture
def stage(tmp_path, runner):
    """`stage(nodes, team, tasks, **rollout config)` plays one trajectory and gives it with what each turn saw."""

    def run(nodes, team=None, tasks=None, **settings):
        team = Team(lambda prompt, request: "ab"[request.agent_group]) if team is None else team
        flow = workflow(tmp_path, nodes, files={"e.py": ENVS}, **settings)
        trajectory = only(play(flow, team, runner, tasks))
        return trajectory, prompts(team, trajectory)

    return run


def log_env(tmp_path, **kwargs):
    return {"env_path": "e.py:Log", "env_kwargs": {"path": str(tmp_path / "log"), **kwargs}}


def calls(tmp_path):
    return [tuple(json.loads(line)) for line in (tmp_path / "log").read_text().splitlines()]


def pair(**owner):
    return [rollout("a", obs_with_env=True), rollout("b", "a", group=1, obs_with_env=True, **owner)]


def test_one_object_lives_through_the_rounds_reset_once_and_closed_at_the_end(stage, tmp_path):
    trajectory, _ = stage(pair(**log_env(tmp_path)), tasks=[task("Q", ground_truth=[4])], max_rounds=3)
    step = ("step", ["a", "b"], [4])
    assert calls(tmp_path) == [("init",), ("reset", "Q"), step, step, step, ("close",)]
    assert trajectory.stop_reason is StopReason.MAX_ROUNDS
    assert trajectory.truncated


def test_done_ends_the_trajectory_as_terminated(stage, tmp_path):
    trajectory, _ = stage(pair(**log_env(tmp_path, last=2)), max_rounds=5)
    assert (trajectory.num_rounds, trajectory.stop_reason) == (2, StopReason.TERMINATED)


def test_done_in_the_last_round_is_terminated_and_not_truncated(stage, tmp_path):
    trajectory, _ = stage(pair(**log_env(tmp_path, last=2)), max_rounds=2)
    assert trajectory.stop_reason is StopReason.TERMINATED


def test_truncated_by_the_environment(stage, tmp_path):
    trajectory, _ = stage(pair(**log_env(tmp_path, last=1, ends="truncated")), max_rounds=5)
    assert (trajectory.num_rounds, trajectory.stop_reason) == (1, StopReason.ENV_TRUNCATED)


def test_one_text_for_all_stands_in_the_transcript_once(stage, tmp_path):
    _, seen = stage(pair(**log_env(tmp_path)), max_rounds=2)
    assert seen["a", 1, 0] == f"Qa{END}b{END}\n#1\n"
    assert seen["b", 1, 0] == f"Qa{END}b{END}\n#1\na{END}"


def test_each_agent_hears_its_own_text(stage, tmp_path):
    _, seen = stage(pair(**log_env(tmp_path, obs=["for a", "for b"])), max_rounds=2)
    assert seen["a", 1, 0] == f"Qa{END}b{END}\nfor a\n"
    assert seen["b", 1, 0] == f"Qa{END}b{END}\nfor a\na{END}\nfor b\n"


def test_an_observation_is_a_user_message_where_prompts_are_messages(stage, tmp_path):
    messages = [{"role": "user", "content": "Q"}]
    nodes = [rollout("a", **log_env(tmp_path, obs="<|user|>!"))]
    trajectory, seen = stage(nodes, tasks=[task(messages)], max_rounds=2)
    assert seen["a", 1, 0] == f"<|user|>Q{END}<|assistant|>a{END}<|user|><|user|>!{END}<|assistant|>"
    first, second = trajectory.turns
    assert second.prompt_ids[: len(first.transcript_ids)] == first.transcript_ids
    assert second.prompt_ids.count(3) == 2, "the environment's <|user|> must stay text"


def test_a_message_cut_short_is_closed_before_the_observation(stage, tmp_path):
    messages = [{"role": "user", "content": "Q"}]
    nodes = [rollout("a", sampling={"max_tokens": 2}, **log_env(tmp_path))]
    team = Team(lambda prompt, request: "long")
    _, seen = stage(nodes, team, [task(messages)], max_rounds=2)
    assert seen["a", 1, 0] == f"<|user|>Q{END}<|assistant|>lo{END}<|user|>#1{END}<|assistant|>"


def test_the_first_observation_comes_from_reset(stage):
    _, seen = stage([rollout("a", env_path="e.py:Greeting")])
    assert seen["a", 0, 0] == "Q\nhello Q True\n"


def test_the_first_observation_follows_the_prompts_messages(stage):
    messages = [{"role": "user", "content": "Q"}]
    _, seen = stage([rollout("a", env_path="e.py:Greeting")], tasks=[task(messages)])
    assert seen["a", 0, 0] == f"<|user|>Q{END}<|user|>hello Q True{END}<|assistant|>"


def test_a_hook_gets_the_observation_as_ids_without_control_tokens(stage, tmp_path):
    hook = """
def pre_process(tokenizer, prompt_id, obs, **kwargs):
    return tokenizer.encode(f"{obs is None} {obs and max(obs) > 5 and min(obs) > 5} {tokenizer.decode(obs or [])}")
"""
    nodes = [rollout("a", process_path="p.py", **log_env(tmp_path, obs="<|end|>"))]
    (tmp_path / "p.py").write_text(hook)
    _, seen = stage(nodes, max_rounds=2)
    assert seen["a", 0, 0] == "True None "
    assert seen["a", 1, 0] == f"False True {END}"


def test_agents_act_in_the_order_of_their_groups(stage, tmp_path):
    nodes = [
        rollout("late", group=1, obs_with_env=True),
        rollout("early", "late", group=0, obs_with_env=True, **log_env(tmp_path)),
    ]
    stage(nodes)
    assert calls(tmp_path)[2][1] == ["a", "b"]


def test_parallel_agents_act_on_the_same_environment(stage, tmp_path):
    nodes = [rollout("a", obs_with_env=True), rollout("b", group=1, **log_env(tmp_path))]
    stage(nodes)
    assert calls(tmp_path)[2][1] == ["a", "b"]


def test_an_agent_without_obs_with_env_does_not_act(stage, tmp_path):
    stage([rollout("a"), rollout("b", "a", group=1, **log_env(tmp_path))])
    assert calls(tmp_path)[2][1] == ["b"]


def test_a_skipped_agent_acts_with_an_empty_text_so_that_places_stay(stage, tmp_path):
    (tmp_path / "w.py").write_text("def never(trajectory):\n    return False\n")
    nodes = [rollout("a", obs_with_env=True, when="w.py:never"), rollout("b", group=1, **log_env(tmp_path))]
    stage(nodes)
    assert calls(tmp_path)[2][1] == ["", "b"]


def test_every_branch_acts(stage, tmp_path):
    stage([rollout("a", num_parallel=2, **log_env(tmp_path))])
    assert calls(tmp_path)[2][1] == ["a", "a"]


def test_an_env_node_acts_on_the_turns_before_it(stage, tmp_path):
    nodes = [rollout("a"), rollout("b", "a", group=1), env("world", "b", **log_env(tmp_path, last=1))]
    trajectory, _ = stage(nodes, max_rounds=3, rewards_with_env=True)
    assert calls(tmp_path)[2][1] == ["b"]
    assert [turn.reward for turn in trajectory.turns] == [0.0, 1.0]
    assert trajectory.observations[0].node_id == "world"


def test_nobody_who_depends_on_a_finished_environment_speaks(stage, tmp_path):
    nodes = [rollout("a"), env("world", "a", **log_env(tmp_path, last=1)), rollout("b", "world", group=1)]
    trajectory, _ = stage(nodes, max_rounds=3)
    assert [turn.node_id for turn in trajectory.turns] == ["a"]


def test_several_classes_are_stepped_in_order_and_their_answers_joined(stage, tmp_path):
    owner = {"env_path": ["e.py:Log", "e.py:Greeting"]}
    trajectory, _ = stage([rollout("a", **owner)], max_rounds=3, rewards_with_env=True)
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert trajectory.reward == 1.0
    assert trajectory.observations[0].texts == {0: "#1"}


def test_transcripts_as_actions_and_the_environments_text_as_the_next_transcript(stage, tmp_path):
    owner = log_env(tmp_path, obs=["for a", f"Qa{END}b{END} verdict"])
    trajectory, seen = stage(pair(**owner), max_rounds=2, env_text="transcript")
    assert calls(tmp_path)[2][1] == [f"Qa{END}", f"Qa{END}b{END}"]
    assert seen["a", 1, 0] == f"Qa{END}b{END} verdict"
    before = trajectory.turns[1].transcript_ids
    assert trajectory.turns[2].prompt_ids[: len(before)] == before


def rewards(trajectory):
    return [turn.reward for turn in trajectory.turns]


@pytest.mark.parametrize(
    ("mode", "reward", "expected", "total"),
    [
        ("chained", 2.0, [0.0, 2.0, 0.0, 2.0], 4.0),
        ("team", 2.0, [2.0, 2.0, 2.0, 2.0], 4.0),
        ("per_agent", 2.0, [2.0, 2.0, 2.0, 2.0], 4.0),
        ("chained", [1.0, 4.0], [0.0, 2.5, 0.0, 2.5], 5.0),
        ("team", [1.0, 4.0], [2.5, 2.5, 2.5, 2.5], 5.0),
        ("per_agent", [1.0, 4.0], [1.0, 4.0, 1.0, 4.0], 5.0),
    ],
)
def test_where_rewards_stand(stage, tmp_path, mode, reward, expected, total):
    estimator = "gae_marft" if mode == "chained" else "gae"
    algorithm = {"reward_mode": mode, "adv_estimator": estimator}
    owner = log_env(tmp_path, reward=reward)
    trajectory, _ = stage(pair(**owner), max_rounds=2, rewards_with_env=True, algorithm=algorithm)
    assert rewards(trajectory) == expected
    assert trajectory.reward == total


def test_a_teams_reward_counts_once_for_an_agent_that_speaks_twice(stage, tmp_path):
    nodes = [rollout("draft", obs_with_env=True), rollout("final", "draft", **log_env(tmp_path))]
    algorithm = {"reward_mode": "team", "adv_estimator": "gae"}
    trajectory, _ = stage(nodes, rewards_with_env=True, algorithm=algorithm)
    assert rewards(trajectory) == [0.0, 1.0]


def test_an_estimator_of_rows_finds_a_teams_reward_at_every_node_of_an_agent(stage, tmp_path):
    nodes = [rollout("draft", obs_with_env=True), rollout("final", "draft", **log_env(tmp_path))]
    trajectory, _ = stage(nodes, rewards_with_env=True, algorithm={"adv_estimator": "grpo"})
    assert rewards(trajectory) == [1.0, 1.0]
    assert trajectory.reward == 1.0


def test_rewards_are_only_written_down_unless_the_workflow_takes_them(stage, tmp_path):
    trajectory, _ = stage(pair(**log_env(tmp_path)), max_rounds=2)
    assert rewards(trajectory) == [0.0] * 4
    assert trajectory.reward == 0.0
    assert [dict(one.rewards) for one in trajectory.observations] == [{0: 1.0, 1: 1.0}] * 2


def test_leaving_out_the_owner_still_steps_the_environment(tmp_path, runner):
    flow = workflow(tmp_path, pair(**log_env(tmp_path)), files={"e.py": ENVS})
    only(play(flow, Team(lambda p, r: "a"), runner, without=frozenset({"b"})))
    assert calls(tmp_path)[2][1] == ["a", ""]


def test_obs_with_env_without_an_environment_after_it_is_refused(tmp_path, runner):
    nodes = [rollout("a", env_path="e.py:Log"), rollout("b", "a", group=1, obs_with_env=True)]
    with pytest.raises(DagrlError, match=r"'b'.*obs_with_env"):
        play(workflow(tmp_path, nodes, files={"e.py": ENVS}), Team(lambda p, r: "a"), runner)


@pytest.mark.parametrize(("at", "message"), [("reset", "no start"), ("step", "KeyError")])
def test_a_raising_environment_drops_its_trajectory_only(tmp_path, runner, at, message):
    flow = workflow(
        tmp_path,
        [rollout("a", env_path="e.py:Faulty", env_kwargs={"at": at})],
        files={"e.py": ENVS},
    )
    result = play(flow, Team(lambda p, r: "x"), runner, failures_dir=tmp_path / "failures")
    (failed,) = result.failed
    assert (failed.kind, result.trajectories) == ("env_raised", ())
    assert message in failed.message
    assert f"{tmp_path}/e.py:" in failed.message
    assert f"in {at}" in failed.message
    (file,) = (tmp_path / "failures").iterdir()
    content = json.loads(file.read_text())
    assert (content["task"]["task_id"], content["sample"], content["step"], content["run_seed"]) == ("t0", 0, 1, 7)
    assert len(content["turns"]) == (at == "step")


def test_a_raising_close_is_counted_and_keeps_the_trajectory(tmp_path, runner):
    nodes = [rollout("a", env_path="e.py:Faulty", env_kwargs={"at": "close"})]
    result = play(workflow(tmp_path, nodes, files={"e.py": ENVS}), Team(lambda p, r: "x"), runner)
    assert len(result.trajectories) == 1
    assert result.metrics["env/close_failed"] == 1.0


def test_an_environment_is_closed_after_a_fault_elsewhere(tmp_path, runner):
    (tmp_path / "p.py").write_text("def pre_process(tokenizer, prompt_id, obs):\n    raise ValueError('bad')\n")
    nodes = [rollout("a", process_path="p.py", **log_env(tmp_path))]
    result = play(workflow(tmp_path, nodes, files={"e.py": ENVS}), Team(lambda p, r: "x"), runner)
    assert result.failed[0].kind == "pre_process_raised"
    assert calls(tmp_path)[-1] == ("close",)


GAME = """
class Game:
    \"\"\"Two players say one word each in turns; who says `z` wins; all rewards come at the end.\"\"\"

    def reset(self):
        self.words = 0
        return ["you begin", None]

    def step(self, actions, ground_truth):
        mover = self.words % 2
        assert actions[1 - mover] == "", actions
        self.words += 1
        is_over = actions[mover] == "z"
        obs = [None, None]
        if not is_over:
            obs[1 - mover] = f"they said {actions[mover]}"
        reward = [0.0, 0.0]
        if is_over:
            reward[mover], reward[1 - mover] = 1.0, -1.0
        return obs, reward, is_over
"""


@pytest.mark.parametrize("group", [0, 1])
def test_players_of_a_game_take_turns_and_the_loser_is_told_on_its_last_move(stage, tmp_path, group):
    """With one policy in both seats, and with two."""
    (tmp_path / "game.py").write_text(GAME)
    (tmp_path / "p.py").write_text("def pre_process(tokenizer, prompt_id, obs):\n    return obs\n")
    seat = {"obs_with_env": True, "needs_obs": True, "process_path": "p.py"}
    nodes = [rollout("white", **seat), rollout("black", group=group, **seat)]
    nodes.append(env("game", "white", "black", env_path="game.py:Game"))
    words = iter("xyz")
    team = Team(lambda prompt, request: next(words))
    trajectory, seen = stage(
        nodes, team, max_rounds=9, rewards_with_env=True, algorithm={"reward_mode": "per_agent", "norm_adv": "none"}
    )
    assert seen == {("white", 0, 0): "you begin", ("black", 1, 0): "they said x", ("white", 2, 0): "they said y"}
    assert [turn.reward for turn in trajectory.turns] == [0.0, -1.0, 1.0]
    assert trajectory.observations[0].heard == {"black": "they said x"}
    assert (trajectory.reward, trajectory.stop_reason) == (0.0, StopReason.TERMINATED)


def test_a_player_that_no_environment_speaks_to_is_refused(tmp_path, runner):
    flow = workflow(tmp_path, [rollout("a", needs_obs=True), rollout("b", env_path="e.py:Log")], files={"e.py": ENVS})
    with pytest.raises(DagrlError, match="'a': needs_obs is true"):
        play(flow, Team(lambda p, r: "x"), runner)
