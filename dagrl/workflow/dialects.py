"""siiRL's spelling of a workflow, turned into ours: dotted keys, other names, other words for the same values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dagrl.errors import Finding
from dagrl.workflow.algorithm_section import CHAINED_ESTIMATORS
from dagrl.workflow.sections import ConfigSpec
from dagrl.workflow.spec import NodeRole, NodeType
from dagrl.workflow.tree import (
    Item,
    Key,
    Mark,
    container,
    dotted,
    find,
    finding,
    plain,
    scalar_like,
    with_members,
    without,
)

SHARED_VALUES = "global_config"
"""siiRL's top-level mapping whose values `!Ref` refers to."""

SECTIONS = tuple(ConfigSpec.model_fields)
_WRAPPER = "actor_rollout_ref"
"""siiRL's mapping around `model`, `actor`, `rollout` and `ref`."""

Ignored = list[tuple[str, Mark]]

RENAMED: dict[str, str] = {
    "model.enable_gradient_checkpointing": "model.gradient_checkpointing",
    "critic.model.enable_gradient_checkpointing": "critic.model.gradient_checkpointing",
    "data.max_response_length": "rollout.sampling.max_tokens",
    "data.prompt_key": "data.columns.prompt",
    "rollout.response_length": "rollout.sampling.max_tokens",
    "rollout.temperature": "rollout.sampling.temperature",
    "rollout.top_p": "rollout.sampling.top_p",
    "rollout.top_k": "rollout.sampling.top_k",
    "rollout.min_p": "rollout.sampling.min_p",
    "rollout.max_model_len": "rollout.max_context_len",
    "rollout.multi_turn.max_assistant_turns": "rollout.max_rounds",
    "rollout.multi_turn.use_all_traj": "rollout.use_all_traj",
    "rollout.agent.rewards_with_env": "rollout.rewards_with_env",
    "actor.grad_clip": "actor.optim.grad_clip",
    "actor.loss_agg_mode": "algorithm.loss_agg_mode",
    "actor.policy_loss.loss_mode": "algorithm.policy_loss",
    "actor.optim.lr_warmup_steps": "actor.optim.warmup_steps",
    "actor.optim.warmup_style": "actor.optim.schedule",
    "actor.optim.total_training_steps": "actor.optim.total_steps",
    "critic.grad_clip": "critic.optim.grad_clip",
    "critic.optim.lr_warmup_steps": "critic.optim.warmup_steps",
    "critic.optim.warmup_style": "critic.optim.schedule",
    "critic.optim.total_training_steps": "critic.optim.total_steps",
    "trainer.total_training_steps": "trainer.total_steps",
}
"""siiRL's key → ours, inside `config`."""

_KL_WORDS = {"low_var_kl": "k3", "kl": "k1", "mse": "k2"}
WORDS: dict[str, dict[str, str]] = {
    "actor.kl_loss_type": _KL_WORDS,
    "algorithm.kl_penalty": _KL_WORDS,
    "algorithm.policy_loss": {"vanilla": "ppo"},
}
"""Our key → siiRL's words for its values."""


def _dropped_if_negative(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and value < 0)


def _dropped_if_null(value: Any) -> bool:
    return value is None


LEFT_TO_DEFAULT: dict[str, Callable[[Any], bool]] = {
    "rollout.multi_turn.max_assistant_turns": _dropped_if_null,
    "trainer.total_training_steps": _dropped_if_null,
    "trainer.save_freq": _dropped_if_negative,
    "trainer.test_freq": _dropped_if_negative,
    "actor.optim.lr_warmup_steps": _dropped_if_negative,
    "actor.optim.total_training_steps": _dropped_if_negative,
    "critic.optim.lr_warmup_steps": _dropped_if_negative,
    "critic.optim.total_training_steps": _dropped_if_negative,
}
"""siiRL's key → values that mean "as by default" there (`-1`, null) and here too."""


def _keys(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_RUNTIME = _keys("""strategy ppo_micro_batch_size ppo_micro_batch_size_per_gpu ppo_max_token_len_per_gpu use_dynamic_bsz
forward_micro_batch_size forward_micro_batch_size_per_gpu forward_max_token_len_per_gpu ulysses_sequence_parallel_size
use_torch_compile fsdp_config megatron checkpoint shuffle data_loader_seed use_fused_kernels profiler
log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu log_prob_max_token_len_per_gpu log_prob_use_dynamic_bsz
optim.lr_warmup_steps_ratio""")

_IGNORED: dict[str, tuple[str, ...]] = {
    "": (
        *_keys("ref reward_model custom_reward_function dag ray_init profiler global_profiler"),
        *_keys("hybrid_engine model_params"),
        *_RUNTIME,
    ),
    "actor": _RUNTIME,
    "critic": (*_RUNTIME, "rollout_n", "enable"),
    "model": _keys(
        """external_lib use_remove_padding use_fused_kernels override_config enable_activation_offload use_liger use_shm
        fused_kernel_options model_type"""
    ),
    "critic.model": _keys(
        """external_lib use_remove_padding override_config enable_activation_offload tokenizer_path fsdp_config
        use_shm model_type"""
    ),
    "rollout": _keys(
        """name mode dtype prompt_length load_format tensor_model_parallel_size gpu_memory_utilization max_num_seqs
        max_num_batched_tokens enable_chunked_prefill enforce_eager free_cache_engine disable_log_stats do_sample
        ignore_eos engine_kwargs layered_summon_param multi_turn agent calculate_log_probs pipeline_model_parallel_size
        log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu log_prob_max_token_len_per_gpu
        log_prob_use_dynamic_bsz use_fire_sampling trace update_weights_bucket_megabytes log_prob_micro_batch
        val_kwargs.do_sample disable_custom_all_reduce"""
    ),
    "data": _keys(
        """return_raw_chat return_raw_input_ids return_full_prompt truncation reward_fn_key image_key video_key
        filter_overlong_prompts_workers num_loader_batches tokenizer use_shm custom_cls trust_remote_code
        dataset_type num_workers auto_repeat force_on_the_fly seed"""
    ),
    "algorithm": _keys("norm_adv_by_std_in_grpo filter_groups pf_ppo use_pf_ppo workflow_type algo_name"),
    "trainer": _keys(
        """logger project_name experiment_name n_gpus_per_node nnodes resume_mode resume_from_path default_local_dir
        default_hdfs_dir max_actor_ckpt_to_keep max_critic_ckpt_to_keep del_local_ckpt_after_load balance_batch
        log_val_generations validation_data_dir rollout_data_dir val_only ray_wait_register_center_timeout device
        remove_previous_ckpt_in_save"""
    ),
}
IGNORED = frozenset(f"{section}.{key}".lstrip(".") for section, keys in _IGNORED.items() for key in keys)
"""siiRL's keys of `config` that mean nothing here."""

_IGNORED_OPTIONS = ("agent_name", "num_workers", "custom_async_server", "rewards_with_env")
_IGNORED_NODE_KEYS = ("filter_plugin", "retry_limit", "user_options")
_ROLE_WORDS = {"POSTPROCESS_SAMPLING": NodeRole.DYNAMIC_SAMPLING.value}
_FREE_FORM = frozenset({"model.recipe_kwargs", "critic.model.recipe_kwargs", "data.columns"})
"""Mappings whose keys are the user's own; dots in them are kept."""


def normalise(root: Item, findings: list[Finding], ignored: Ignored) -> Item:
    """The whole file in our spelling. What is no mapping or list where one must be is left for the schema to refuse."""
    config, nodes = root.value.get("config"), root.value.get("nodes")
    if config is not None:
        root = with_members(root, config=normalise_config(config, "config", "", findings, ignored))
    if nodes is not None and isinstance(nodes.value, list):
        members = [_node(node, findings, ignored) for node in nodes.value]
        root = with_members(root, nodes=container(members, nodes.mark, nodes.key))
    return root


def _node(node: Item, findings: list[Finding], ignored: Ignored) -> Item:
    if not isinstance(node.value, dict):
        return node
    name = plain(node.value["node_id"]) if "node_id" in node.value else "?"
    node = _dropped(node, _IGNORED_NODE_KEYS, "", ignored)
    node = _in_capitals(_in_capitals(node, "node_type"), "node_role")
    options, config = node.value.get("agent_options"), node.value.get("config")
    if options is not None and isinstance(options.value, dict):
        node = with_members(node, agent_options=_dropped(options, _IGNORED_OPTIONS, "agent_options.", ignored))
    if config is None or _is_free_form(node):
        return node
    section = "critic" if _word(node, "node_role") == NodeRole.CRITIC else ""
    return with_members(node, config=normalise_config(config, f"nodes.{name}.config", section, findings, ignored))


def _is_free_form(node: Item) -> bool:
    """The `config` of a COMPUTE node with the user's own function belongs to that function."""
    is_default = _word(node, "node_role") in (None, NodeRole.DEFAULT)
    return _word(node, "node_type") == NodeType.COMPUTE and is_default


def _word(node: Item, key: str) -> Any:
    return plain(node.value[key]) if key in node.value else None


def _in_capitals(node: Item, key: str) -> Item:
    named = node.value.get(key)
    if named is None or not isinstance(named.value, str):
        return node
    word = named.value.strip().upper()
    return with_members(node, **{key: scalar_like(named, _ROLE_WORDS.get(word, word))})


def _dropped(item: Item, keys: tuple[str, ...], place: str, ignored: Ignored) -> Item:
    for key in keys:
        if key in item.value:
            ignored.append((f"{place}{key}", item.value[key].key or item.value[key].mark))
    return without(item, *keys)


def normalise_config(config: Item, place: str, section: str, findings: list[Finding], ignored: Ignored) -> Item:
    """A `config` mapping in our spelling. `section` is where keys without one belong (`critic` in CRITIC nodes)."""
    if not isinstance(config.value, dict):
        return config
    walk = _Walk(place, section, findings, ignored)
    draft = _Draft(config.mark, config.key)
    walk.members(config, (), draft)
    return draft.item()


@dataclass(slots=True)
class _Draft:
    """A mapping that is being put together."""

    mark: Mark
    key: Mark | None
    members: dict[Key, _Draft | Item] = field(default_factory=dict)

    def put(self, path: tuple[str, ...], item: Item) -> bool:
        """Sets the value at `path`; false where another value is there already."""
        first, *rest = path
        there = self.members.get(first)
        if not rest:
            if there is not None and not (isinstance(there, Item) and plain(there) == plain(item)):
                return False
            self.members[first] = item
            return True
        if there is None:
            there = self.members[first] = _Draft(item.key or item.mark, item.key)
        return isinstance(there, _Draft) and there.put(tuple(rest), item)

    def open(self, path: tuple[str, ...], item: Item) -> None:
        """Makes the mapping at `path` exist, so that it has the place where it was written."""
        first, *rest = path
        if first not in self.members:
            self.members[first] = _Draft(item.mark, item.key)
        inner = self.members[first]
        if rest and isinstance(inner, _Draft):
            inner.open(tuple(rest), item)

    def item(self) -> Item:
        members = {key: one if isinstance(one, Item) else one.item() for key, one in self.members.items()}
        return container(members, self.mark, self.key)


@dataclass(slots=True)
class _Walk:
    """Goes through a `config` mapping and puts each value where we keep it."""

    place: str
    section: str
    findings: list[Finding]
    ignored: Ignored

    def members(self, item: Item, path: tuple[str, ...], draft: _Draft) -> None:
        for key, member in item.value.items():
            parts = tuple(part for part in str(key).split(".") if part) or (str(key),)
            self.member(member, self.full(path + parts), draft)

    def full(self, path: tuple[str, ...]) -> tuple[str, ...]:
        if path[0] == _WRAPPER:
            return path[1:]
        is_own = path[0] in SECTIONS and not (self.section and path[0] == "model")
        if not self.section or is_own or path[0] in _IGNORED[""]:
            return path
        return (self.section, *path)

    def member(self, member: Item, path: tuple[str, ...], draft: _Draft) -> None:
        name = dotted(path)
        is_leaf = name in _FREE_FORM or name in RENAMED or not isinstance(member.value, dict)
        if not path:
            self.members(member, path, draft)
        elif _is_ignored(path):
            self.skip(path, member)
        elif is_leaf:
            self.leaf(member, path, draft)
        else:
            if name not in IGNORED:
                draft.open(path, member)
            self.members(member, path, draft)

    def skip(self, path: tuple[str, ...], member: Item) -> None:
        if isinstance(member.value, dict) and member.value:
            for key, inner in member.value.items():
                self.skip((*path, str(key)), inner)
        else:
            self.ignored.append((dotted(path), member.key or member.mark))

    def leaf(self, member: Item, path: tuple[str, ...], draft: _Draft) -> None:
        name = dotted(path)
        if name in LEFT_TO_DEFAULT and LEFT_TO_DEFAULT[name](plain(member)):
            return
        target = RENAMED.get(name, name)
        if isinstance(member.value, str) and member.value in WORDS.get(target, {}):
            member = scalar_like(member, WORDS[target][member.value])
        if not draft.put(tuple(target.split(".")), member):
            message, field = f"'{target}' is given twice with two values", f"{self.place}.{name}"
            self.findings.append(finding("E103", message, member.key or member.mark, field))


def _is_ignored(path: tuple[str, ...]) -> bool:
    """True where the key or a mapping around it means nothing here, and neither does anything below it."""
    has_meaning = any(f"{known}.".startswith(f"{dotted(path)}.") for known in RENAMED)
    return not has_meaning and any(dotted(path[:end]) in IGNORED for end in range(1, len(path) + 1))


# What is settled only when the whole configuration is known

_SHARE = "algorithm.share_reward_in_agent"


def settle(root: Item, findings: list[Finding]) -> Item:
    """`algorithm.share_reward_in_agent` into `reward_mode`, after files and overrides are merged.

    true is `chained` where the estimator chains and `team` elsewhere, never both; false is `chained`: only the last
    turn carries the reward.
    """
    algorithm = find(root, ("config", "algorithm"))
    if algorithm is None or not isinstance(algorithm.value, dict) or "share_reward_in_agent" not in algorithm.value:
        return root
    shared = algorithm.value["share_reward_in_agent"]
    estimator = plain(algorithm.value["adv_estimator"]) if "adv_estimator" in algorithm.value else CHAINED_ESTIMATORS[0]
    place = f"config.{_SHARE}"
    settled = without(algorithm, "share_reward_in_agent")
    if not isinstance(shared.value, bool):
        findings.append(finding("E103", f"must be true or false, got {shared.value!r}", shared.mark, place))
    elif "reward_mode" in algorithm.value:
        message = "share_reward_in_agent and reward_mode say the same thing: give one"
        findings.append(finding("E103", message, shared.key or shared.mark, place))
    else:
        mode = "team" if shared.value and estimator not in CHAINED_ESTIMATORS else "chained"
        settled = with_members(settled, reward_mode=replace(shared, value=mode))
    config = with_members(root.value["config"], algorithm=settled)
    return with_members(root, config=config)
