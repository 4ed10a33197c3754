"""The models of a workflow, each built once per owner: policies, references, critics, tokenizers and the generator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagrl.backends import adapters
from dagrl.backends.base import (
    Chat,
    Generator,
    PolicyModel,
    ReferenceModel,
    Tokenizer,
    ValueModel,
    image_tokens_of,
)
from dagrl.backends.hf_critic import HFCritic
from dagrl.backends.hf_generator import HFGenerator
from dagrl.backends.hf_trainer import HFPolicy, HFReference
from dagrl.backends.identity import Identity, critic_identity, policy_identity
from dagrl.backends.loading import load_backbone, load_causal_lm, locate, open_tokenizer, reads_images
from dagrl.backends.memory import Budget, budget_of
from dagrl.backends.network import Network
from dagrl.backends.openai_chat import ChatServer
from dagrl.backends.openai_generator import OpenAIGenerator, Seat
from dagrl.backends.optimizer import Optimizer
from dagrl.backends.recipes import Progress
from dagrl.backends.routing import RoutedGenerator
from dagrl.backends.vision import ImageProcessor
from dagrl.errors import DagrlError
from dagrl.seeds import derive_seed
from dagrl.workflow.graph import Workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.sections import ModelSpec, ServerSpec

MakeGenerator = Callable[[Mapping[int, HFPolicy], Mapping[int, HFPolicy], Workflow], Generator]
"""(policies by agent group, those with initial weights where they speak too, workflow) -> engine."""


def _transformers_engine(
    policies: Mapping[int, HFPolicy], initial: Mapping[int, HFPolicy], workflow: Workflow
) -> Generator:
    spec = workflow.spec.config.rollout
    return HFGenerator(
        policies,
        {group.index: group.name for group in workflow.groups},
        initial=initial,
        max_rows=spec.max_batch_size,
        cache_tokens=spec.prefix_cache_tokens,
        settle_s=spec.settle_s,
        num_nodes=len(workflow.play),
    )


ENGINES: dict[str, MakeGenerator] = {"transformers": _transformers_engine}


class ModelPool:
    """Lookup of models by agent group, and by owner for what is trained and saved."""

    def __init__(
        self,
        *,
        groups: tuple[AgentGroup, ...],
        tokenizers: Mapping[int, Tokenizer],
        policies: Mapping[int, HFPolicy],
        references: Mapping[int, ReferenceModel],
        critics: Mapping[int, HFCritic],
        generator: Generator,
        remote: OpenAIGenerator | None,
        modules: tuple[Any, ...],
    ) -> None:
        self._owners = {group.index: group.critic_owner for group in groups}
        self._tokenizers = dict(tokenizers)
        self._policies = dict(policies)
        self._references = dict(references)
        self._critics = dict(critics)
        self._generator = generator
        self._remote = remote
        self._modules = modules

    def tokenizer(self, group: int) -> Tokenizer:
        return self._tokenizers[group]

    def policy(self, group: int) -> PolicyModel:
        assert group in self._policies, f"a server speaks for agent group {group}"
        return self._policies[group]

    def reference(self, group: int) -> ReferenceModel:
        return self._references[group]

    def critic(self, group: int) -> ValueModel:
        """The critic that `group` uses, its own or a shared one."""
        owner = self._owners[group]
        assert owner is not None, f"agent group {group} has no critic"
        return self._critics[owner]

    @property
    def generator(self) -> Generator:
        return self._generator

    def chat(self, spec: ServerSpec) -> Chat:
        return ChatServer(spec)

    def with_generator(self, generator: Generator) -> ModelPool:
        """The same models, with another generator."""
        pool = copy.copy(self)
        pool._generator = generator
        return pool

    def policies(self) -> dict[int, PolicyModel]:
        """Every agent group's policy, frozen ones too, but for those that a server speaks for."""
        return dict(self._policies)

    def servers(self) -> dict[str, dict[str, str]]:
        """What speaks for agents that are not here, by agent's name: `url`, `model`, how prompts go there."""
        return {} if self._remote is None else self._remote.described()

    def critics(self) -> dict[int, ValueModel]:
        """Critics by the group that owns them."""
        return dict(self._critics)

    def policy_identity(self, group: int) -> Identity:
        """What a policy is; equal ones can take each other's weights."""
        return policy_identity(self._policies[group])

    def critic_identity(self, owner: int) -> Identity:
        return critic_identity(self._critics[owner])

    def budgets(self) -> dict[str, Budget]:
        """How much each model computes at once, by `policy_0`, `critic_1`."""
        budgets = {f"policy_{group}": policy.budget for group, policy in self._policies.items()}
        return budgets | {f"critic_{owner}": critic.budget for owner, critic in self._critics.items()}

    def memory_bytes(self) -> int:
        """Of all weights, each counted once, and of what optimizers hold so far."""
        weights: dict[int, int] = {
            p.data_ptr(): p.numel() * p.element_size() for module in self._modules for p in module.parameters()
        }
        optimizers = sum(policy.num_optimizer_bytes for policy in self._policies.values())
        optimizers += sum(critic.num_optimizer_bytes for critic in self._critics.values())
        return optimizers + sum(weights.values())


def build_pool(workflow: Workflow, *, total_optimizer_steps: Mapping[str, int], progress: Progress) -> ModelPool:
    """Loads every model of `workflow` once per owner; models by recipe are made on first use.

    `total_optimizer_steps` is where schedules end that do not say so themselves, by model (`policy_0`, `critic_1`; one
    not named makes no step); `progress` hears of recipes at work.
    Raises DagrlError where a model cannot be loaded or served.
    """
    rollout = workflow.spec.config.rollout
    if rollout.engine not in ENGINES:
        raise DagrlError(
            f"the engine '{rollout.engine}' is not there", where="rollout.engine", how=f"use {', '.join(ENGINES)}"
        )
    builder = _Builder(
        base=workflow.path.resolve().parent,
        seed=workflow.spec.config.trainer.seed,
        total_steps=total_optimizer_steps,
        progress=progress,
    )
    policies = {group.index: builder.policy(group) for group in workflow.groups if group.server is None}
    tokenizers = {group.index: builder.tokenizer(group.model) for group in workflow.groups}
    references = {g.index: builder.reference(g, policies[g.index]) for g in workflow.groups if g.needs_reference}
    initial = {g.index: builder.initial(g, policies[g.index]) for g in workflow.groups if g.speaks_as_initial}
    critics = {g.index: builder.critic(g) for g in workflow.groups if g.critic is not None}
    for group in workflow.groups:
        if group.critic_owner is not None:
            _check_tokenizers(group, tokenizers[group.index], critics[group.critic_owner].tokenizer)
    remote = _remote(workflow, tokenizers)
    return ModelPool(
        groups=workflow.groups,
        tokenizers=tokenizers,
        policies=policies,
        references=references,
        critics=critics,
        generator=_generator(workflow, policies, initial, remote),
        remote=remote,
        modules=builder.modules(critics.values()),
    )


def _remote(workflow: Workflow, tokenizers: Mapping[int, Tokenizer]) -> OpenAIGenerator | None:
    """The servers of the agents that have one."""
    seats = {
        group.index: Seat(name=group.name, spec=group.server, tokenizer=tokenizers[group.index])
        for group in workflow.groups
        if group.server is not None
    }
    return OpenAIGenerator(seats) if seats else None


def _generator(
    workflow: Workflow,
    policies: Mapping[int, HFPolicy],
    initial: Mapping[int, HFPolicy],
    remote: OpenAIGenerator | None,
) -> Generator:
    """The engine for the agents that are here, the servers for the others."""
    make = ENGINES[workflow.spec.config.rollout.engine]
    if remote is None:
        return make(policies, initial, workflow)
    routes: dict[int, Generator] = {group.index: remote for group in workflow.groups if group.server is not None}
    if policies:
        routes |= dict.fromkeys(policies, make(policies, initial, workflow))
    return RoutedGenerator(routes)


def _check_tokenizers(group: AgentGroup, policys: Any, critics: Any) -> None:
    """A critic is given the agent's ids as they are."""
    if policys.get_vocab() != critics.get_vocab():
        raise DagrlError(
            f"the critic of agent '{group.name}' has another tokenizer than the agent: its ids mean other texts",
            where="critic.model",
            how="give it a model of the same family, or a critic of its own",
        )
    if image_tokens_of(policys) is not None and image_tokens_of(critics) is None:
        raise DagrlError(
            f"agent '{group.name}' reads images and its critic does not",
            where="critic.model",
            how="give it a vision-language model of the same family, or a critic of its own",
        )


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Loads models and remembers those that are frozen, which everyone with an equal spec shares."""

    base: Path
    seed: int
    total_steps: Mapping[str, int]
    progress: Progress
    networks: list[Network] = field(default_factory=list)
    tokenizers: dict[str, Any] = field(default_factory=dict)
    """By their model spec."""
    frozen: dict[str, Network] = field(default_factory=dict)
    """Networks whose own weights never change, by their model spec."""

    def policy(self, group: AgentGroup) -> HFPolicy:
        network, adapter, optimizer = (
            self._trained(group) if group.is_trained else (self._frozen(group.model), None, None)
        )
        return HFPolicy(
            network,
            tokenizer=self.tokenizer(group.model),
            budget=budget_of(group.actor),
            optimizer=optimizer,
            adapter=adapter,
            has_checkpointing=group.model.gradient_checkpointing,
        )

    def reference(self, group: AgentGroup, policy: HFPolicy) -> ReferenceModel:
        return HFReference(self._initial_network(group, policy), budget=policy.budget)

    def initial(self, group: AgentGroup, policy: HFPolicy) -> HFPolicy:
        """The policy as it began, to generate with."""
        return HFPolicy(
            self._initial_network(group, policy),
            tokenizer=self.tokenizer(group.model),
            budget=policy.budget,
            optimizer=None,
            adapter=None,
        )

    def _initial_network(self, group: AgentGroup, policy: HFPolicy) -> Network:
        """The policy's own network with the adapter off, if it has one; else the frozen copy of its model."""
        return self._frozen(group.model) if policy.adapter is None else policy.network

    def critic(self, group: AgentGroup) -> HFCritic:
        assert group.critic is not None and group.critic_model is not None
        spec, model = group.critic, group.critic_model
        common: dict[str, Any] = {
            "tokenizer": self.tokenizer(model),
            "budget": budget_of(spec),
            "optim": spec.optim,
            "total_steps": self.total_steps.get(f"critic_{group.index}", 0),
        }
        if spec.kind == "model":
            location = self._locate(model)
            return HFCritic.with_backbone(
                load_backbone(model, location),
                vision=self._vision(model, location),
                has_checkpointing=model.gradient_checkpointing,
                **common,
            )
        seed = derive_seed(self.seed, "critic", group.index)
        return HFCritic.on_frozen(self._frozen(model), head_hidden=spec.head_hidden, seed=seed, **common)

    def modules(self, critics: Any) -> tuple[Any, ...]:
        """Every module in memory."""
        return (*(network.module for network in self.networks), *(part for c in critics for part in c.modules))

    def _trained(self, group: AgentGroup) -> tuple[Network, str | None, Optimizer]:
        adapter, parameters = None, []
        if group.adapter is None:
            network = self._network(group.model)
            parameters = [p for p in network.module.parameters() if p.requires_grad]
        else:
            network = self._frozen(group.model) if group.adapter.shared_base else self._network(group.model)
            adapter = f"group_{group.index}"
            parameters = adapters.add(
                network,
                adapter,
                group.adapter,
                location=self._locate(group.model),
                seed=derive_seed(self.seed, "adapter", group.index),
            )
        total_steps = self.total_steps.get(f"policy_{group.index}", 0)
        return network, adapter, Optimizer(parameters, group.actor.optim, total_steps=total_steps)

    def _frozen(self, spec: ModelSpec) -> Network:
        key = spec.model_dump_json()
        if key not in self.frozen:
            self.frozen[key] = self._network(spec)
            self.frozen[key].module.requires_grad_(False)
        return self.frozen[key]

    def _network(self, spec: ModelSpec) -> Network:
        location = self._locate(spec)
        vision = self._vision(spec, location)
        self.networks.append(Network(load_causal_lm(spec, location), name=location, vision=vision))
        return self.networks[-1]

    def _vision(self, spec: ModelSpec, location: str) -> ImageProcessor | None:
        """What a model that reads images sees by. Raises DagrlError where it comes with another's tokenizer."""
        if not reads_images(spec, location):
            return None
        processor: ImageProcessor | None = getattr(self.tokenizer(spec), "image_tokens", None)
        if processor is None:
            raise DagrlError(
                f"{location} reads images, and model.tokenizer has no image processor",
                where="model.tokenizer",
                how="leave it out, or give a folder with the processor of this model",
            )
        return processor

    def tokenizer(self, spec: ModelSpec) -> Any:
        key = spec.model_dump_json()
        if key not in self.tokenizers:
            self.tokenizers[key] = open_tokenizer(spec, self.base, self.progress)
        return self.tokenizers[key]

    def _locate(self, spec: ModelSpec) -> str:
        return locate(spec, self.base, self.progress)
