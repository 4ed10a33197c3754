"""Nodes, groups, order and what lives in a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.types import SamplingParams
from dagrl.workflow.graph import sorted_nodes
from dagrl.workflow.groups import trains_in_step
from dagrl.workflow.kinds import NodeKind
from tests.node_builders import node
from tests.workflow_files import CHAIN, SCRIPT_FLAGS, TEAM, changed, load, only_fault, without_node

KINDS_OF_CHAIN = [
    "ROLLOUT", "ROLLOUT", "REWARD", "OLD_LOGPROBS", "OLD_LOGPROBS", "REF_LOGPROBS", "REF_LOGPROBS", "VALUES",
    "VALUES", "ADVANTAGES", "TRAIN_CRITIC", "TRAIN_ACTOR", "TRAIN_ACTOR",
]  # fmt: skip


def live(workflow: object, step: int) -> list[str]:
    return [one.node_id for one in workflow.live(step)]  # type: ignore[attr-defined]


def test_a_chain_in_siirls_form_loads_with_its_kinds_and_one_joint_critic_update(tmp_path: Path) -> None:
    workflow = load(tmp_path, CHAIN)
    assert [one.kind for one in workflow.nodes] == KINDS_OF_CHAIN
    joint = workflow.nodes[10]
    assert (joint.node_id, joint.merged_ids, joint.groups) == ("critic_1", ("critic_1", "critic_2"), (0, 1))
    assert joint.dependencies == ("advantages_2",)
    assert workflow.nodes[11].dependencies == ("critic_1",)
    assert [group.critic_owner for group in workflow.groups] == [0, 0]
    assert workflow.groups[1].critic is None


def test_the_flags_of_a_launch_script_set_what_they_mean(tmp_path: Path) -> None:
    workflow = load(tmp_path, CHAIN, *SCRIPT_FLAGS)
    config, (first, second) = workflow.spec.config, workflow.groups
    assert (config.rollout.max_rounds, config.rollout.max_context_len) == (3, 12288)
    assert (config.rollout.use_all_traj, config.rollout.rewards_with_env) == (False, True)
    assert (config.trainer.total_epochs, config.trainer.save_freq, config.trainer.test_freq) == (30, 30, 10)
    assert first.actor.kl_loss_type == "k3"
    assert first.actor.optim.grad_clip == 0.5
    assert (first.actor.optim.lr, second.actor.optim.lr) == (1e-6, 2e-6)
    assert first.model.path == "Qwen/Qwen2.5-3B-Instruct"
    assert first.model.gradient_checkpointing
    assert first.needs_reference and second.needs_reference
    assert first.critic is not None and first.critic.optim.lr == 1e-5
    assert {one.sampling.max_tokens for one in workflow.play} == {2048}
    ignored = [warning for warning in workflow.warnings if warning.code == "W203"]
    assert len(ignored) == 1
    for key in ("rollout.tensor_model_parallel_size", "trainer.logger", "dag.workflow_path", "ref.fsdp_config"):
        assert key in ignored[0].message


def test_agents_alternate_in_blocks_and_idle_work_is_left_out(tmp_path: Path) -> None:
    workflow = load(tmp_path, TEAM)
    shared = ["judge", "value_0", "value_1", "advantage", "critic_0"]
    for step in range(60):
        agent = step // 15 % 2
        assert set(live(workflow, step)) == {*shared, f"old_{agent}", f"ref_{agent}", f"actor_{agent}"}
    assert workflow.spec.config.algorithm.update_order == "cycle"


def test_without_a_cycle_all_agents_train_in_every_step(tmp_path: Path) -> None:
    text = TEAM.replace("    agent_options: {train_cycle: 15}\n", "")
    workflow = load(tmp_path, text)
    assert len(live(workflow, 7)) == len(workflow.learn)
    assert workflow.spec.config.algorithm.update_order == "simultaneous"


def test_in_the_warm_up_only_critics_train_and_nothing_is_made_for_actors(tmp_path: Path) -> None:
    workflow = load(tmp_path, TEAM, "trainer.critic_warmup=2")
    assert live(workflow, 1) == ["judge", "value_0", "value_1", "advantage", "critic_0"]
    assert "actor_0" in live(workflow, 2)


def test_kl_in_the_reward_keeps_both_agents_log_probs_alive(tmp_path: Path) -> None:
    text = changed(TEAM, ("[judge, value_0, value_1]", "[judge, value_0, value_1, old_0, old_1, ref_0, ref_1]"))
    assert "old_1" in live(load(tmp_path, text, "algorithm.use_kl_in_reward=true"), 0)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 200))
def test_in_every_step_of_a_cycle_exactly_one_agent_trains(cycle: int, count: int, step: int) -> None:
    assert sum(trains_in_step(cycle, group, step, count) for group in range(count)) == 1
    assert trains_in_step(cycle, 0, step % cycle, count)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_order_is_topological_and_ties_keep_the_order_of_the_file(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    shuffled = data.draw(st.permutations(range(count)))
    waits = {n: data.draw(st.lists(st.integers(0, n - 1), unique=True)) if n else [] for n in range(count)}
    nodes = [
        node(NodeKind.COMPUTE, node_id=str(n), dependencies=tuple(str(other) for other in waits[n])) for n in shuffled
    ]
    order = [one.node_id for one in sorted_nodes(nodes)]
    done: list[str] = []
    for name in order:
        ready = [n.node_id for n in nodes if n.node_id not in done and set(n.dependencies) <= set(done)]
        assert name == ready[0]
        done.append(name)
    assert sorted(order) == sorted(one.node_id for one in nodes)


def test_settings_go_from_config_over_group_to_node(tmp_path: Path) -> None:
    groups = """
agent_groups:
  0: {name: scout, optim: {weight_decay: 0.1}, sampling: {temperature: 0.5, top_k: -1}, model: {path: small}}
  1: {model: {recipe: "make.py:make"}, critic: {kind: value_head}}
"""
    text = changed(TEAM, ("  actor: {use_kl_loss: true}", "  actor: {use_kl_loss: true, optim: {lr: 1e-4}}\n"
                          "  model: {path: large, tokenizer: other, dtype: bfloat16}" + groups.rstrip()))  # fmt: skip
    text = changed(text, ("  - node_id: scout\n    node_type: MODEL_INFERENCE\n",
                          "  - node_id: scout\n    node_type: MODEL_INFERENCE\n"
                          "    agent_options: {sampling: {temperature: 0.0, seed: 7}}\n"))  # fmt: skip
    text = text.replace("    agent_options: {share_instance: 0}\n", "")
    workflow = load(tmp_path, text, "nodes.actor_1.config.actor.optim.lr=3e-4", "rollout.val_kwargs.top_p=0.9")
    scout = workflow.nodes[0]
    assert scout.sampling == SamplingParams(temperature=0.0, top_k=0, max_tokens=16)
    assert scout.val_sampling == SamplingParams(temperature=0.0, top_p=0.9, max_tokens=16)
    assert scout.sampling_seed == 7
    first, second = workflow.groups
    assert (first.actor.optim.lr, first.actor.optim.weight_decay) == (1e-4, 0.1)
    assert (second.actor.optim.lr, second.actor.optim.weight_decay) == (3e-4, 0.0)
    assert (first.model.path, first.model.tokenizer, first.model.dtype) == ("small", None, "bfloat16")
    assert (second.model.path, second.model.recipe) == (None, "make.py:make")
    assert second.critic is not None and second.critic.kind == "value_head" and second.critic.optim.lr == 1e-5
    assert (first.name, second.name) == ("scout", "1")


def test_a_partly_given_critic_keeps_the_critics_learning_rate(tmp_path: Path) -> None:
    workflow = load(tmp_path, TEAM, "critic.optim.grad_clip=0.5")
    assert workflow.groups[0].critic is not None
    assert workflow.groups[0].critic.optim.lr == 1e-5


def test_shares_are_followed_through_other_shares(tmp_path: Path) -> None:
    extra = """\
  - {node_id: third, node_type: MODEL_INFERENCE, agent_group: 2, dependencies: [caller]}
  - {node_id: value_2, node_type: MODEL_TRAIN, node_role: CRITIC, only_forward_compute: true, agent_group: 2,
     dependencies: [third], agent_options: {share_instance: 1}}
  - {node_id: critic_2, node_type: MODEL_TRAIN, node_role: CRITIC, agent_group: 2,
     dependencies: [advantage], agent_options: {share_instance: 1}}
"""
    text = changed(TEAM + extra, ("[judge, value_0, value_1]", "[judge, value_0, value_1, value_2]"))
    workflow = load(tmp_path, text)
    assert [group.critic_owner for group in workflow.groups] == [0, 0, 0]
    joint = next(one for one in workflow.nodes if one.kind is NodeKind.TRAIN_CRITIC)
    assert joint.merged_ids == ("critic_0", "critic_1", "critic_2")
    assert joint.groups == (0, 1, 2)
    assert [group.is_trained for group in workflow.groups] == [True, True, False]


def test_a_joint_update_does_not_wait_for_what_only_came_between(tmp_path: Path) -> None:
    text = changed(TEAM, ("    agent_group: 1\n    dependencies: [advantage]\n", "    agent_group: 1\n"
                          "    dependencies: [advantage, actor_0]\n"),
                   ("[advantage, old_0, ref_0]", "[advantage, old_0, ref_0, critic_0]"))  # fmt: skip
    workflow = load(tmp_path, text)
    assert next(one for one in workflow.nodes if one.merged_ids).dependencies == ("advantage",)


def test_rewards_of_the_environment_alone_get_a_node_that_brings_them_in(tmp_path: Path) -> None:
    text = changed(without_node(TEAM, "judge"), ("dependencies: [scout]\n",
                   "dependencies: [scout]\n    agent_options: {env_path: e.py:E}\n"))  # fmt: skip
    workflow = load(tmp_path, text, "rollout.rewards_with_env=true")
    bringer = next(one for one in workflow.nodes if one.kind is NodeKind.REWARD)
    assert (bringer.node_id, bringer.groups, bringer.dependencies) == ("env_rewards", (0, 1), ("caller",))
    assert "env_rewards" in live(workflow, 0)


def test_a_lone_reward_or_advantage_node_serves_all_and_several_serve_their_own(tmp_path: Path) -> None:
    workflow = load(tmp_path, TEAM)
    assert {one.kind: one.groups for one in workflow.learn}[NodeKind.ADVANTAGES] == (0, 1)
    extra = "  - {node_id: judge_1, node_type: REWARD, agent_group: 1, dependencies: [caller]}\n"
    text = changed(TEAM + extra, ("[judge, value_0, value_1]", "[judge, judge_1, value_0, value_1]"))
    text = changed(text, ("dependencies: [scout]\n", "dependencies: [scout]\n    agent_options: {env_path: e.py:E}\n"))
    from_env = load(tmp_path, text, "rollout.rewards_with_env=true")
    several = [one.groups for one in from_env.learn if one.kind is NodeKind.REWARD]
    assert several == [(0,), (1,)]


def test_one_agent_alone_is_a_workflow(tmp_path: Path) -> None:
    text = """\
dag_id: solo
nodes:
  - {node_id: speak, node_type: model_inference}
  - {node_id: judge, node_type: reward, dependencies: [speak]}
  - {node_id: old, node_type: model_train, only_forward_compute: true, dependencies: [speak]}
  - {node_id: value, node_type: model_train, node_role: critic, only_forward_compute: true, dependencies: [speak]}
  - {node_id: advantage, node_type: compute, node_role: advantage, dependencies: [judge, value]}
  - {node_id: critic, node_type: model_train, node_role: critic, dependencies: [advantage]}
  - {node_id: actor, node_type: model_train, dependencies: [advantage, old]}
"""
    workflow = load(tmp_path, text)
    assert workflow.warnings == ()
    assert live(workflow, 99) == [one.node_id for one in workflow.learn]


def test_a_base_file_is_extended_node_by_node_and_its_paths_stay_its_own(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "hooks.py").write_text("def pre_process(tokenizer, prompt_id):\n    return prompt_id\n")
    base = changed(TEAM, ("dependencies: [scout]\n",
                   "dependencies: [scout]\n    agent_options: {process_path: hooks.py}\n"))  # fmt: skip
    (tmp_path / "base" / "base.yaml").write_text(base)
    text = """\
extends: base/base.yaml
dag_id: larger
config: {rollout: {max_rounds: 5}}
nodes:
  - {node_id: actor_0, agent_options: {train_cycle: 3}}
  - {node_id: actor_1, agent_options: {train_cycle: 3}}
"""
    workflow = load(tmp_path, text, load_plugins=True)
    assert workflow.spec.dag_id == "larger"
    assert (workflow.spec.config.rollout.max_rounds, workflow.spec.config.actor.use_kl_loss) == (5, True)
    assert {one.options.train_cycle for one in workflow.learn if one.kind is NodeKind.TRAIN_ACTOR} == {3}
    assert workflow.nodes[1].options.process_path == str((tmp_path / "base" / "hooks.py").resolve())
    assert len(workflow.nodes) == 13


@pytest.mark.parametrize("number", [5, -1])
def test_faults_point_at_the_file_they_stand_in(tmp_path: Path, number: int) -> None:
    (tmp_path / "base.yaml").write_text(changed(TEAM, ("max_rounds: 2", "max_rounds: 0")))
    fault = only_fault(tmp_path, f"extends: base.yaml\nconfig: {{trainer: {{seed: {number}}}}}\n")
    assert str(fault.file).endswith("base.yaml")
    assert fault.line == 3
