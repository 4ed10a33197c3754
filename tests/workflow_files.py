"""Workflow files for tests: a small correct team, siiRL's form of fourteen nodes, and a way to change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.errors import Finding, WorkflowError
from dagrl.workflow.graph import Workflow, load_workflow

TEAM = """\
dag_id: team
config:
  rollout: {max_rounds: 2, sampling: {max_tokens: 16}}
  actor: {use_kl_loss: true}
nodes:
  - node_id: scout
    node_type: MODEL_INFERENCE
  - node_id: caller
    node_type: MODEL_INFERENCE
    agent_group: 1
    dependencies: [scout]
  - node_id: judge
    node_type: REWARD
    dependencies: [caller]
  - node_id: old_0
    node_type: MODEL_TRAIN
    only_forward_compute: true
    dependencies: [caller]
  - node_id: old_1
    node_type: MODEL_TRAIN
    only_forward_compute: true
    agent_group: 1
    dependencies: [caller]
  - node_id: ref_0
    node_type: MODEL_TRAIN
    node_role: REFERENCE
    dependencies: [caller]
  - node_id: ref_1
    node_type: MODEL_TRAIN
    node_role: REFERENCE
    agent_group: 1
    dependencies: [caller]
  - node_id: value_0
    node_type: MODEL_TRAIN
    node_role: CRITIC
    only_forward_compute: true
    dependencies: [caller]
  - node_id: value_1
    node_type: MODEL_TRAIN
    node_role: CRITIC
    only_forward_compute: true
    agent_group: 1
    dependencies: [caller]
    agent_options: {share_instance: 0}
  - node_id: advantage
    node_type: COMPUTE
    node_role: ADVANTAGE
    dependencies: [judge, value_0, value_1]
  - node_id: critic_0
    node_type: MODEL_TRAIN
    node_role: CRITIC
    dependencies: [advantage]
  - node_id: critic_1
    node_type: MODEL_TRAIN
    node_role: CRITIC
    agent_group: 1
    dependencies: [advantage]
    agent_options: {share_instance: 0}
  - node_id: actor_0
    node_type: MODEL_TRAIN
    dependencies: [advantage, old_0, ref_0]
    agent_options: {train_cycle: 15}
  - node_id: actor_1
    node_type: MODEL_TRAIN
    agent_group: 1
    dependencies: [advantage, old_1, ref_1]
    agent_options: {train_cycle: 15}
"""
"""A correct workflow of two agents with a shared critic, in our own spelling, every edge of use."""

CHAIN = """\
dag_id: "team_ppo_pipeline"
description: "written the way siiRL's workflows are"

agent_one: &agent_one
  rollout.log_prob_micro_batch_size_per_gpu: 16
  rollout.tensor_model_parallel_size: 4
  rollout.gpu_memory_utilization: 0.3
  rollout.n: 1
agent_two: &agent_two
  rollout.log_prob_micro_batch_size_per_gpu: 16
  rollout.tensor_model_parallel_size: 4
  actor.optim.lr: 2e-6
  rollout.n: 1

nodes:
  - node_id: "rollout_thinker"
    node_type: "MODEL_INFERENCE"
    node_role: "ROLLOUT"
    agent_group: 0
    dependencies: []
    config:
      <<: *agent_one
    agent_options:
      obs_with_env: true
      process_path: process.py
      pre_process_kwargs:
        pre_chat_template: "<|im_start|> problem: ${prompt} <|im_end|>\\n thinker: "
      post_process_kwargs: {post_chat_template: " thinker: "}
  - node_id: "rollout_solver"
    node_type: "MODEL_INFERENCE"
    node_role: "ROLLOUT"
    agent_group: 1
    dependencies: ["rollout_thinker"]
    config: *agent_two
    agent_options:
      obs_with_env: true
      process_path: process.py
      env_path: [checking_env.py:CheckingEnv]
  - {node_id: score, node_type: compute, node_role: reward, agent_group: 1, dependencies: [rollout_solver]}
  - {node_id: old_1, node_type: MODEL_TRAIN, node_role: ACTOR, agent_group: 0, only_forward_compute: true,
     dependencies: [score], config: *agent_one}
  - {node_id: old_2, node_type: MODEL_TRAIN, node_role: ACTOR, agent_group: 1, only_forward_compute: true,
     dependencies: [old_1], config: *agent_two}
  - {node_id: ref_1, node_type: MODEL_TRAIN, node_role: REFERENCE, agent_group: 0, dependencies: [old_2],
     config: *agent_one}
  - {node_id: ref_2, node_type: MODEL_TRAIN, node_role: REFERENCE, agent_group: 1, dependencies: [ref_1],
     config: *agent_two}
  - {node_id: value_1, node_type: MODEL_TRAIN, node_role: CRITIC, agent_group: 0, only_forward_compute: true,
     dependencies: [ref_2], config: *agent_one}
  - {node_id: value_2, node_type: MODEL_TRAIN, node_role: CRITIC, agent_group: 1, only_forward_compute: true,
     dependencies: [value_1], config: *agent_two, agent_options: {share_instance: 0}}
  - {node_id: advantages_2, node_type: COMPUTE, node_role: ADVANTAGE, agent_group: 1, dependencies: [value_2]}
  - {node_id: critic_1, node_type: MODEL_TRAIN, node_role: CRITIC, agent_group: 0, dependencies: [advantages_2],
     config: *agent_one}
  - {node_id: critic_2, node_type: MODEL_TRAIN, node_role: CRITIC, agent_group: 1, dependencies: [critic_1],
     config: *agent_two, agent_options: {share_instance: 0}}
  - {node_id: actor_1, node_type: MODEL_TRAIN, node_role: ACTOR, agent_group: 0, dependencies: [critic_2],
     config: *agent_one, agent_options: {train_cycle: 15}}
  - {node_id: actor_2, node_type: MODEL_TRAIN, node_role: ACTOR, agent_group: 1, dependencies: [actor_1],
     config: *agent_two, agent_options: {train_cycle: 15}}
"""
"""Fourteen nodes in one chain: anchors, dotted keys, merge keys, roles on COMPUTE nodes, an env on the last rollout."""

SCRIPT_FLAGS = (
    "algorithm.adv_estimator=gae_marft",
    "data.train_files=/data/train.parquet",
    "data.val_files=/data/test.parquet",
    "data.train_batch_size=128",
    "data.max_prompt_length=10240",
    "data.max_response_length=2048",
    "data.filter_overlong_prompts=True",
    "data.truncation='error'",
    "data.return_raw_chat=True",
    "data.shuffle=False",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct",
    "actor_rollout_ref.model.use_remove_padding=True",
    "actor_rollout_ref.model.enable_gradient_checkpointing=True",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.use_kl_loss=True",
    "actor_rollout_ref.actor.kl_loss_coef=0.01",
    "actor_rollout_ref.actor.kl_loss_type=low_var_kl",
    "actor_rollout_ref.actor.grad_clip=0.5",
    "actor_rollout_ref.actor.clip_ratio=0.2",
    "actor_rollout_ref.actor.fsdp_config.param_offload=False",
    "actor_rollout_ref.ref.fsdp_config.param_offload=True",
    "actor_rollout_ref.rollout.name=sglang",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=4",
    "actor_rollout_ref.rollout.max_model_len=12288",
    "actor_rollout_ref.rollout.agent.rewards_with_env=True",
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=3",
    "actor_rollout_ref.rollout.multi_turn.use_all_traj=False",
    "actor_rollout_ref.rollout.n=1",
    "critic.optim.lr=1e-5",
    "critic.model.path=Qwen/Qwen2.5-3B-Instruct",
    "critic.model.enable_gradient_checkpointing=True",
    "critic.ppo_micro_batch_size_per_gpu=4",
    "algorithm.kl_ctrl.kl_coef=0.001",
    "algorithm.use_kl_in_reward=False",
    "trainer.critic_warmup=0",
    "trainer.logger=['console','tensorboard']",
    "trainer.project_name=team",
    "trainer.n_gpus_per_node=8",
    "trainer.nnodes=1",
    "trainer.save_freq=30",
    "trainer.test_freq=10",
    "trainer.total_epochs=30",
    "trainer.resume_mode=auto",
    "trainer.val_before_train=False",
    "dag.workflow_path=workflow.yaml",
)
"""What a launch script of siiRL gives on its command line."""


def write(folder: Path, text: str, name: str = "workflow.yaml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, text: str, *overrides: str, load_plugins: bool = False) -> Workflow:
    return load_workflow(write(folder, text), overrides, load_plugins=load_plugins)


def faults(folder: Path, text: str, *overrides: str, load_plugins: bool = False) -> list[Finding]:
    """The findings of a workflow that must be refused, without its warnings."""
    with pytest.raises(WorkflowError) as caught:
        load(folder, text, *overrides, load_plugins=load_plugins)
    return [finding for finding in caught.value.findings if finding.is_error]


def only_fault(folder: Path, text: str, *overrides: str, load_plugins: bool = False) -> Finding:
    """The one finding of a workflow that must be refused for one reason."""
    found = faults(folder, text, *overrides, load_plugins=load_plugins)
    assert len(found) == 1, "\n".join(finding.render() for finding in found)
    return found[0]


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """`text` with each first part replaced by its second; each must be there."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def without_node(text: str, node_id: str) -> str:
    """`text` without a node of `TEAM` and without the dependencies on it."""
    head, *nodes = text.split("  - node_id: ")
    kept = [node for node in nodes if not node.startswith(f"{node_id}\n")]
    assert len(kept) == len(nodes) - 1
    joined = "".join([head, *(f"  - node_id: {node}" for node in kept)])
    for old, new in ((f"[{node_id}, ", "["), (f", {node_id}]", "]"), (f", {node_id}, ", ", "), (f"[{node_id}]", "[]")):
        joined = joined.replace(old, new)
    return joined
