"""Conversation: one trajectory played from its prompt to its end."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from dagrl.environments.protocol import EnvAnswer
from dagrl.errors import DagrlError
from dagrl.nodes.base import ContextFull, Cue, Part, TrajectoryFault
from dagrl.nodes.env import EnvNode, EnvSession
from dagrl.nodes.rollout import RolloutNode
from dagrl.nodes.transcript import PROMPT, Heard, Scribe, Transcript
from dagrl.nodes.usage import Usage
from dagrl.runtime.env_rewards import Action, place_rewards, team_reward
from dagrl.runtime.handover import Handover, Outcome, Round, Status
from dagrl.runtime.plan import EnvUnit, PlayPlan
from dagrl.types import AS_SAMPLED, Image, Observation, StopReason, Trajectory, Turn, Variation
from dagrl.workflow.held_out import VAL, HeldOutSet
from dagrl.workflow.kinds import RewardPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all conversations of a run share."""

    plan: PlayPlan
    rollouts: Mapping[str, RolloutNode]
    envs: Mapping[str, EnvNode]
    """By unit."""
    scribe: Scribe
    max_rounds: int
    env_text: Literal["response", "transcript"]
    env_reward_mode: RewardPlacement | None
    """None: the rewards of environments are only written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What differs between rollouts of one sample."""

    sampling: Literal["train", "val"]
    held_out: HeldOutSet = VAL
    """The set of a held-out rollout, which may sample in its own way."""
    variation: Variation = AS_SAMPLED
    known: Mapping[tuple[str, int], Mapping[int, Turn]] = field(default_factory=dict)
    """By rollout node and round, then by branch: what was said in the sample that is varied."""

    def part(self, name: str, round: int) -> Part:
        """How a rollout node is to speak in a round."""
        varied = self.variation
        draw, is_initial, text = draw_of(varied, name, round), name in varied.initial, varied.said.get(name)
        is_as_before = not draw and not is_initial and text is None and not varied.is_greedy
        known = self.known.get((name, round), {}) if is_as_before else {}
        return Part(text=text, is_initial=is_initial, draw=draw, known=known)


def draw_of(variation: Variation, node_id: str, round: int) -> int:
    """Which draw of the turn of a rollout node in a round is asked for; 0 is the sample's."""
    redrawn = variation.redrawn
    return redrawn[2] if redrawn is not None and redrawn[:2] == (node_id, round) else 0


_URGENCY = (StopReason.TERMINATED, StopReason.ENV_TRUNCATED, StopReason.MAX_CONTEXT)
"""Which reason counts where one round gives several."""


class Conversation:
    """Plays one trajectory; nothing of it is shared with another."""

    def __init__(self, stage: Stage, scene: Scene, trajectory: Trajectory, *, is_alone: bool = False) -> None:
        """`is_alone`: its environments live in processes of their own."""
        self._is_alone = is_alone
        self.trajectory = trajectory
        self.close_faults: list[str] = []
        self.usage = Usage()
        """What it has used so far."""
        self.legs: list[tuple[str, float, float]] = []
        """Units of the play graph and resets, each from when to when (`time.perf_counter`)."""
        self.context_message = ""
        """Why the context was full, where it was."""
        self._stage = stage
        self._plan = stage.plan
        self._scene = scene
        self._handover = Handover(stage.plan, stage.scribe, trajectory.task)
        self._sessions: dict[str, EnvSession] = {}
        self._said: dict[str, EnvAnswer] = {}
        """The latest answer of each environment."""
        self._num_said: dict[str, int] = {}

    async def play(self) -> Trajectory:
        """The finished trajectory. Raises `TrajectoryFault` where user code broke it; all environments are closed."""
        started = time.perf_counter()
        self._show(self.trajectory.task.images)
        try:
            await self._reset()
            start = PROMPT
            for round in range(self._stage.max_rounds):
                start = await self._play_round(round, start)
                self.trajectory.num_rounds = round + 1
                if self.trajectory.stop_reason is not None:
                    break
            else:
                has_env = bool(self._plan.envs)
                self.trajectory.stop_reason = StopReason.MAX_ROUNDS if has_env else StopReason.TERMINATED
        finally:
            for session in self._sessions.values():
                self.close_faults += await session.close()
        self.trajectory.seconds = time.perf_counter() - started
        return self.trajectory

    async def _reset(self) -> None:
        for unit, node in self._stage.envs.items():
            self._sessions[unit] = node.session(self.trajectory, usage=self.usage, is_alone=self._is_alone)
            started = time.perf_counter()
            self._hear(unit, await self._sessions[unit].reset())
            self.legs.append((f"{unit} reset", started, time.perf_counter()))

    def _hear(self, unit: str, answer: EnvAnswer) -> None:
        self._show(answer.images)
        self._said[unit] = answer
        self._num_said[unit] = self._num_said.get(unit, 0) + 1

    def _show(self, images: Sequence[Image]) -> None:
        """From now on transcripts may hold these images."""
        if images and self._stage.env_text == "transcript":
            raise DagrlError(
                "images are shown, and a transcript that environments rewrite holds texts alone",
                where="config.rollout.env_text",
                how="use 'response'",
            )
        for image in images:
            if self.trajectory.images.setdefault(image.handle, image) != image:
                raise TrajectoryFault("image_clash", "two images of the trajectory have the same handle")

    async def _play_round(self, round: int, start: Transcript) -> Transcript:
        one = Round(round=round, start=start)
        try:
            async with asyncio.TaskGroup() as tasks:
                for unit in self._plan.units:
                    one.tasks[unit] = tasks.create_task(self._run_unit(one, unit))
        except BaseExceptionGroup as group:
            raise _first_leaf(group) from None
        return self._finish_round(one)

    async def _run_unit(self, one: Round, unit: str) -> None:
        for other in self._plan.waits[unit]:
            await one.tasks[other]
        started = time.perf_counter()
        one.outcomes[unit] = await self._outcome_of(one, unit)
        self.legs.append((unit, started, time.perf_counter()))

    async def _outcome_of(self, one: Round, unit: str) -> Outcome:
        before = [one.outcomes[other] for other in self._plan.waits[unit]]
        if any(other.status is Status.HALTED or other.stop is not None for other in before):
            return Outcome(status=Status.HALTED)
        needs = self._plan.needs[unit]
        if needs and all(one.outcomes[other].status is Status.SKIPPED for other in needs):
            return Outcome(status=Status.SKIPPED)
        try:
            if unit in self._plan.envs:
                return await self._step_env(one, self._plan.envs[unit])
            return await self._speak(one, self._stage.rollouts[unit])
        except TrajectoryFault as fault:
            return Outcome(status=Status.HALTED, fault=fault)

    async def _speak(self, one: Round, rollout: RolloutNode) -> Outcome:
        name = rollout.node.node_id
        view = self._view(one, name)
        if not await rollout.is_wanted(view, self.usage):
            return Outcome(status=Status.SKIPPED)
        obs = self._observations(name)
        if rollout.node.options.needs_obs and not obs:
            return Outcome(status=Status.SKIPPED)
        context = self._handover.context(one, name, takes_inputs=rollout.hooks.takes_inputs)
        if not rollout.hooks.has_pre and self._stage.env_text == "response":
            for heard in obs:
                context = self._stage.scribe.add_observation(
                    context, heard, rollout.node.agent_group, self.trajectory.task
                )
            obs = []
        context = self._stage.scribe.translate(context, rollout.node.agent_group, self.trajectory.task)
        if name in self._scene.variation.silent:
            return Outcome(status=Status.LEFT_OUT, context=context)
        node, is_training = rollout.node, self._scene.sampling == "train"
        held_out = self._scene.held_out
        params = node.sampling if is_training else held_out.params(node.val_sampling)
        cue = Cue(
            trajectory=view,
            round=one.round,
            context_ids=context.ids,
            obs="\n".join(text for _, _, text in obs) if obs else None,
            inputs=self._handover.inputs(one, name),
            params=replace(params, temperature=0.0) if self._scene.variation.is_greedy else params,
            seed=node.sampling_seed if is_training else held_out.seed(node.val_sampling_seed),
            part=self._scene.part(name, one.round),
            usage=self.usage,
        )
        try:
            turns = await rollout.act(cue)
        except ContextFull as full:
            self.context_message = str(full)
            return Outcome(status=Status.HALTED, stop=StopReason.MAX_CONTEXT)
        return Outcome(status=Status.DONE, context=context, turns=turns)

    def _observations(self, name: str) -> list[Heard]:
        """What environments said last to a rollout node."""
        found: list[Heard] = []
        for unit, env in self._plan.envs.items():
            is_rewritten = self._stage.env_text == "transcript" and name == env.actors[-1]
            heard = self._heard(env, self._said[unit])
            if name in heard and not is_rewritten:
                found.append((unit, self._num_said[unit], heard[name]))
        return found

    def _heard(self, env: EnvUnit, answer: EnvAnswer) -> dict[str, str]:
        """What an answer says to each rollout node: by the places of who acts, by the group of who only listens."""
        heard: dict[str, str] = {}
        for name, text in zip((node_id for node_id, _ in env.places), answer.seat_texts):
            if text is not None:
                heard[name] = text
        for name in env.hearers:
            group = self._plan.rollouts[name].agent_group
            if name not in env.actors and group in answer.texts:
                heard[name] = answer.texts[group]
        return heard

    def _view(self, one: Round, unit: str) -> Trajectory:
        """A copy of the trajectory as a unit may know it: earlier rounds, and of this round what it waited for."""
        known = [name for name in self._plan.units if name in self._plan.ancestors[unit]]
        turns = [turn for name in known for turn in one.outcomes[name].turns]
        return replace(
            self.trajectory,
            turns=[copy.copy(turn) for turn in (*self.trajectory.turns, *turns)],
            observations=[*self.trajectory.observations, *self._observed(one, known)],
        )

    async def _step_env(self, one: Round, env: EnvUnit) -> Outcome:
        if not await self._stage.envs[env.unit].is_wanted(self._view(one, env.unit), self.usage):
            return Outcome(status=Status.SKIPPED)
        started = time.perf_counter()
        texts = self._handover.action_texts(one, env, as_transcripts=self._stage.env_text == "transcript")
        answer = await self._sessions[env.unit].step(texts)
        self._hear(env.unit, answer)
        stop = StopReason.ENV_TRUNCATED if answer.truncated else None
        return Outcome(
            status=Status.DONE,
            answer=answer,
            stop=StopReason.TERMINATED if answer.terminated else stop,
            seconds=time.perf_counter() - started,
        )

    def _finish_round(self, one: Round) -> Transcript:
        """Writes the round into the trajectory in the order of the plan, and gives what the next one starts from."""
        turns = [turn for unit in self._plan.units for turn in one.outcomes[unit].turns]
        self.trajectory.turns += turns
        self.trajectory.observations += self._observed(one, self._plan.units)
        for unit in self._plan.units:
            fault = one.outcomes[unit].fault
            if fault is not None:
                raise fault
        for unit, env in self._plan.envs.items():
            self._reward(env, one.outcomes[unit].answer, turns)
        stops = {outcome.stop for outcome in one.outcomes.values()}
        self.trajectory.stop_reason = next((reason for reason in _URGENCY if reason in stops), None)
        return one.start if self.trajectory.stop_reason is not None else self._next_start(one)

    def _next_start(self, one: Round) -> Transcript:
        rewritten: dict[str, str] = {}
        if self._stage.env_text == "transcript":
            for unit in self._plan.envs:
                answer = one.outcomes[unit].answer
                if answer is not None and answer.last_text is not None:
                    rewritten[unit] = answer.last_text
        return self._handover.next_start(one, rewritten)

    def _observed(self, one: Round, units: Sequence[str]) -> list[Observation]:
        observed: list[Observation] = []
        for unit in units:
            answer = one.outcomes[unit].answer
            if answer is None:
                continue
            env = self._plan.envs[unit]
            rewards = dict.fromkeys(env.seats.actors, 0.0)
            for group, reward in zip(env.seats.actors, answer.rewards):
                rewards[group] = reward if answer.is_team_reward else rewards[group] + reward
            observed.append(
                Observation(
                    round=one.round,
                    node_id=env.node.node_id,
                    texts=answer.texts,
                    heard=self._heard(env, answer),
                    rewards=rewards,
                    is_team_reward=answer.is_team_reward,
                    terminated=answer.terminated,
                    truncated=answer.truncated,
                    seconds=one.outcomes[unit].seconds,
                )
            )
        return observed

    def _reward(self, env: EnvUnit, answer: EnvAnswer | None, turns: Sequence[Turn]) -> None:
        if answer is None or self._stage.env_reward_mode is None:
            return
        latest = {(turn.node_id, turn.branch): turn for turn in self.trajectory.turns}
        actions = [Action(group=group, latest=latest.get(seat)) for group, seat in zip(env.seats.actors, env.places)]
        place_rewards(answer, actions, turns, self._stage.env_reward_mode)
        self.trajectory.reward += team_reward(answer, env.seats.actors)


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_leaf(first) if isinstance(first, BaseExceptionGroup) else first
