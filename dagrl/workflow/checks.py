"""All checks of a workflow, in tables: one small function per rule, each giving its findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dagrl.errors import Finding
from dagrl.workflow import (
    checks_credit,
    checks_estimators,
    checks_files,
    checks_graph,
    checks_held_out,
    checks_insight,
    checks_learning,
    checks_options,
    checks_plugins,
    checks_rewards,
    checks_sampling,
    checks_settings,
    checks_traps,
)
from dagrl.workflow.facts import Facts
from dagrl.workflow.outline import Outline

OUTLINE_CHECKS: tuple[Callable[[Outline], list[Finding]], ...] = (
    checks_graph.unique_ids,
    checks_graph.known_dependencies,
    checks_graph.no_cycles,
    checks_graph.groups_without_gaps,
    checks_graph.kinds,
    checks_options.options_on_their_kinds,
    checks_options.executable_refs,
    checks_options.sharing_of_critics_only,
    checks_options.group_names,
    checks_options.engine,
    checks_options.server_addresses,
    checks_learning.known_names,
    checks_rewards.known_rewards,
)
"""What can be said of the file alone."""

CHECKS: tuple[Callable[[Facts], list[Finding]], ...] = (
    checks_graph.play_before_learn,
    checks_graph.groups_that_speak,
    checks_graph.columns_have_writers,
    checks_graph.columns_written_once,
    checks_graph.models_trained_after_reading,
    checks_graph.models_trained_once,
    checks_graph.edges_carry_data,
    checks_graph.work_is_used,
    checks_options.environments_in_place,
    checks_options.observations_from_an_environment,
    checks_settings.kwargs_have_a_function,
    checks_settings.group_settings_have_effect,
    checks_settings.adapters_without_dropout,
    checks_settings.servers_speak_for_frozen_agents,
    checks_settings.node_keys_have_effect,
    checks_options.train_cycles_agree,
    checks_options.cycles_train_somebody,
    checks_options.one_model_per_group,
    checks_options.one_way_to_update_a_critic,
    checks_options.critics_share_a_tokenizer,
    checks_options.node_config_has_effect,
    checks_options.val_without_names_rollouts,
    checks_held_out.held_out_sets_are_told_apart,
    checks_held_out.the_set_that_counts_is_there,
    checks_insight.role_gradients_have_roles,
    checks_insight.probes_have_listeners,
    checks_rewards.rewards_come_from_somewhere,
    checks_rewards.reward_counted_once,
    checks_rewards.reward_reaches_all,
    checks_learning.one_chain,
    checks_rewards.reward_nodes_have_effect,
    checks_rewards.one_reward_node,
    checks_rewards.reward_weights_name_rollouts,
    checks_learning.critics_are_trained,
    checks_learning.update_order,
    checks_estimators.losses_fit_their_level,
    checks_estimators.sequences_have_one_advantage,
    checks_estimators.moments_are_to_the_sampler,
    checks_estimators.corrections_have_two_policies,
    checks_estimators.groups_have_members,
    checks_estimators.greedy_rollouts_differ,
    checks_estimators.turns_are_compared_as_turns,
    checks_estimators.grouping_has_effect,
    checks_estimators.loss_options_have_effect,
    checks_traps.known_traps,
    checks_sampling.one_sampling_node,
    checks_sampling.sampling_comes_first,
    checks_sampling.samples_can_differ,
    checks_credit.one_credit_node,
    checks_credit.credit_comes_between,
    checks_credit.credit_counted_once,
    checks_credit.credit_rules,
    checks_learning.budgets,
    checks_learning.kl_options_have_effect,
    checks_learning.options_have_effect,
)
"""What needs resolved nodes and groups."""

PLUGIN_CHECKS: tuple[Callable[[Facts], list[Finding]], ...] = (
    checks_plugins.hooks,
    checks_plugins.environments,
    checks_plugins.functions,
)
"""What loads the user's code."""


def of_outline(outline: Outline) -> list[Finding]:
    return [found for check in OUTLINE_CHECKS for found in check(outline)]


def of_facts(facts: Facts) -> list[Finding]:
    return [found for check in CHECKS for found in check(facts)]


def of_files(facts: Facts) -> list[Finding]:
    """Whether the user's files are there, without running them: what `validate` does unless it is `--deep`."""
    return checks_files.named_code_exists(facts)


def of_plugins(facts: Facts) -> list[Finding]:
    return [found for check in PLUGIN_CHECKS for found in check(facts)]


class Checked(Protocol):
    """A workflow that passed the checks."""

    @property
    def facts(self) -> Facts: ...


def check_runnable(workflow: Checked) -> list[Finding]:
    """What is missing to run the workflow: data and models, which a file may leave to the command line."""
    return checks_learning.needed_to_run(workflow.facts)
