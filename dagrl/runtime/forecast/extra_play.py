"""How much more than its batch a step plays: what CREDIT nodes, remax and DYNAMIC_SAMPLING nodes ask for, at most."""

from __future__ import annotations

import math

from dagrl.nodes.credit_rules import num_rollouts
from dagrl.workflow.graph import Workflow, players_of
from dagrl.workflow.kinds import NodeKind, asks_for_play


def extra_rollouts(workflow: Workflow) -> dict[str, int]:
    """By node: rollouts in a step that nobody trains on, where every player speaks in every round."""
    config = workflow.spec.config
    prompts, found = config.data.train_batch_size, {}
    for node in workflow.learn:
        if node.kind is NodeKind.CREDIT:
            per_prompt = num_rollouts(
                node.options.credit,
                num_players=len(players_of(workflow)),
                num_rounds=config.rollout.max_rounds,
                num_samples=config.rollout.n,
            )
            found[node.node_id] = prompts * per_prompt
        elif node.kind is NodeKind.ADVANTAGES and asks_for_play(node):
            found[node.node_id] = prompts
    return {name: count for name, count in found.items() if count}


def most_prompts(workflow: Workflow) -> int:
    """That a step can have played."""
    size = workflow.spec.config.data.train_batch_size
    for node in workflow.learn:
        if node.kind is NodeKind.DYNAMIC_SAMPLING:
            options = node.options.dynamic_sampling
            return (1 + options.max_extra_batches) * math.ceil(options.oversample * size)
    return size
