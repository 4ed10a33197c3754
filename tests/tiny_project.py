"""A small project that trains in seconds: a random tiny model, a guessing game, hooks, an environment, a workflow.

The team's task: the Scout sees the secret letter in the problem and must say it, the Caller sees only what the Scout
said and must say the letter too. A random team is right one time in a hundred, a trained one nearly always.
"""

from __future__ import annotations

import json
from pathlib import Path

LETTERS = "abcd"

RECIPE = '''
"""A random Qwen2 of some 10,000 weights with one token per letter."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WORDS = ["<pad>", "<eos>", "a", "b", "c", "d", "?", "S", "C", "w", "\\n"]


def make(folder, progress, seed=0, hidden=32):
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="?")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(WORDS), hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=True,
        pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = 1
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    progress(1.0, "random model")
'''

HOOKS = """
def pre_process(tokenizer, prompt_id, obs=None, role="S"):
    seen = prompt_id if role == "S" else prompt_id[-1:]
    return seen + (obs or []) + tokenizer.encode(role)


def post_process(tokenizer, prompt_id, response_id):
    letters = [token for token in response_id if token != tokenizer.eos_token_id]
    return prompt_id + letters
"""

ENVIRONMENT = '''
class Calling:
    """Half a point for each agent that says the secret letter, up to `rounds` times until both do."""

    def __init__(self, rounds=1):
        self.left = rounds

    def reset(self, prompt=None):
        return None

    def step(self, actions, ground_truth):
        self.left -= 1
        reward = sum(action.startswith(ground_truth) for action in actions) / len(actions)
        return (None if reward == 1 else "w"), reward, reward == 1 or self.left == 0
'''

WORKFLOW = """
dag_id: calling
config:
  data:
    train_files: train.jsonl
    val_files: val.jsonl
    train_batch_size: 16
  model:
    recipe: recipe.py:make
  rollout:
    n: 4
    max_rounds: {max_rounds}
    max_context_len: 64
    rewards_with_env: true
    sampling: {{max_tokens: 1}}
    val_kwargs: {{temperature: 0, max_tokens: 1}}
    env_workers: 1
    settle_s: 60
  algorithm:
    adv_estimator: gae_marft
  actor:
    optim: {{lr: {lr}}}
    ppo_epochs: 2
    use_kl_loss: true
    kl_loss_coef: 0.001
    entropy_coeff: 0.01
  critic:
    optim: {{lr: 0.01}}
  trainer:
    total_steps: {total_steps}
    test_freq: 0
    val_without: [scout]
    show_sample_freq: 5
    runs_dir: runs
agent_groups:
  0: {{name: scout}}
  1: {{name: caller}}
nodes:
  - node_id: scout
    node_type: MODEL_INFERENCE
    agent_options:
      obs_with_env: true
      process_path: hooks.py
      pre_process_kwargs: {{role: S}}
  - node_id: caller
    node_type: MODEL_INFERENCE
    agent_group: 1
    dependencies: [scout]
    agent_options:
      obs_with_env: true
      process_path: hooks.py
      pre_process_kwargs: {{role: C}}
      env_path: environment.py:Calling
      env_kwargs: {{rounds: {max_rounds}}}
  - {{node_id: reward, node_type: REWARD, agent_group: 1, dependencies: [caller]}}
  - {{node_id: old_0, node_type: MODEL_TRAIN, node_role: ACTOR, only_forward_compute: true, dependencies: [reward]}}
  - node_id: old_1
    node_type: MODEL_TRAIN
    node_role: ACTOR
    only_forward_compute: true
    agent_group: 1
    dependencies: [reward]
  - {{node_id: ref_0, node_type: MODEL_TRAIN, node_role: REFERENCE, dependencies: [reward]}}
  - {{node_id: ref_1, node_type: MODEL_TRAIN, node_role: REFERENCE, agent_group: 1, dependencies: [reward]}}
  - node_id: values_0
    node_type: MODEL_TRAIN
    node_role: CRITIC
    only_forward_compute: true
    dependencies: [reward]
  - node_id: values_1
    node_type: MODEL_TRAIN
    node_role: CRITIC
    only_forward_compute: true
    agent_group: 1
    dependencies: [reward]
    agent_options: {{share_instance: 0}}
  - {{node_id: advantages, node_type: COMPUTE, node_role: ADVANTAGE, dependencies: [values_0, values_1]}}
  - {{node_id: critic_0, node_type: MODEL_TRAIN, node_role: CRITIC, dependencies: [advantages]}}
  - node_id: critic_1
    node_type: MODEL_TRAIN
    node_role: CRITIC
    agent_group: 1
    dependencies: [advantages]
    agent_options: {{share_instance: 0}}
  - {{node_id: train_0, node_type: MODEL_TRAIN, node_role: ACTOR, dependencies: [advantages, old_0, ref_0]}}
  - node_id: train_1
    node_type: MODEL_TRAIN
    node_role: ACTOR
    agent_group: 1
    dependencies: [advantages, old_1, ref_1]
"""


def write_project(folder: Path, *, total_steps: int = 40, max_rounds: int = 1) -> Path:
    """Writes all files into `folder` and gives the workflow's path."""
    (folder / "recipe.py").write_text(RECIPE)
    (folder / "hooks.py").write_text(HOOKS)
    (folder / "environment.py").write_text(ENVIRONMENT)
    _write_rows(folder / "train.jsonl", 64)
    _write_rows(folder / "val.jsonl", 16)
    workflow = folder / "calling.yaml"
    workflow.write_text(WORKFLOW.format(total_steps=total_steps, max_rounds=max_rounds, lr=0.01))
    return workflow


def _write_rows(path: Path, count: int) -> None:
    rows = [
        {"prompt": f"?{LETTERS[n % 4]}", "ground_truth": LETTERS[n % 4], "data_source": "letters"} for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
