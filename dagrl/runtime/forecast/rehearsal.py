"""A rehearsal of the play graph: real prompts, hooks and context limits, no model, silent environments.

Every response is as long as it may be and every round is played, so what a run will generate is at most this; only what
environments say makes prompts longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from dagrl.backends.base import Generator, Tokenizer
from dagrl.backends.recorded import MuteGenerator
from dagrl.experience import last_rounds
from dagrl.nodes.base import TrajectoryFault
from dagrl.nodes.transcript import Scribe
from dagrl.runtime.conversation import Conversation, Scene, Stage
from dagrl.runtime.plan import PlayPlan, make_plan
from dagrl.runtime.player import rollout_nodes
from dagrl.types import Completion, FinishReason, GenerationRequest, Task, Trajectory
from dagrl.workflow.graph import Workflow

TokenizerOf = Callable[[int], Tokenizer]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSize:
    """Tokens of one turn."""

    group: int
    prompt: int
    response: int
    is_trained: bool
    """False where `use_all_traj` leaves it out."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """The turns of some conversations."""

    num_trajectories: int = 0
    turns: dict[str, list[TurnSize]] = field(default_factory=dict)
    """By rollout node."""
    hook_calls: int = 0
    faults: list[str] = field(default_factory=list)
    """What hooks said that could not do with made-up responses; these conversations are left out."""

    def of(self, groups: Iterable[int]) -> list[TurnSize]:
        wanted = set(groups)
        return [turn for turns in self.turns.values() for turn in turns if turn.group in wanted]


class _Filler(MuteGenerator):
    """Answers every request at full length with one token over and over: the last of the prompt."""

    async def generate(self, request: GenerationRequest) -> Completion:
        length = request.params.max_tokens
        return Completion(
            token_ids=request.prompt_ids[-1:] * length,
            logprobs=(0.0,) * length,
            finish_reason=FinishReason.LENGTH,
            policy_version=0,
        )


@dataclass(frozen=True, slots=True)
class _Cast:
    """Real tokenizers, and the filler for every model."""

    tokenizer: TokenizerOf
    generator: Generator


def rehearse(
    workflow: Workflow, tasks: Sequence[Task], tokenizer_of: TokenizerOf, sampling: Literal["train", "val"] = "train"
) -> Rehearsal:
    """Plays one conversation about each of `tasks`."""
    config = workflow.spec.config
    plan = _without_environments(make_plan(workflow))
    stage = Stage(
        plan=plan,
        rollouts=rollout_nodes(workflow, plan, _Cast(tokenizer_of, _Filler()), run_seed=config.trainer.seed),
        envs={},
        scribe=Scribe(tokenizer_of),
        max_rounds=config.rollout.max_rounds,
        env_text=config.rollout.env_text,
        env_reward_mode=None,
    )
    found = Rehearsal(turns={name: [] for name in plan.rollouts})
    scene = Scene(sampling=sampling)
    for task in tasks:
        conversation = Conversation(stage, scene, Trajectory(task=task, sample=0, step=0))
        try:
            played = asyncio.run(conversation.play())
        except TrajectoryFault as fault:
            found.faults.append(fault.message)
            continue
        finally:
            found.hook_calls += conversation.usage.hook_calls
        found.num_trajectories += 1
        for turn, is_trained in zip(played.turns, last_rounds(played, config.rollout.use_all_traj), strict=True):
            size = TurnSize(
                group=turn.agent_group,
                prompt=len(turn.prompt_ids),
                response=len(turn.response_ids),
                is_trained=is_trained,
            )
            found.turns[turn.node_id].append(size)
    return found


def _without_environments(plan: PlayPlan) -> PlayPlan:
    """The plan with each environment's place taken by what it waits for."""

    def through(names: Sequence[str], by: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        expanded = [through(by[name], by) if name in plan.envs else (name,) for name in names]
        return tuple(dict.fromkeys(name for part in expanded for name in part))

    units = tuple(unit for unit in plan.units if unit not in plan.envs)
    return replace(
        plan,
        units=units,
        envs={},
        waits={unit: through(plan.waits[unit], plan.waits) for unit in units},
        needs={unit: through(plan.needs[unit], plan.needs) for unit in units},
        ancestors={unit: plan.ancestors[unit] - plan.envs.keys() for unit in units},
    )
