"""Probes: how much each agent's message changes what the others answer, so that a lazy agent is seen.

A conversation is played again with the message left out and all answers given as they were, so that nothing is
generated. What another agent said then has two prompts, with the message and without it; its policy scores the answer
under both. Per token, and with the answer drawn from the first, E[r - 1 - log r] with r = p without / p with is
KL(with || without): the causal influence of Jaques et al. 2019 (arXiv 1810.08647), with silence as the counterfactual,
taken over what was said as Dr. MAMR does (arXiv 2511.02303). It is 0 where the message changes no probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from dagrl.algorithms import kl_estimate
from dagrl.backends.pool import ModelPool
from dagrl.backends.recorded import MuteGenerator, RecordedGenerator, Recording, recording_of
from dagrl.backends.scripted import TurnKey, turn_seed
from dagrl.experience import Sequences, collate
from dagrl.nodes.base import by_prompt
from dagrl.runtime.player import Player
from dagrl.runtime.process_random import random_state, set_random_state
from dagrl.types import ExtraRollout, Metrics, Task, Trajectory, Turn, Variation
from dagrl.workflow.graph import Workflow
from dagrl.workflow.probed import probed_nodes

Place = tuple[str, int, int]
"""(rollout node, round, branch) of a turn in a conversation."""


@dataclass(slots=True)
class _Heard:
    """What others said after one agent's messages, over all probed conversations."""

    num_turns: int = 0
    """Turns of others after its first."""
    changed: list[tuple[Turn, Turn]] = field(default_factory=list)
    """Those whose prompt is another without its messages: as it was, and without them."""


class Probes:
    """Looks at some conversations of a step, before it learns; changes neither models, books nor random states."""

    def __init__(
        self, workflow: Workflow, pool: ModelPool, open_player: Callable[[Workflow, ModelPool], Player]
    ) -> None:
        """`open_player` makes a player with environment processes of its own, which counts into nobody's books."""
        trainer = workflow.spec.config.trainer
        self._frequency, self._num_conversations = trainer.probe_freq, trainer.probe_conversations
        self._run_seed = trainer.seed
        self._names = probed_nodes(workflow.nodes, workflow.facts.ancestors, workflow.spec.config.rollout.max_rounds)
        self._seeds = {node.node_id: node.sampling_seed for node in workflow.play}
        self._served = {group.index for group in workflow.groups if group.server is not None}
        self._pool = pool
        self._known: dict[int, Recording] = {}
        generator = RecordedGenerator(self._known, MuteGenerator())
        self._player = open_player(_forgiving(workflow), pool.with_generator(generator))

    def is_due(self, step: int) -> bool:
        return self._frequency > 0 and step % self._frequency == 0

    def close(self) -> None:
        """Ends the processes of its environments."""
        self._player.close()

    async def look(self, trajectories: Sequence[Trajectory]) -> Metrics:
        """Numbers under `influence/…`."""
        chosen = self._chosen(trajectories)
        wanted = [
            ExtraRollout(sample=one, variation=Variation(silent=(name,))) for name in self._names for one in chosen
        ]
        self._known |= {self._seed(one, turn): recording_of(turn) for one in chosen for turn in one.turns}
        before = random_state()
        try:
            played = await self._player.play_extra(wanted)
        finally:
            set_random_state(before)
            self._known.clear()
        found = {name: _Heard() for name in self._names}
        for asked, one in zip(wanted, played, strict=True):
            if isinstance(one, Trajectory):
                self._compare(found[asked.variation.silent[0]], asked.variation.silent[0], asked.sample, one)
        num_failed = sum(not isinstance(one, Trajectory) for one in played)
        return self._metrics(found) | {"influence/failed": float(num_failed)}

    def _chosen(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The first sample of each of the first prompts."""
        prompts = by_prompt(one for one in trajectories if one.turns)
        return [samples[0] for samples in prompts[: self._num_conversations]]

    def _seed(self, trajectory: Trajectory, turn: Turn) -> int:
        """That the turn was asked for with."""
        own = self._seeds[turn.node_id]
        key = TurnKey(
            node_id=turn.node_id,
            round=turn.round,
            task_id=trajectory.task.task_id,
            sample=trajectory.sample,
            step=trajectory.step,
            branch=turn.branch,
        )
        return turn_seed(self._run_seed if own is None else own, key)

    def _compare(self, heard: _Heard, name: str, sample: Trajectory, without: Trajectory) -> None:
        spoken = [turn.node_id == name for turn in sample.turns]
        if True not in spoken:
            return
        others = {_place(turn): turn for turn in without.turns}
        for turn in sample.turns[spoken.index(True) + 1 :]:
            other = others.get(_place(turn))
            if turn.node_id == name or turn.agent_group in self._served or not turn.response_ids or other is None:
                continue
            heard.num_turns += 1
            is_changed = (other.prompt_ids, other.images) != (turn.prompt_ids, turn.images)
            if is_changed and other.response_ids == turn.response_ids:
                heard.changed.append((turn, other))

    def _metrics(self, found: Mapping[str, _Heard]) -> Metrics:
        metrics: Metrics = {}
        for name, heard in found.items():
            if heard.num_turns:
                metrics[f"influence/kl/{name}"] = self._influence(heard.changed)
                metrics[f"influence/heard/{name}"] = len(heard.changed) / heard.num_turns
        return metrics

    def _influence(self, changed: Sequence[tuple[Turn, Turn]]) -> float:
        """Mean over the tokens of answers that heard it; 0 where none did."""
        estimates: list[torch.Tensor] = []
        for group in sorted({turn.agent_group for turn, _ in changed}):
            pairs = [pair for pair in changed if pair[0].agent_group == group]
            policy = self._pool.policy(group)
            told, untold = (policy.score(_sequences([pair[side] for pair in pairs])).logprobs for side in (0, 1))
            estimates.append(kl_estimate(told.double(), untold.double(), "k3"))
        return float(torch.cat(estimates).mean()) if estimates else 0.0


def _place(turn: Turn) -> Place:
    return turn.node_id, turn.round, turn.branch


def _sequences(turns: Sequence[Turn]) -> Sequences:
    """Of turns that need not belong together."""
    alone = Task(task_id="probe", prompt="")
    return collate([Trajectory(task=alone, sample=0, step=0, turns=[turn]) for turn in turns]).sequences


def _forgiving(workflow: Workflow) -> Workflow:
    """A conversation that a hook breaks for want of a message is counted, and never ends the run."""
    config = workflow.spec.config
    rollout = config.rollout.model_copy(update={"max_failed_fraction": 1.0})
    spec = workflow.spec.model_copy(update={"config": config.model_copy(update={"rollout": rollout})})
    return replace(workflow, spec=spec)
