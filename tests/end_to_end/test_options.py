"""Every option of models, sampling, data, play and rewards does what it promises, in real runs of a few steps."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from dagrl.errors import DagrlError, DataError
from dagrl.runtime.checkpoint import load_state
from dagrl.runtime.metrics import read_metrics
from tests.openai_server import chat, serving
from tests.small_teams import GIVE, SCORES, TWO, is_same, node, one_process, run, speaker, team, train
from tests.tiny_project import RECIPE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


# Models


@pytest.mark.parametrize("shared", ["true", "false"])
def test_adapters_train_alone_start_as_the_reference_and_load_in_transformers(tmp_path, shared):
    adapters = f"agent_groups={{0: {{name: s, adapter: {{r: 4, shared_base: {shared}}}}}, 1: {{name: c}}}}"
    ran = train(tmp_path, adapters, "trainer.total_steps=2")
    first, second = ran.of("scout"), ran.of("scout", "step_000002")
    assert all(turn["old_logprobs"] == pytest.approx(turn["ref_logprobs"], abs=1e-6) for turn in first)
    assert any(abs(turn["old_logprobs"][0] - turn["ref_logprobs"][0]) > 1e-4 for turn in second)
    saved = ran.checkpoint / "agent_s"
    assert not (saved / "model.safetensors").exists()
    model, ids = AutoModelForCausalLM.from_pretrained(saved), torch.tensor([[6, 3, 7]])
    settings = json.loads((saved / "adapter_config.json").read_text())
    base = AutoModelForCausalLM.from_pretrained(settings["base_model_name_or_path"])
    assert not torch.allclose(model(ids).logits, base(ids).logits)


def test_a_value_head_trains_the_head_alone(tmp_path):
    ran = train(tmp_path, "critic.kind=value_head", "critic.head_hidden=24", "critic.huber_delta=10")
    saved = ran.checkpoint / "critic_scout"
    assert not (saved / "model.safetensors").exists()
    assert load_file(saved / "value_head.safetensors")["0.weight"].shape == (24, 32)
    assert ran.series("agent_scout/values/mean")[0] == 0.0
    assert ran.series("agent_scout/values/mean")[1] != 0.0


def test_bfloat16_weights_are_the_rounded_float32_masters_that_are_trained(tmp_path):
    ran = train(tmp_path, "model.dtype=bfloat16", "actor.optim.lr=1e-5")
    weights = list(ran.weights("agent_scout").values())
    masters = load_state(ran.checkpoint)["models"]["agent_scout"]["masters"]
    assert {weight.dtype for weight in weights} == {torch.bfloat16}
    assert {master.dtype for master in masters} == {torch.float32}
    rounded = {tuple(master.bfloat16().flatten().tolist()) for master in masters}
    assert all(tuple(weight.flatten().tolist()) in rounded for weight in weights)
    assert any(not torch.equal(master, master.bfloat16().float()) for master in masters)


def test_checkpointing_and_micro_batches_do_not_change_what_is_learnt(tmp_path):
    plain = train(tmp_path / "plain", "rollout.sampling.max_tokens=4")
    spare = ("model.gradient_checkpointing=true", "actor.micro_batch_tokens=16", "critic.micro_batch_tokens=16",
             "actor.logprob_chunk_tokens=3")  # fmt: skip
    cut = train(tmp_path / "cut", "rollout.sampling.max_tokens=4", *spare)
    for part in ("agent_scout", "agent_caller", "critic_scout"):
        assert is_same(plain, cut, part, tolerance=2e-4)


def test_each_agent_has_its_own_model_optimizer_and_node_settings(tmp_path):
    groups = "agent_groups={0: {model: {recipe_kwargs: {hidden: 16}}, optim: {lr: 0.5}}, 1: {name: big}}"
    alone = team(TWO, reward=GIVE)
    for one in alone["nodes"]:
        one["agent_options"].pop("share_instance", None)
    ran = train(
        tmp_path, groups, "nodes.train_1.config.actor.optim.lr=0.25", "nodes.train_1.config.actor.ppo_epochs=3",
        team=alone, files={"scores.py": SCORES},
    )  # fmt: skip
    assert ran.weights("agent_0")["model.norm.weight"].shape == (16,)
    assert ran.weights("agent_big")["model.norm.weight"].shape == (32,)
    assert (ran.series("agent_0/actor/lr"), ran.series("agent_big/actor/lr")) == ([0.5] * 2, [0.25] * 2)
    assert ran.series("agent_big/actor/optimizer_steps") == [3.0] * 2


def test_a_device_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(DagrlError, match=r"model\.device.*'nowhere'"):
        train(tmp_path, "model.device=nowhere")


def test_a_critic_that_reads_other_tokens_than_the_agent_is_refused(tmp_path):
    other = RECIPE.replace('"a", "b", "c", "d"', '"d", "c", "b", "a"')
    with pytest.raises(DagrlError, match=r"critic of agent 'scout' has another tokenizer"):
        train(tmp_path, "critic.model={recipe: 'other.py:make'}", files={"other.py": other})


def test_threads_are_those_asked_for(tmp_path):
    train(tmp_path, "executor.num_threads=2", "trainer.total_steps=1")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


# Sampling and data


def test_sampling_of_run_group_and_node_lie_over_each_other(tmp_path):
    ran = run(
        tmp_path, (speaker("a", sampling={"temperature": 0.0, "max_tokens": 3}), speaker("b", 1, ["a"])),
        "agent_groups={1: {sampling: {top_k: 1, max_tokens: 4, stop: [a, b, c, d, '?', S, C, w]}}}", "rollout.n=4",
    )  # fmt: skip
    for name in ("a", "b"):
        said = {(turn["task_id"], tuple(turn["response_ids"])) for turn in ran.of(name)}
        assert len(said) == len({task for task, _ in said}) == 4
    assert max(len(turn["response_ids"]) for turn in ran.of("a")) == 3
    for turn in ran.of("b"):
        letters = [place for place, token in enumerate(turn["response_ids"]) if 2 <= token < 10]
        assert letters in ([], [len(turn["response_ids"]) - 1])


def test_held_out_play_has_its_own_number_of_samples_and_seed(tmp_path):
    said = {}
    for seed in (1, 2):
        ran = train(
            tmp_path / str(seed), "data.val_files=val.jsonl", "data.val_max_prompts=4", "trainer.total_steps=1",
            f"rollout.val_kwargs={{n: 3, temperature: 1.0, max_tokens: 4, seed: {seed}}}",
        )  # fmt: skip
        said[seed] = [
            [turn["response_ids"] for turn in ran.of("scout", name)] for name in ("eval_000000", "step_000001")
        ]
    assert len(said[1][0]) == 4 * 3
    assert said[1][0] != said[2][0]
    assert said[1][1] == said[2][1]


def test_columns_are_renamed_and_prompts_too_long_are_dropped_before_epochs_are_counted(tmp_path):
    rows = [{"q": "?a" if n % 4 else "?abcd", "gold": "a"} for n in range(16)]
    rename = ("data.columns={prompt: q, ground_truth: gold}", "data.max_prompt_length=2", "trainer.total_steps=null")
    files = {"train.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    with pytest.raises(DataError, match="4 of 16 prompts"):
        train(tmp_path / "refused", *rename, files=files)
    ran = train(tmp_path / "dropped", *rename, "data.filter_overlong_prompts=true", files=files)
    assert len(ran.rows) == 12 / 4
    assert {turn["ground_truth"] for turn in ran.turns()} == {'"a"'}


# Play


def test_three_agents_in_a_diamond_hear_all_that_they_depend_on_and_share_one_critic(tmp_path):
    play = (speaker("a"), speaker("b", 1, ["a"]), speaker("c", 1, ["a"]), speaker("d", 2, ["b", "c"]))
    ran = run(tmp_path, play)
    said = {(turn["trajectory"], turn["node"]): turn for turn in ran.turns()}
    for number in range(8):
        heard = [token for name in "bc" for token in said[number, name]["response_ids"]]
        assert said[number, "d"]["prompt_ids"][-len(heard) :] == heard
    parts = {path.name for path in ran.checkpoint.iterdir()}
    assert parts >= {"agent_0", "agent_1", "agent_2", "critic_0"}
    assert "critic_1" not in parts


def test_parallel_branches_and_when(tmp_path):
    ran = run(tmp_path / "branches", (speaker("a", num_parallel=3), speaker("b", 1, ["a"])))
    assert sorted(turn["branch"] for turn in ran.of("a")) == sorted([0, 1, 2] * 8)
    ran = run(tmp_path / "silent", (speaker("a"), speaker("b", 1, ["a"], when="scores.py:never")))
    assert not ran.of("b")
    assert ran.series("agent_1/actor/skipped") == [1.0, 1.0]


def world(**options):
    return node("world", "ENV", after=["a"], options={"env_path": "environment.py:Calling"} | options)


def test_an_environment_node_gives_rewards_and_is_skipped_where_when_says_no(tmp_path):
    ran = run(tmp_path / "asked", (speaker("a"), world()), "rollout.sampling.max_tokens=4", reward=None)
    assert ran.series("reward/max")[0] == 1.0
    assert {turn["stop_reason"] for turn in ran.turns()} == {"terminated"}
    play = (speaker("a"), world(when="scores.py:never"))
    ran = run(tmp_path / "skipped", play, "rollout.sampling.max_tokens=4", "rollout.max_rounds=3", reward=None)
    assert ran.series("reward/max") == [0.0, 0.0]
    assert ran.series("trajectory/rounds") == [3.0, 3.0]


TALKER = """
class Talker:
    def reset(self, prompt=None): return None
    def step(self, actions, ground_truth):
        return ["d" + action for action in actions], float(actions[-1].startswith("?")), False
"""


def test_transcripts_go_to_the_environment_and_what_comes_back_is_the_next_rounds_start(tmp_path):
    play = (speaker("a", env_path="talker.py:Talker", obs_with_env=True),)
    ran = run(tmp_path, play, "rollout.env_text=transcript", "rollout.max_rounds=2", reward=None,
              files={"talker.py": TALKER})  # fmt: skip
    rounds = {(turn["trajectory"], turn["round"]): turn for turn in ran.turns()}
    for number in range(8):
        assert rounds[number, 1]["prompt_ids"][:2] == [5, 6]
    assert rounds[0, 0]["reward"] == 1.0


# Rewards


def test_rewards_of_both_forms_and_added_to_the_environments(tmp_path):
    ran = run(tmp_path / "text", reward=GIVE | {"options": {"reward_kwargs": {"bonus": 5.0}}})
    assert min(ran.series("reward/mean")) >= 5.0
    assert ran.series("reward/parts/length")[0] is not None
    own = {"executable_ref": "scores.py:by_agent", "options": {"reward_kwargs": {"scale": 2.0}}}
    ran = run(tmp_path / "agents", TWO, "algorithm.adv_estimator=gae", "algorithm.reward_mode=per_agent", reward=own)
    assert [ran.series(f"agent_{group}/reward")[0] for group in (0, 1)] == [2.0, 4.0]
    ran = run(
        tmp_path / "added", (speaker("a"), world()), "rollout.rewards_with_env=true", "rollout.sampling.max_tokens=4",
        reward=GIVE | {"options": {"combine": "add", "reward_kwargs": {"bonus": 5.0}}},
    )  # fmt: skip
    assert ran.series("reward/max")[0] == 7.0


def test_a_list_of_rewards_is_summed_logged_part_by_part_and_held_out_problems_know_the_first_alone(tmp_path):
    with serving(chat(lambda text: "Score: 5")) as server:
        parts = [
            {"fn": "scores.py:letters", "kwargs": {"bonus": 1.0}, "name": "right"},
            {"fn": "overlong", "weight": 0.5, "kwargs": {"max_tokens": 2, "buffer_tokens": 1}},
            {"fn": "judge", "weight": 10.0, "kwargs": {"url": server.url, "model": "tiny"}},
        ]
        made = team(TWO, reward={"options": {"rewards": parts}}, critics=False, algorithm={"adv_estimator": "rloo"})
        tested = ("data.val_files=[val.jsonl]", "trainer.test_freq=1")
        ran = train(tmp_path, *tested, team=made, files={"scores.py": SCORES})
    row = ran.rows[0]
    assert row["reward/parts/judge"] == 0.5
    assert row["reward/mean"] == pytest.approx(
        row["reward/parts/right"] + 0.5 * row["reward/parts/overlong"] + 10.0 * 0.5
    )
    held_out = [one for one in read_metrics(ran.folder / "metrics.jsonl") if "val/accuracy" in one]
    assert all(one["val/accuracy"] == 1.0 and one["val/reward"] <= 2.0 for one in held_out)
    books = (ran.folder / "ledger.jsonl").read_text().splitlines()
    assert json.loads(books[-1])["totals"]["judge_calls"] == 2 * 8 * 3 + 3 * 16, "three evaluations of 16 problems"


def test_responses_that_were_cut_are_left_out_of_the_update_and_of_nothing_else(tmp_path):
    made = team(TWO, reward=GIVE, critics=False, algorithm={"adv_estimator": "rloo"})
    short, files = "rollout.sampling.max_tokens=1", {"scores.py": SCORES}
    ran = train(tmp_path / "cut", short, "actor.overlong_filtering=true", team=made, files=files)
    cut = ended = 0
    for name in ("step_000001", "step_000002"):
        of_sample = Counter((t["task_id"], t["sample"]) for t in ran.turns(name) if t["finish_reason"] == "length")
        cut += sum(count == 2 for count in of_sample.values())
        ended += 8 - sum(count == 2 for count in of_sample.values())
    assert cut and ended
    assert (ran.rows[-1]["ledger/trained"], ran.rows[-1]["ledger/dropped/overlong"]) == (ended, cut)
    assert train(tmp_path / "kept", short, team=made, files=files).rows[-1]["ledger/trained"] == 16


@pytest.mark.parametrize(("estimator", "shares"), [("gae", [1, 1]), ("gae_marft", [0, 1])])
def test_a_number_for_the_team_counts_once_for_each_agent_or_once_where_it_is_carried_on(tmp_path, estimator, shares):
    one = "def one(trajectory):\n    return 1.0\n"
    for mode in ("per_agent", "null"):
        ran = run(tmp_path / mode, TWO, f"algorithm.adv_estimator={estimator}", f"algorithm.reward_mode={mode}",
                  reward={"executable_ref": "one.py:one"}, files={"one.py": one})  # fmt: skip
        assert [ran.series(f"agent_{group}/reward")[0] for group in (0, 1)] == shares


# What is left behind


def test_checkpoints_and_evaluations_come_when_asked_and_old_ones_go(tmp_path):
    ran = train(tmp_path, "trainer.save_freq=1", "trainer.keep_last=2", "trainer.total_steps=4", "trainer.test_freq=2",
                "trainer.keep_best=0", "data.val_files=val.jsonl", "trainer.val_before_train=false")  # fmt: skip
    assert sorted(path.name for path in (ran.folder / "checkpoints").iterdir()) == ["step_000003", "step_000004"]
    evals = sorted(path.name for path in (ran.folder / "trajectories").glob("eval_00000?.parquet"))
    assert evals == ["eval_000002.parquet", "eval_000004.parquet"]
