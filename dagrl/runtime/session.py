"""Session: from a checked workflow to a finished run. Builds every part, wires them, lets the trainer go."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import torch

from dagrl.backends.loading import open_tokenizer
from dagrl.backends.memory import is_out_of_memory, out_of_memory_error
from dagrl.backends.pool import ModelPool, build_pool
from dagrl.backends.recipes import Progress
from dagrl.data import DataLoader, tasks_of
from dagrl.environments.runner import EnvRunner
from dagrl.errors import DataError, StorageError
from dagrl.nodes import build_learn_nodes
from dagrl.nodes.dynamic_sampling import sampler_of
from dagrl.nodes.reward import scorer_of
from dagrl.nodes.transcript import PROMPT, Scribe
from dagrl.nodes.usage import Usage
from dagrl.runtime import manifest
from dagrl.runtime.console import Console
from dagrl.runtime.executor import Executor
from dagrl.runtime.held_out import read_held_out
from dagrl.runtime.ledger import Ledger
from dagrl.runtime.live_status import LiveStatus
from dagrl.runtime.player import Player
from dagrl.runtime.probes import Probes
from dagrl.runtime.process_random import seed_process
from dagrl.runtime.recorder import Recorder
from dagrl.runtime.resume import ResumePoint, cut_back_to, restore
from dagrl.runtime.run_folder import RunFolder
from dagrl.runtime.signals import StopSignals
from dagrl.runtime.supply import Judges, Supply
from dagrl.runtime.token_check import TokenCheck
from dagrl.runtime.trace import Trace
from dagrl.runtime.trainer import Trainer, TrainingReport
from dagrl.trace_events import TRACE_FILE
from dagrl.types import Task
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.sections import UpdateSpec

FINISHED, INTERRUPTED, FAILED = "done", "interrupted", "failed"


def run_workflow(
    workflow: Workflow, folder: RunFolder, console: Console, *, stop: StopSignals, point: ResumePoint | None = None
) -> TrainingReport:
    """Trains from the first step, or from `point`, to the last, or until `stop` asks to end.

    `folder` is left in the state that the run came to.
    """
    prepare_process(workflow)
    first = 0 if point is None else point.step
    trainer: Trainer | None = None
    try:
        with ExitStack() as stack:
            stack.callback(console.close)
            if point is not None:
                cut_back_to(folder.path, point)
            folder.write_status("running", first)
            trainer = _build(workflow, folder, console, stack, point)
            stop.on_stop(trainer.request_stop)
            report = asyncio.run(trainer.run())
    except BaseException as error:
        state = INTERRUPTED if stop.is_early else FAILED
        num_steps = first if trainer is None else trainer.num_steps
        with suppress(StorageError):  # of a full disk; what ended the run is what must be told
            folder.write_status(state, num_steps)
            manifest.end_session(folder, state, num_steps)
        if is_out_of_memory(error):
            raise out_of_memory_error("outside of an update") from error
        raise
    state = FINISHED if report.stopped_by is None else INTERRUPTED
    folder.write_status(state, report.num_steps)
    manifest.end_session(folder, state, report.num_steps)
    return report


def _build(
    workflow: Workflow, folder: RunFolder, console: Console, stack: ExitStack, point: ResumePoint | None
) -> Trainer:
    config = workflow.spec.config
    held_out = read_held_out(workflow, console.note)
    with console.making_model() as progress:
        train = training_tasks(workflow, console, progress)
        loader, total_steps = open_loader(workflow, train)
        pool = build_pool(workflow, total_optimizer_steps=optimizer_steps(workflow, total_steps), progress=progress)
        manifest.begin_session(workflow, folder, 0 if point is None else point.step, progress)
    console.note(f"the models take {pool.memory_bytes() / 1e6:,.0f} MB")
    trace = Trace(folder.path / TRACE_FILE, workflow, num_full_steps=config.trainer.trace_steps)
    recorder = Recorder(workflow, folder, pool, console, trace)
    stack.callback(recorder.close)
    usage = Usage()
    stack.enter_context(LiveStatus(folder, trace))
    player = open_player(workflow, pool, failures_dir=folder.failures, usage=usage, trace=trace)
    stack.callback(player.close)
    nodes = build_learn_nodes(workflow, pool, usage)
    num_held_out = sum(len(one.tasks) for one in held_out)
    console.begin(workflow, total_steps=total_steps, num_train=len(train), num_held_out=num_held_out)
    ledger = Ledger([group.name for group in workflow.groups], usage)
    supply = Supply(
        workflow,
        loader=loader,
        player=player,
        judges=Judges(scorer=scorer_of(nodes), sampler=sampler_of(nodes)),
        ledger=ledger,
        trace=trace,
    )
    probes = None
    if config.trainer.probe_freq:
        probes = Probes(workflow, pool, open_player)
        stack.callback(probes.close)
    trainer = Trainer(
        workflow,
        player=player,
        executor=Executor(
            workflow,
            nodes,
            token_check(workflow, pool),
            play=supply,
            failures_dir=folder.failures,
            trace=trace,
        ),
        learn_nodes=nodes,
        supply=supply,
        held_out=held_out,
        recorder=recorder,
        trace=trace,
        ledger=ledger,
        total_steps=total_steps,
        probes=probes,
    )
    seed_process(config.trainer.seed)  # making a model may have drawn from it
    if point is not None:
        restore(point, workflow, pool, trainer)
    return trainer


def token_check(workflow: Workflow, pool: ModelPool) -> TokenCheck:
    """Whether what is trained is what was sampled."""
    return TokenCheck(
        agents=[group.name for group in workflow.groups],
        dtypes=[group.model.dtype for group in workflow.groups],
        decode=lambda group, ids: pool.tokenizer(group).decode(ids),
        stops=workflow.spec.config.trainer.on_logprob_drift == "stop",
    )


def training_tasks(workflow: Workflow, console: Console, progress: Progress) -> list[Task]:
    """The problems to train on, without those that are too long."""
    data = workflow.spec.config.data
    tasks = tasks_of(data, data.train_files, "train", base=workflow.path.parent, tell=console.note)
    return tasks if data.max_prompt_length is None else _within(tasks, workflow, console, progress)


def open_loader(workflow: Workflow, tasks: Sequence[Task]) -> tuple[DataLoader, int]:
    """The loader of training batches at its start, and the number of steps of the run."""
    data, trainer = workflow.spec.config.data, workflow.spec.config.trainer
    loader = DataLoader(tasks, data.train_batch_size, seed=trainer.seed, shuffle=data.shuffle)
    return loader, loader.steps_for(trainer.total_epochs) if trainer.total_steps is None else trainer.total_steps


def prepare_process(workflow: Workflow) -> None:
    """torch's threads as `executor.num_threads` says, and the random states of the run's seed."""
    config = workflow.spec.config
    if config.executor.num_threads is not None:
        torch.set_num_threads(config.executor.num_threads)
    seed_process(config.trainer.seed)


def open_player(
    workflow: Workflow,
    pool: ModelPool,
    *,
    failures_dir: Path | None = None,
    usage: Usage | None = None,
    trace: Trace | None = None,
) -> Player:
    """A player with environment processes of its own; `close` ends them. It counts into `usage`."""
    config = workflow.spec.config
    runner = EnvRunner(num_workers=config.rollout.env_workers, timeout_s=config.rollout.env_timeout_s)
    seed = config.trainer.seed
    return Player(workflow, pool, runner, run_seed=seed, failures_dir=failures_dir, usage=usage, trace=trace)


def optimizer_steps(workflow: Workflow, total_steps: int) -> dict[str, int]:
    """Optimizer steps of every trained model (`policy_0`, `critic_1`) in a run of `total_steps` full batches."""
    config = workflow.spec.config
    batch = config.data.train_batch_size * config.rollout.n
    counts: dict[str, int] = {}
    for node in workflow.learn:
        model = workflow.contract(node).trains_model
        if model is None:
            continue
        spec: UpdateSpec = node.actor if node.kind is NodeKind.TRAIN_ACTOR else node.critic
        size = batch if spec.ppo_mini_batch_size is None else spec.ppo_mini_batch_size
        num_trained = sum(workflow.trains(node, step) for step in range(total_steps))
        counts[model] = num_trained * spec.ppo_epochs * math.ceil(batch / size)
    return counts


def _within(tasks: Sequence[Task], workflow: Workflow, console: Console, progress: Progress) -> list[Task]:
    """The tasks whose prompt no agent's tokenizer makes longer than `data.max_prompt_length`.

    Raises DataError where others may not be dropped.
    """
    data, base = workflow.spec.config.data, workflow.path.resolve().parent
    limit = data.max_prompt_length
    assert limit is not None, "all prompts are short enough"
    tokenizers = {group.index: open_tokenizer(group.model, base, progress) for group in workflow.groups}
    scribe = Scribe(tokenizers.__getitem__)
    kept = [task for task in tasks if all(len(scribe.translate(PROMPT, g, task).ids) <= limit for g in tokenizers)]
    num_longer = len(tasks) - len(kept)
    if num_longer and not data.filter_overlong_prompts:
        raise DataError(
            f"{num_longer} of {len(tasks)} prompts have more than {limit} tokens",
            where="config.data.max_prompt_length",
            how="raise it, or set config.data.filter_overlong_prompts to true",
        )
    if num_longer:
        console.note(f"{num_longer} of {len(tasks)} prompts have more than {limit} tokens and are left out")
    return kept
