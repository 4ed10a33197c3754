"""The embedded engine: answers the generation requests of all agents in this process, batched as they come.

A request waits in the lane of its agent's weights. One task advances the lanes, a token at a time, and lets the event
loop run in between, so rows join and leave whenever they can. Before each pass it waits for requests that are about to
come: passes are larger so, and what is in each does not depend on how fast anything else was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dagrl.backends.hf_trainer import HFPolicy
from dagrl.backends.lane import Lane, Row, check_prompt
from dagrl.backends.loading import end_token_ids, max_positions
from dagrl.backends.network import Network
from dagrl.backends.stopping import Pieces, StopTexts
from dagrl.trace_events import Kind, Timed, untimed
from dagrl.types import Completion, GenerationRequest, Metrics

_QUIET_TURNS = 16
"""Turns of the event loop in which nothing moved after which no request is on its way. From an answer to the next
request of the same trajectory it takes six: the way up through the tasks of its branch, its node and its round; and
one more for every node that is skipped on the way."""
_SMALL_SHARE = 0.25
"""A lane with less than this share of the fullest lane's rows lets some passes go by, until more have gathered …"""
_SMALL_PASSES = 8
"""… but not more than this in a row."""


@dataclass(frozen=True, slots=True)
class _Agent:
    """What the engine knows of one agent group, or of its initial weights."""

    name: str
    lane: Lane
    end_ids: frozenset[int]
    context: float
    """Longest sequence of its model in tokens."""
    pieces: Pieces
    network: Network


class HFGenerator:
    """Generates with the very modules that are trained: no weights are copied, and none are ever old."""

    def __init__(
        self,
        policies: Mapping[int, HFPolicy],
        names: Mapping[int, str],
        *,
        max_rows: int,
        cache_tokens: int,
        settle_s: float = 0.0,
        num_nodes: int = 1,
        initial: Mapping[int, HFPolicy] | None = None,
    ) -> None:
        """`policies` by agent group, `initial` those that answer requests to initial weights; `max_rows` advance
        together in a lane; lanes share `cache_tokens` evenly.

        `settle_s`: how long, from its start, a wait that `away` tells of holds up the next pass. `num_nodes` of the
        play graph may lie between an answer and the request that follows from it.
        """
        voices = {(group, False): policy for group, policy in policies.items()}
        voices |= {(group, True): policy for group, policy in (initial or {}).items()}
        weights = {voice: (id(policy.network), policy.adapter) for voice, policy in voices.items()}
        share = cache_tokens // len(set(weights.values()))
        lanes: dict[tuple[int, str | None], Lane] = {}
        for voice, policy in voices.items():
            if weights[voice] not in lanes:
                lanes[weights[voice]] = Lane(
                    policy.network,
                    policy.adapter,
                    name=f"agent {names[voice[0]]}" + (" (initial)" if voice[1] else ""),
                    policy=policy,
                    max_rows=max_rows,
                    cache_tokens=share,
                )
        self._lanes = list(lanes.values())
        self._agents = {
            voice: _agent(policy, names[voice[0]], lanes[weights[voice]]) for voice, policy in voices.items()
        }
        self._task: asyncio.Task[None] | None = None
        self._timed: Timed = untimed
        self._settle_s = settle_s
        self._quiet_turns = _QUIET_TURNS + num_nodes
        self._away: dict[int, float] = {}
        """When each wait that is going on began."""
        self._num_away = 0
        """Waits so far."""
        self._num_gone_on = 0
        """Times that the engine did not wait for somebody away, since the batch began."""
        self._back = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> Completion:
        """Raises DagrlError where the prompt is empty or does not fit the model."""
        agent = self._agents[request.agent_group, request.is_initial]
        row = Row(
            request=request,
            future=asyncio.get_running_loop().create_future(),
            limit=check_prompt(request, agent.context, f"agent {agent.name}"),
            stop_ids=agent.end_ids.union(request.params.stop_token_ids),
            texts=StopTexts(request.params.stop, agent.pieces) if request.params.stop else None,
            sight=agent.network.sight(request.prompt_ids, request.images) if request.images else None,
        )
        agent.lane.waiting.append(row)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._pass_on)
        try:
            return await row.future
        except asyncio.CancelledError:
            agent.lane.withdraw(row)
            raise

    def metrics(self) -> Metrics:
        """Share of prompt tokens whose keys and values were not computed but copied, from a sample or earlier turn; and
        how often the engine went on without somebody late, so that what its passes were over hung on the clock."""
        asked = sum(lane.num_prompt_tokens for lane in self._lanes)
        computed = sum(lane.num_computed_tokens for lane in self._lanes)
        return {
            "perf/prefix_reused": 1.0 - computed / asked if asked else 0.0,
            "perf/went_on_without": float(self._num_gone_on),
        }

    async def close(self) -> None:
        """Ends the engine; requests that are not answered are cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def tell_passes(self, timed: Timed) -> None:
        self._timed = timed

    def begin_batch(self) -> None:
        """Forgets the keys and values of conversations that are over."""
        self._num_gone_on = 0
        for lane in self._lanes:
            lane.forget()

    @contextmanager
    def away(self) -> Iterator[None]:
        number = self._num_away
        self._num_away += 1
        self._away[number] = time.monotonic()
        try:
            yield
        finally:
            del self._away[number]
            self._back.set()

    async def _work(self) -> None:
        has_answered = True
        while any(lane.is_busy for lane in self._lanes):
            if has_answered:
                await self._settle()
            has_answered = False
            for lane in self._chosen():
                with self._timed(Kind.ENGINE, lane.name):
                    has_answered |= lane.step()
            await asyncio.sleep(0)

    def _chosen(self) -> list[Lane]:
        """The lanes that make the next pass: a pass over few rows costs nearly as much as one over many."""
        fullest = max(lane.num_rows for lane in self._lanes)
        chosen = []
        for lane in self._lanes:
            is_small = lane.num_rows < _SMALL_SHARE * fullest and lane.num_passed < _SMALL_PASSES
            if not lane.is_busy:
                continue
            lane.num_passed = lane.num_passed + 1 if is_small else 0
            if not is_small:
                chosen.append(lane)
        return chosen

    async def _settle(self) -> None:
        """Waits until no request is on its way, nor anyone away who is not yet late."""
        while True:
            await self._gather()
            hold = max(self._away.values(), default=-self._settle_s) + self._settle_s - time.monotonic()
            if not self._away or hold <= 0:
                self._num_gone_on += bool(self._away)
                return
            self._back.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._back.wait(), hold)

    async def _gather(self) -> None:
        """Waits until requests stop arriving, and nobody leaves or comes back who might make one."""
        known, quiet = None, 0
        while quiet < self._quiet_turns:
            await asyncio.sleep(0)
            now = (sum(len(lane.waiting) for lane in self._lanes), self._num_away, len(self._away))
            quiet = quiet + 1 if now == known else 0
            known = now

    def _pass_on(self, task: asyncio.Task[None]) -> None:
        """A fault or the closing of the engine ends every request that it had not answered.

        Where the engine just ran out of work nothing is left; what waits by now came later and has its own task.
        """
        fault = None if task.cancelled() else task.exception()
        if fault is None and not task.cancelled():
            return
        for lane in self._lanes:
            for row in lane.drain():
                if row.future.done() or row.future.get_loop().is_closed():
                    continue
                if fault is None:
                    row.future.cancel()
                else:
                    row.future.set_exception(fault)


def _agent(policy: HFPolicy, name: str, lane: Lane) -> _Agent:
    module = policy.network.module
    return _Agent(
        name,
        lane,
        end_token_ids(module, policy.tokenizer),
        max_positions(module.config),
        Pieces(policy.tokenizer),
        policy.network,
    )
