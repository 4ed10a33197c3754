"""The typed mirror of a workflow file: its nodes, its agents and the whole of it. Frozen."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from dagrl.workflow.extra_play_section import CreditSpec, DynamicSamplingSpec
from dagrl.workflow.fields import Count, Paths, PositiveInt, Spec
from dagrl.workflow.reward_options import OutcomeWeights, RewardPartSpec
from dagrl.workflow.sections import (
    AdapterSpec,
    ConfigSpec,
    CriticSpec,
    ModelSpec,
    OptimSpec,
    SamplingOverride,
    ServerSpec,
)


class NodeType(StrEnum):
    MODEL_INFERENCE = "MODEL_INFERENCE"
    MODEL_TRAIN = "MODEL_TRAIN"
    ENV = "ENV"
    REWARD = "REWARD"
    COMPUTE = "COMPUTE"


class NodeRole(StrEnum):
    ROLLOUT = "ROLLOUT"
    ACTOR = "ACTOR"
    CRITIC = "CRITIC"
    REFERENCE = "REFERENCE"
    REWARD = "REWARD"
    CREDIT = "CREDIT"
    ADVANTAGE = "ADVANTAGE"
    ENV = "ENV"
    DYNAMIC_SAMPLING = "DYNAMIC_SAMPLING"
    DEFAULT = "DEFAULT"


class AgentGroupSpec(Spec):
    """One agent. What is not given comes from `config`."""

    name: str | None = None
    """Name in metrics and reports; the group's number if not given."""
    model: ModelSpec | None = None
    """This agent's model."""
    adapter: AdapterSpec | None = None
    """Trains a LoRA adapter instead of all weights."""
    optim: OptimSpec | None = None
    """Optimizer and schedule of this agent's policy."""
    server: ServerSpec | None = None
    """A server that speaks for this agent, which is not trained; `model` then gives the tokenizer alone."""
    sampling: SamplingOverride | None = None
    """What this agent samples otherwise."""
    critic: CriticSpec | None = None
    """This agent's critic."""


class AgentOptions(Spec):
    process_path: str | None = None
    """`path/to/process.py` with `pre_process` and/or `post_process`."""
    pre_process_kwargs: dict[str, Any] = {}
    """Keyword arguments for `pre_process`."""
    post_process_kwargs: dict[str, Any] = {}
    """Keyword arguments for `post_process`."""
    env_path: Paths = ()
    """`path.py:Class` of the environments that this node steps, in order."""
    env_kwargs: dict[str, Any] = {}
    """Keyword arguments for the environment's constructor."""
    obs_with_env: bool = False
    """The agent acts on the environment and gets its observation."""
    needs_obs: bool = False
    """The agent speaks only in rounds in which an environment has an observation for it: games of turns."""
    train_cycle: PositiveInt | None = None
    """The node runs only in steps with (step // train_cycle) % number of agent groups == agent_group."""
    share_instance: Count | None = None
    """Uses the model instance that the same role of this group has; 0 is a group like any other."""
    num_parallel: PositiveInt = 1
    """How many times the node speaks at once in one trajectory; a branch that fails is left out."""
    when: str | None = None
    """`path.py:function(trajectory) -> bool`; false skips the node in this round."""
    sampling: SamplingOverride = SamplingOverride()
    """What this node samples otherwise than its agent."""
    role_name: str | None = None
    """Name in conversations that are shown, and in pictures; the node's id if not given."""
    reward_kwargs: dict[str, Any] = {}
    """Keyword arguments for the function of a REWARD or CREDIT node."""
    rewards: tuple[RewardPartSpec, ...] = ()
    """Sums up these instead of one function. The first is the outcome: held-out problems are judged by it alone."""
    correct_reward_weight: float | dict[str, float] = 1.0
    """Multiplies the rewards of all turns where the outcome is 1 or more; or a weight for each rollout node."""
    incorrect_reward_weight: float | dict[str, float] = 1.0
    """The same where it is less."""
    outcome_node: str | None = None
    """Whose last turn says which of the two holds, by its reward; the team's number or the last turn, if not given."""
    combine: Literal["replace", "add"] = "replace"
    """REWARD node together with `rewards_with_env`: `add` adds to the environment's rewards."""
    credit: CreditSpec = CreditSpec()
    """How a CREDIT node shares the team's reward out."""
    dynamic_sampling: DynamicSamplingSpec = DynamicSamplingSpec()
    """What a DYNAMIC_SAMPLING node keeps, and how it asks for more."""

    @property
    def outcome_weights(self) -> OutcomeWeights:
        return OutcomeWeights(
            correct=self.correct_reward_weight,
            incorrect=self.incorrect_reward_weight,
            outcome_node=self.outcome_node,
        )


class NodeSpec(Spec):
    """One node. `config` holds this node's overrides of the sections below, already merged into `merged`."""

    node_id: Annotated[str, Field(min_length=1)]
    """Unique name; what `dependencies` and overrides refer to."""
    node_type: NodeType
    """In any case."""
    node_role: NodeRole | None = None
    """By default what the type says: ROLLOUT, ENV, REWARD, ACTOR, DEFAULT."""
    agent_group: Count = 0
    """The agent it belongs to; groups are numbered from 0 without a gap."""
    dependencies: tuple[str, ...] = ()
    """Nodes that must be done before, by id."""
    only_forward_compute: bool = False
    """ACTOR: log-probs before the update; CRITIC: values. Nothing is trained."""
    config: dict[str, Any] = {}
    """Overrides of `actor`, `critic`, `rollout`, `algorithm` or `model` for this node, nested or dotted."""
    agent_options: AgentOptions = AgentOptions()
    """Options of this node."""
    executable_ref: str | None = None
    """`path.py:function` or `package.module:function`."""


class WorkflowSpec(Spec):
    dag_id: Annotated[str, Field(min_length=1)]
    """Names the run and its folder."""
    description: str = ""
    """Free text."""
    agent_groups: dict[int, AgentGroupSpec] = {}
    """Group number → its agent. May be left out: then every group takes `config` as it is."""
    config: ConfigSpec = ConfigSpec()
    """Settings of the whole run, section by section."""
    nodes: Annotated[tuple[NodeSpec, ...], Field(min_length=1)]
    """The graph."""
