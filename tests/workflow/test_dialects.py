"""siiRL's spelling and ours give the same workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.workflow.dialects import IGNORED, RENAMED
from tests.workflow_files import TEAM, changed, faults, load, only_fault


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("actor_rollout_ref.model.path=m", "model.path=m"),
        ("rollout.multi_turn.max_assistant_turns=3", "rollout.max_rounds=3"),
        ("rollout.multi_turn.use_all_traj=false", "rollout.use_all_traj=false"),
        ("data.max_response_length=32", "rollout.sampling.max_tokens=32"),
        ("rollout.temperature=0.7", "rollout.sampling.temperature=0.7"),
        ("rollout.top_k=50", "rollout.sampling.top_k=50"),
        ("rollout.max_model_len=100", "rollout.max_context_len=100"),
        ("actor.kl_loss_type=mse", "actor.kl_loss_type=k2"),
        ("actor.kl_loss_type=kl", "actor.kl_loss_type=k1"),
        ("algorithm.kl_penalty=low_var_kl", "algorithm.kl_penalty=k3"),
        ("critic.grad_clip=0.5", "critic.optim.grad_clip=0.5"),
        ("actor.loss_agg_mode=seq-mean-token-sum", "algorithm.loss_agg_mode=seq-mean-token-sum"),
        ("trainer.total_training_steps=9", "trainer.total_steps=9"),
        ("trainer.save_freq=-1", "trainer.save_freq=0"),
        ("rollout.multi_turn.max_assistant_turns=null", "rollout.max_rounds=2"),
        ("actor.optim.lr_warmup_steps=-1", "actor.optim.warmup_steps=0"),
        ("critic.cliprange_value=0.3", "critic.cliprange_value=0.3"),
    ],
)
def test_their_key_means_ours(tmp_path: Path, theirs: str, ours: str) -> None:
    first, second = load(tmp_path, TEAM, theirs), load(tmp_path, TEAM, ours)
    assert first.spec == second.spec
    assert first.nodes == second.nodes


def test_dotted_and_nested_keys_are_the_same(tmp_path: Path) -> None:
    old = "  actor: {use_kl_loss: true}"
    dotted = load(tmp_path, changed(TEAM, (old, "  actor.use_kl_loss: true\n  actor.optim.lr: 1e-4")))
    nested = load(tmp_path, changed(TEAM, (old, "  actor: {use_kl_loss: true, optim: {lr: 1e-4}}")))
    half = load(tmp_path, changed(TEAM, (old, "  actor_rollout_ref.actor: {use_kl_loss: true, optim.lr: 1e-4}")))
    assert dotted.spec == nested.spec == half.spec


def test_a_critic_node_names_its_settings_without_a_section(tmp_path: Path) -> None:
    config = "    config: {optim.lr: 5e-5, ppo_epochs: 2, model.path: small, ppo_micro_batch_size_per_gpu: 4}\n"
    text = TEAM
    for rest in ("    node_role: CRITIC\n    dep", "    node_role: CRITIC\n    agent_group: 1\n    dep"):
        text = changed(text, (rest, config + rest))
    group = load(tmp_path, text).groups[0]
    assert group.critic is not None and group.critic_model is not None
    assert (group.critic.optim.lr, group.critic.ppo_epochs, group.critic_model.path) == (5e-5, 2, "small")


def test_one_key_in_two_spellings_with_two_values_is_refused(tmp_path: Path) -> None:
    text = changed(TEAM, ("max_rounds: 2", "max_rounds: 2, multi_turn.max_assistant_turns: 3"))
    fault = only_fault(tmp_path, text)
    assert (fault.code, fault.line) == ("E103", 3)
    assert load(tmp_path, text.replace("turns: 3", "turns: 2")).spec.config.rollout.max_rounds == 2


@pytest.mark.parametrize(
    ("estimator", "shared", "mode"),
    [("gae_marft", "true", "chained"), ("gae_marft", "false", "chained"), ("gae", "true", "team"),
     ("gae", "false", "chained")],
)  # fmt: skip
def test_shared_rewards_become_one_of_the_modes_never_both(
    tmp_path: Path, estimator: str, shared: str, mode: str
) -> None:
    flags = (f"algorithm.share_reward_in_agent={shared}", f"algorithm.adv_estimator={estimator}")
    assert load(tmp_path, TEAM, *flags).spec.config.algorithm.reward_mode == mode


def test_shared_rewards_beside_a_reward_mode_are_refused(tmp_path: Path) -> None:
    flags = ("algorithm.share_reward_in_agent=true", "algorithm.reward_mode=chained")
    assert only_fault(tmp_path, TEAM, *flags).code == "E103"
    assert only_fault(tmp_path, TEAM, "algorithm.share_reward_in_agent=3").code == "E103"


def test_keys_without_a_meaning_here_are_named_once_in_one_warning(tmp_path: Path) -> None:
    node = "    config: {rollout.gpu_memory_utilization: 0.3, rollout.tensor_model_parallel_size: 4}\n"
    text = TEAM.replace("    node_type: MODEL_INFERENCE\n", "    node_type: MODEL_INFERENCE\n" + node)
    text = changed(text, ("dependencies: [scout]\n", "dependencies: [scout]\n    agent_options: {num_workers: 4}\n"))
    found = [one for one in load(tmp_path, text).warnings if one.code == "W203"]
    assert len(found) == 1
    assert found[0].message.startswith("3 keys mean nothing here")
    [lone] = load(tmp_path, TEAM, "rollout.tensor_model_parallel_size=4").warnings
    assert lone.message.startswith("1 key means nothing here and is not used: ")


def test_a_misspelt_key_is_still_refused(tmp_path: Path) -> None:
    flag = "rollout.tensor_model_paralel_size=4"
    assert [found.code for found in faults(tmp_path, TEAM, flag)] == ["E110"]


def test_no_key_is_both_renamed_and_ignored() -> None:
    assert not set(RENAMED) & IGNORED


def test_explicit_default_words_and_case_of_types_and_roles(tmp_path: Path) -> None:
    text = TEAM.replace("MODEL_INFERENCE", "Model_Inference").replace("node_role: CRITIC", "node_role: critic")
    assert load(tmp_path, text).nodes == load(tmp_path, TEAM).nodes
