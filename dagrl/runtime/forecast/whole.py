"""The forecast of a run: all that `dagrl plan` says, from a checked workflow, its data and the sizes of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagrl.backends.loading import DTYPES, cached_folder, device_of, load_tokenizer, locate
from dagrl.backends.recipes import recipe_folder
from dagrl.data import DataLoader, tasks_of
from dagrl.errors import DagrlError
from dagrl.nodes.transcript import PROMPT, Scribe
from dagrl.runtime.forecast import footprint
from dagrl.runtime.forecast.arithmetic import matmul_rate
from dagrl.runtime.forecast.extra_play import extra_rollouts, most_prompts
from dagrl.runtime.forecast.footprint import LargestTensor, Memory
from dagrl.runtime.forecast.node_work import NodeWork, Rates, node_works
from dagrl.runtime.forecast.rehearsal import Rehearsal, rehearse
from dagrl.runtime.forecast.sizes import ModelSize, read_size
from dagrl.runtime.held_out import HeldOut, read_held_out, sampling_as
from dagrl.runtime.plan import make_plan
from dagrl.runtime.session import optimizer_steps, prepare_process
from dagrl.types import Task
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.sections import ModelSpec

NUM_REHEARSED = 32
"""Rows of the data that are rehearsed, evenly spread."""
NUM_BLOCKS = 8
"""Changes of who trains that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Steps in a row, counted from 1, in which the same nodes train."""

    first: int
    last: int
    trains: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Forecast:
    """Per step unless it says otherwise; tokens at full length of every response, all rounds played."""

    dag_id: str
    steps: int
    trajectories: int
    num_rows: int
    rehearsed_rows: int
    prompt_mean: float = 0.0
    prompt_longest: int = 0
    evaluations: int = 0
    """Of a set each, over the whole run, the ones without an agent included."""
    held_out_tokens: float = 0.0
    """Generated in one evaluation, in the mean."""
    extra: dict[str, int] = field(default_factory=dict)
    """By node: rollouts besides those that are trained on, at most."""
    num_prompts: int = 0
    """That are trained on."""
    most_prompts: int = 0
    """That dynamic sampling can have played; else those of the batch."""
    nodes: list[NodeWork] = field(default_factory=list)
    at_most: dict[str, int] = field(default_factory=dict)
    """Bounds that hold whatever happens, over the whole run, evaluations included."""
    schedule: list[Block] = field(default_factory=list)
    optimizer_steps: dict[str, int] = field(default_factory=dict)
    """Over the whole run, by model, as a checkpoint names them: `agent_<name>`, `critic_<name>`."""
    memory: dict[str, Memory] = field(default_factory=dict)
    """By agent."""
    largest: LargestTensor | None = None
    checkpoint_bytes: int | None = None
    num_checkpoints: int = 0
    trajectory_bytes: int = 0
    log_bytes: int = 0
    device: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    """`stop_when`."""
    notes: list[str] = field(default_factory=list)
    """What could not be counted, and why."""

    @property
    def tokens(self) -> float:
        """Generated in one step."""
        return sum(work.tokens for work in self.nodes)

    @property
    def total_tokens(self) -> float:
        return self.tokens * self.steps + self.held_out_tokens * self.evaluations

    @property
    def seconds(self) -> float | None:
        """Of all steps; an estimate of the models' arithmetic alone. None where a model is not known."""
        if not self.nodes or any(work.seconds is None for work in self.nodes):
            return None
        return sum((work.seconds or 0.0) * work.steps for work in self.nodes)

    @property
    def disk_bytes(self) -> int | None:
        if self.checkpoint_bytes is None:
            return None
        return self.checkpoint_bytes * self.num_checkpoints + self.trajectory_bytes + self.log_bytes


def forecast(workflow: Workflow) -> Forecast:
    """Reads data, tokenizers and headers of weight files; loads no model. Raises DagrlError where data is missing."""
    return _Forecaster(workflow).run()


class _Forecaster:
    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._config = workflow.spec.config
        self._base = workflow.path.resolve().parent
        self._tokenizers: dict[int, Any] = {}
        self._sizes: dict[int, ModelSize] = {}
        self._critics: dict[int, ModelSize] = {}
        data = self._config.data
        self._train = self._tasks(data.train_files, "train")
        self._held_out = read_held_out(workflow, lambda line: None)

    def _tasks(self, files: Sequence[str], split_name: str) -> list[Task]:
        """As the run reads them; it is the run that tells which rows it leaves out."""
        return tasks_of(self._config.data, files, split_name, base=self._base, tell=lambda line: None)

    def run(self) -> Forecast:
        data, trainer = self._config.data, self._config.trainer
        loader = DataLoader(self._train, data.train_batch_size, seed=trainer.seed, shuffle=data.shuffle)
        steps = loader.steps_for(trainer.total_epochs) if trainer.total_steps is None else trainer.total_steps
        rows = _spread(self._train)
        found = Forecast(
            dag_id=self._workflow.spec.dag_id,
            steps=steps,
            trajectories=data.train_batch_size * self._config.rollout.n,
            extra=extra_rollouts(self._workflow),
            num_prompts=data.train_batch_size,
            most_prompts=most_prompts(self._workflow),
            num_rows=len(self._train),
            rehearsed_rows=len(rows),
            evaluations=len(_evaluations(self._workflow, steps, self._held_out)),
            schedule=schedule(self._workflow, steps),
            optimizer_steps=_named(optimizer_steps(self._workflow, steps), self._workflow),
            num_checkpoints=footprint.num_checkpoints(trainer, steps),
            log_bytes=footprint.log_bytes(steps),
            limits={name: value for name, value in self._config.stop_when.model_dump().items() if value is not None},
        )
        self._bound(found)
        self._look_at_models(found)
        if len(self._tokenizers) == len(self._workflow.groups):
            self._rehearse(found, rows)
        return found

    def _bound(self, found: Forecast) -> None:
        """What no run of this workflow can pass."""
        rollout = self._config.rollout
        speakers = [node for node in self._workflow.play if node.kind is NodeKind.ROLLOUT]
        played = found.most_prompts * rollout.n + sum(found.extra.values())
        evaluations = _evaluations(self._workflow, found.steps, self._held_out)
        trained, judged = played * found.steps, sum(one.num_samples for one in evaluations)
        room = rollout.max_context_len - 1
        per_sample = sum(min(node.sampling.max_tokens, room) * node.options.num_parallel for node in speakers)
        judged_tokens = sum(
            one.num_samples * min(one.spec.params(node.val_sampling).max_tokens, room) * node.options.num_parallel
            for one in evaluations
            for node in speakers
        )
        num_envs = sum(len(unit.node.options.env_path) for unit in make_plan(self._workflow).envs.values())
        found.at_most = {
            "tokens": rollout.max_rounds * (per_sample * trained + judged_tokens),
            "env_calls": num_envs * (1 + rollout.max_rounds) * (trained + judged),
            "judge_calls": trained * _num_judges(self._workflow) + judged * min(_num_judges(self._workflow), 1),
        }

    def _look_at_models(self, found: Forecast) -> None:
        for group in self._workflow.groups:
            folder = self._folder(group.model, f"agent {group.name}", found)
            if folder is None:
                continue
            self._tokenizers[group.index] = load_tokenizer(group.model, str(folder), self._base)
            self._note_size(self._sizes, group.index, folder, found)
            if group.critic_model is not None:
                own = self._folder(group.critic_model, f"critic of agent {group.name}", found)
                if own is not None:
                    self._note_size(self._critics, group.index, own, found)
        if len(self._sizes) == len(self._workflow.groups) and self._knows_critics():
            found.checkpoint_bytes = footprint.checkpoint_bytes(self._workflow.groups, self._sizes, self._critics)

    def _knows_critics(self) -> bool:
        return all(group.index in self._critics for group in self._workflow.groups if group.critic_model is not None)

    def _note_size(self, sizes: dict[int, ModelSize], index: int, folder: Path, found: Forecast) -> None:
        size = read_size(folder)
        if size is None:
            found.notes.append(f"{folder} has no config.json and safetensors that tell its size")
        else:
            sizes[index] = size

    def _folder(self, model: ModelSpec, whose: str, found: Forecast) -> Path | None:
        """Where the model lies on this machine; None, with a note, where it does not."""
        if model.recipe is not None and not recipe_folder(model.recipe, model.recipe_kwargs, self._base).is_dir():
            found.notes.append(
                f"{whose}: {model.recipe} makes the model on first use; plan again after a `--smoke` run"
            )
            return None
        try:
            folder = cached_folder(locate(model, self._base, lambda done, what: None))
        except DagrlError as error:
            found.notes.append(f"{whose}: {error.what}")
            return None
        if folder is None:
            found.notes.append(
                f"{whose}: {model.path} is not on this machine yet; `hf download {model.path}` brings it"
            )
        return folder

    def _rehearse(self, found: Forecast, rows: Sequence[Task]) -> None:
        scribe = Scribe(self._tokenizers.__getitem__)
        lengths = [len(scribe.translate(PROMPT, group, task).ids) for task in rows for group in self._tokenizers]
        found.prompt_mean, found.prompt_longest = sum(lengths) / max(len(lengths), 1), max(lengths, default=0)
        played = rehearse(self._workflow, rows, self._tokenizers.__getitem__)
        if played.faults:
            found.notes.append(f"{len(played.faults)} of {len(rows)} rehearsals failed in a hook: {played.faults[0]}")
        if not played.num_trajectories:
            return
        if found.evaluations:
            tokens = {one.spec.name: self._held_out_tokens(one) for one in self._held_out}
            evaluations = _evaluations(self._workflow, found.steps, self._held_out)
            found.held_out_tokens = sum(tokens[one.spec.name] for one in evaluations) / len(evaluations)
        rates = self._rates() if len(self._sizes) == len(self._workflow.groups) and self._knows_critics() else None
        found.nodes = node_works(
            self._workflow, played, found.trajectories, found.steps, rates, num_extra=sum(found.extra.values())
        )
        per_run = found.steps if self._config.trainer.log_trajectories else 0
        found.trajectory_bytes = per_run * footprint.trajectory_bytes(
            sum(work.turns for work in found.nodes), sum(work.prompt_tokens for work in found.nodes), found.tokens
        )
        self._weigh(found, played)

    def _held_out_tokens(self, held_out: HeldOut) -> float:
        """Generated in one evaluation of a set."""
        workflow = sampling_as(self._workflow, held_out.spec)
        judged = rehearse(workflow, _spread(held_out.tasks), self._tokenizers.__getitem__, "val")
        share = held_out.num_samples / max(judged.num_trajectories, 1)
        return share * sum(turn.response for turns in judged.turns.values() for turn in turns)

    def _rates(self) -> Rates:
        """Measured for the first agent's model; all agents are taken to run on its device."""
        prepare_process(self._workflow)
        group = self._workflow.groups[0]
        device, dtype = device_of(group.model), DTYPES[group.model.dtype]
        size = self._sizes[group.index]
        at_once = self._config.data.train_batch_size * self._config.rollout.n
        rows = min(self._config.rollout.max_batch_size, at_once)
        return Rates(
            sizes=self._sizes,
            critics=self._critics,
            wide=matmul_rate(group.actor.micro_batch_tokens, size, dtype, device),
            narrow=matmul_rate(rows, size, dtype, device),
        )

    def _weigh(self, found: Forecast, played: Rehearsal) -> None:
        rollout = self._config.rollout
        largest: list[LargestTensor] = []
        found.device = str(device_of(self._workflow.groups[0].model))
        for group in self._workflow.groups:
            if group.index not in self._sizes:
                continue
            turns = played.of([group.index])
            num_turns = len(turns) / played.num_trajectories * found.trajectories
            load = footprint.load_of(turns, rollout, num_turns, min(found.trajectories, rollout.max_concurrency))
            size = self._sizes[group.index]
            found.memory[group.name] = footprint.memory(group, size, self._critics.get(group.index), load)
            largest.append(footprint.largest_tensor(group, size, load))
        found.largest = max(largest, key=lambda one: one.num_bytes, default=None)


def schedule(workflow: Workflow, steps: int) -> list[Block]:
    """Who trains when, until it has changed often enough to see the pattern."""
    blocks: list[Block] = []
    for step in range(steps):
        names = tuple(node.node_id for node in workflow.live(step) if node.kind.is_train)
        if blocks and blocks[-1].trains == names:
            blocks[-1] = Block(first=blocks[-1].first, last=step + 1, trains=names)
        elif len(blocks) == NUM_BLOCKS:
            break
        else:
            blocks.append(Block(first=step + 1, last=step + 1, trains=names))
    return blocks


def _named(counts: Mapping[str, int], workflow: Workflow) -> dict[str, int]:
    found: dict[str, int] = {}
    for model, count in counts.items():
        what, _, index = model.rpartition("_")
        found[f"{'agent' if what == 'policy' else what}_{workflow.groups[int(index)].name}"] = count
    return found


def _evaluations(workflow: Workflow, steps: int, held_out: Sequence[HeldOut]) -> list[HeldOut]:
    """What is evaluated over the run: all sets before, in between and after, and after it the one that counts without
    each of `val_without`."""
    trainer = workflow.spec.config.trainer
    between = (steps - 1) // trainer.test_freq if trainer.test_freq else 0
    return [*held_out] * (int(trainer.val_before_train) + between + 1) + [*held_out[:1]] * len(trainer.val_without)


def _num_judges(workflow: Workflow) -> int:
    """Reward functions that a trained trajectory is scored by; a held-out one only by the first."""
    from_env = workflow.spec.config.rollout.rewards_with_env
    nodes = [node for node in workflow.learn if node.kind is NodeKind.REWARD]
    return sum(max(len(node.options.rewards), 1) for node in nodes if not from_env or node.options.combine == "add")


def _spread(tasks: Sequence[Task]) -> list[Task]:
    """At most `NUM_REHEARSED` of `tasks`, evenly spread."""
    count = min(NUM_REHEARSED, len(tasks))
    return [tasks[index * len(tasks) // count] for index in range(count)]
