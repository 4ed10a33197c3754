"""Agent groups: who owns a policy and a critic, what each is made of, and in which steps a node trains."""

from __future__ import annotations

from dataclasses import dataclass

from dagrl.workflow.sections import ActorSpec, AdapterSpec, CriticSpec, ModelSpec, ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGroup:
    """One agent, resolved: nothing is looked up in `config` any more."""

    index: int
    name: str
    """In metrics (`agent_<name>/…`) and folders."""
    model: ModelSpec
    server: ServerSpec | None = None
    """What speaks for it in place of a model of ours; `model` then gives the tokenizer alone."""
    adapter: AdapterSpec | None
    actor: ActorSpec
    """Of its TRAIN_ACTOR node; defaults where it has none."""
    is_trained: bool
    """False for a frozen agent: it has no TRAIN_ACTOR node."""
    needs_reference: bool
    """True where a REF_LOGPROBS node reads its initial weights."""
    speaks_as_initial: bool = False
    """True where a CREDIT node puts what its initial weights say in place of its text."""
    critic_owner: int | None
    """The group whose critic it uses (its own index where it owns one); None without a critic."""
    critic: CriticSpec | None
    """What its own critic is made of; None unless it owns one."""
    critic_model: ModelSpec | None
    """The critic's base model; None unless it owns one."""


def trains_in_step(train_cycle: int | None, agent_group: int, step: int, num_groups: int) -> bool:
    """Whether a node of `agent_group` trains in `step` (from 0): blocks of `train_cycle` steps, group by group.

    (step // train_cycle) % num_groups == agent_group, siiRL's alternation; always without a cycle.
    """
    if train_cycle is None:
        return True
    return (step // train_cycle) % num_groups == agent_group
