"""RolloutNode: one agent speaks: pre hook, budget, generation, post hook."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace

from dagrl.backends.base import Generator, Tokenizer, encode_foreign, image_tokens_of
from dagrl.errors import DagrlError
from dagrl.hooks import Condition, Hooks, HookScene
from dagrl.images import shown
from dagrl.nodes.base import ContextFull, Cue, Part, TrajectoryFault, blaming
from dagrl.nodes.usage import Usage
from dagrl.seeds import derive_seed
from dagrl.trace_events import Kind, Timed, untimed
from dagrl.types import Completion, FinishReason, GenerationRequest, Image, Sampled, Trajectory, Turn
from dagrl.workflow.kinds import Node

NOBODY = -1
"""Policy version of a text that was prescribed."""


class RolloutNode:
    """Speaks for one agent group, `num_parallel` times at once."""

    def __init__(
        self,
        node: Node,
        *,
        tokenizer: Tokenizer,
        generator: Generator,
        hooks: Hooks,
        condition: Condition,
        max_context_len: int,
        run_seed: int,
        timed: Timed = untimed,
    ) -> None:
        """`max_context_len`: tokens of prompt and response together."""
        self.node = node
        self.hooks = hooks
        self._tokenizer = tokenizer
        self._generator = generator
        self._condition = condition
        self._max_context_len = max_context_len
        self._seed = run_seed
        in_hooks, nowhere = timed(Kind.HOOK, node.node_id), nullcontext()
        self._speaking = timed(Kind.SPEAK, node.node_id)
        self._in_when = nowhere if condition.is_always else in_hooks
        self._in_pre = in_hooks if hooks.has_pre else nowhere
        self._in_post = in_hooks if hooks.has_post else nowhere

    async def is_wanted(self, trajectory: Trajectory, usage: Usage) -> bool:
        """What `when` says; the call is counted in `usage`."""
        usage.hook_calls += not self._condition.is_always
        with blaming("when"), self._generator.away(), self._in_when:
            return await self._condition.holds(HookScene(trajectory=trajectory))

    async def act(self, cue: Cue) -> tuple[Turn, ...]:
        """One turn for each branch. A branch that fails is left out and counted, unless none is left: then the first
        one's fault is raised."""
        branches = range(self.node.options.num_parallel)
        results = await asyncio.gather(*(self._speak(cue, branch) for branch in branches), return_exceptions=True)
        turns: list[Turn] = []
        faults: list[BaseException] = []
        for result in results:
            if isinstance(result, Turn):
                turns.append(result)
            elif isinstance(result, (TrajectoryFault, ContextFull)):
                faults.append(result)
            else:
                raise result
        if not turns:
            raise faults[0]
        cue.usage.lost_branches += len(faults)
        return tuple(turns)

    async def _speak(self, cue: Cue, branch: int) -> Turn:
        started = time.perf_counter()
        scene = HookScene(trajectory=cue.trajectory, inputs=cue.inputs)
        obs_ids = None if cue.obs is None else encode_foreign(self._tokenizer, cue.obs)
        cue.usage.hook_calls += self.hooks.has_pre
        with blaming("pre_process"), self._generator.away(), self._in_pre:
            context = await self.hooks.pre(self._tokenizer, cue.context_ids, obs_ids, scene)
            prompt_ids, images = self._with_images(context, cue.trajectory)
        request = replace(self._request(cue, prompt_ids, branch), images=images)
        completion = self._given(cue.part, request, branch)
        if completion is None:
            with blaming("generate"), self._speaking:
                completion = await self._generator.generate(request)
            cue.usage.prompt_tokens[self.node.agent_group] += len(prompt_ids)
            cue.usage.generated_tokens[self.node.agent_group] += len(completion.token_ids)
        sampled = Sampled(
            agent_group=request.agent_group,
            prompt_ids=request.prompt_ids,
            response_ids=completion.token_ids,
            logprobs=completion.logprobs,
            images=request.images,
        )
        cue.usage.hook_calls += self.hooks.has_post
        with blaming("post_process"), self._generator.away(), self._in_post:
            transcript = await self.hooks.post(self._tokenizer, cue.context_ids, completion.token_ids, scene)
        turn = self._turn(cue, branch, prompt_ids, completion, transcript)
        turn.images = images
        turn.sampled = sampled
        turn.seconds = time.perf_counter() - started
        return turn

    def _with_images(self, ids: tuple[int, ...], trajectory: Trajectory) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        """The ids as the model reads them, and the images that they show."""
        tokens = image_tokens_of(self._tokenizer)
        if tokens is not None:
            return tokens.expand(ids, trajectory.images)
        if not trajectory.images.keys().isdisjoint(ids):
            raise DagrlError(
                f"agent group {self.node.agent_group} is shown an image, and its model reads text alone",
                where=f"node '{self.node.node_id}'",
                how="give it a vision-language model (docs/how_to/show_images.md), or a pre_process that leaves the "
                "image out",
            )
        return ids, ()

    def _given(self, part: Part, request: GenerationRequest, branch: int) -> Completion | None:
        """What needs no generation: a text that the rollout prescribes, or what the sample said to this very prompt."""
        if part.text is not None:
            ids = encode_foreign(self._tokenizer, part.text)[: request.params.max_tokens]
            return Completion(
                token_ids=tuple(ids), logprobs=None, finish_reason=FinishReason.STOP, policy_version=NOBODY
            )
        known = part.known.get(branch)
        if known is None or (known.prompt_ids, known.images) != (request.prompt_ids, request.images):
            return None
        return Completion(
            token_ids=known.response_ids,
            logprobs=known.rollout_logprobs,
            finish_reason=known.finish_reason,
            policy_version=known.policy_version,
        )

    def _request(self, cue: Cue, prompt_ids: tuple[int, ...], branch: int) -> GenerationRequest:
        room = self._max_context_len - len(prompt_ids)
        if room < 1:
            source = " made by pre_process" if self.hooks.has_pre else ""
            raise ContextFull(
                f"node '{self.node.node_id}': its prompt{source} has {len(prompt_ids)} tokens, "
                f"config.rollout.max_context_len is {self._max_context_len}"
            )
        trajectory = cue.trajectory
        return GenerationRequest(
            agent_group=self.node.agent_group,
            prompt_ids=prompt_ids,
            params=replace(cue.params, max_tokens=min(cue.params.max_tokens, room)),
            seed=derive_seed(
                self._seed if cue.seed is None else cue.seed,
                trajectory.step,
                trajectory.task.task_id,
                trajectory.sample,
                self.node.node_id,
                cue.round,
                branch,
                *((cue.part.draw,) if cue.part.draw else ()),
            ),
            is_initial=cue.part.is_initial,
        )

    def _turn(
        self,
        cue: Cue,
        branch: int,
        prompt_ids: tuple[int, ...],
        completion: Completion,
        transcript_ids: tuple[int, ...],
    ) -> Turn:
        return Turn(
            node_id=self.node.node_id,
            agent_group=self.node.agent_group,
            round=cue.round,
            branch=branch,
            prompt_ids=prompt_ids,
            response_ids=completion.token_ids,
            rollout_logprobs=completion.logprobs,
            temperature=1.0 if cue.params.temperature == 0 else cue.params.temperature,
            finish_reason=completion.finish_reason,
            policy_version=completion.policy_version,
            response_text=shown(self._tokenizer.decode(completion.token_ids, skip_special_tokens=True)),
            transcript_ids=transcript_ids,
        )
