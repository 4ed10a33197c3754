"""`dagrl validate --deep`: reads the data, tokenises a row, tries each environment and reward once, counts memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dagrl.backends.loading import load_tokenizer, locate
from dagrl.backends.recipes import recipe_folder
from dagrl.data import tasks_of
from dagrl.environments.protocol import EnvAnswer
from dagrl.environments.runner import EnvRunner
from dagrl.errors import DagrlError, Finding
from dagrl.nodes.base import TrajectoryFault
from dagrl.nodes.env import EnvNode
from dagrl.nodes.transcript import PROMPT, Scribe
from dagrl.rewards import REWARDS
from dagrl.rewards.runner import call_reward
from dagrl.runtime.memory_estimate import count_weights, estimate, shown
from dagrl.runtime.plan import EnvUnit, make_plan
from dagrl.types import FinishReason, Task, Trajectory, Turn
from dagrl.workflow import plugins
from dagrl.workflow.graph import Workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.held_out import set_name
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.reward_options import JUDGE, RewardPartSpec
from dagrl.workflow.sections import ModelSpec
from dagrl.workflow.tree import Path as Place

JUNK = "this is no answer"
GOLD_FORMS = ("\\boxed{{{}}}", "{}", "#### {}", "<answer>{}</answer>")
"""How a right answer may have to be written; a reward that takes none of them is warned of."""


@dataclass(slots=True)
class DeepReport:
    """What was found and what works."""

    findings: list[Finding] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def deep_check(workflow: Workflow) -> DeepReport:
    """Tries every part of a checked workflow without a model. Loads no weights and makes no model by recipe."""
    return _DeepCheck(workflow).run()


class _DeepCheck:
    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._base = workflow.path.parent
        self._report = DeepReport()
        self._unusable: list[ModelSpec] = []
        """Models that could not be loaded: told once."""

    def run(self) -> DeepReport:
        task = self._first_task()
        asyncio.run(self._try_environments(task))
        self._try_rewards(task)
        for group in self._workflow.groups:
            if group.model not in self._unusable:
                self._try_model(group, task)
        return self._report

    def _fault(self, code: str, message: str, place: Place, how: str | None = None) -> None:
        text = " ".join(message.split())
        self._report.findings.append(self._workflow.facts.outline.fault(code, text, place, hint=how))

    def _blame(self, code: str, error: DagrlError | TrajectoryFault, place: Place) -> None:
        if isinstance(error, TrajectoryFault):
            self._fault(code, error.message, place)
        else:
            self._fault(code, error.what if error.where is None else f"{error.where}: {error.what}", place, error.how)

    # Data

    def _first_task(self) -> Task | None:
        data = self._workflow.spec.config.data
        first = None
        sources: list[tuple[Place, str, Sequence[str]]] = [
            (("config", "data", "train_files"), "train", data.train_files),
            (("config", "data", "val_files"), "val", data.val_files),
        ]
        for index, spec in enumerate(self._workflow.spec.config.trainer.eval):
            sources.append((("config", "trainer", "eval", index, "files"), set_name(spec), spec.files))
        for place, name, files in sources:
            split = "train" if name == "train" else "val"
            try:
                tasks = tasks_of(
                    data, files, split, base=self._base, tell=self._report.lines.append, set_name=name
                )
            except DagrlError as error:
                self._blame("E502", error, place)
                continue
            if tasks:
                self._report.lines.append(f"{name} data: {len(tasks)} rows, the first is {tasks[0].task_id}")
                first = tasks[0] if first is None else first
        return first

    # Environments

    async def _try_environments(self, task: Task | None) -> None:
        try:
            plan = make_plan(self._workflow)
        except DagrlError as error:
            self._blame("E501", error, ("nodes",))
            return
        runner = EnvRunner(num_workers=1, timeout_s=self._workflow.spec.config.rollout.env_timeout_s)
        try:
            for unit in plan.envs.values():
                await self._try_environment(unit, runner, task or Task(task_id="trial:0", prompt="1 + 1 = ?"))
        finally:
            runner.close()

    async def _try_environment(self, unit: EnvUnit, runner: EnvRunner, task: Task) -> None:
        named = ", ".join(unit.node.options.env_path)
        place: Place = ("nodes", unit.node.node_id, "agent_options", "env_path")
        try:
            answers = [await self._play(unit, runner, task, text) for text in (JUNK, *gold_answers(task))]
        except (DagrlError, TrajectoryFault) as error:
            self._blame("E501", error, place)
            return
        rewards = [max(answer.rewards, default=0.0) for answer in answers]
        self._report.lines.append(f"environment {named}: reset and step work")
        if self._workflow.spec.config.rollout.rewards_with_env:
            self._judge(named, rewards[0], rewards[1:], place)

    async def _play(self, unit: EnvUnit, runner: EnvRunner, task: Task, text: str) -> EnvAnswer:
        """The answer of a fresh environment when all who act on it say `text`."""
        seed = self._workflow.spec.config.trainer.seed
        node = EnvNode(unit.node, runner=runner, base=self._base, seats=unit.seats, run_seed=seed)
        session = node.session(Trajectory(task=task, sample=0, step=0))
        try:
            await session.reset()
            return await session.step([text] * len(unit.seats.actors))
        finally:
            await session.close()

    # Rewards

    def _try_rewards(self, task: Task | None) -> None:
        from_env = self._workflow.spec.config.rollout.rewards_with_env
        for node in self._workflow.learn:
            is_idle = from_env and node.options.combine != "add"
            if node.kind is NodeKind.REWARD and task is not None and not is_idle:
                self._try_reward(node, task)

    def _try_reward(self, node: Node, task: Task) -> None:
        single = RewardPartSpec(fn=node.executable_ref or "default", kwargs=node.options.reward_kwargs)
        for index, part in enumerate(node.options.rewards or (single,)):
            place: Place = ("nodes", node.node_id, "executable_ref")
            if node.options.rewards:
                place = ("nodes", node.node_id, "agent_options", "rewards", index)
            if part.fn == JUDGE:
                self._report.lines.append(f"reward {part.shown} of node {node.node_id}: a model, which was not asked")
                continue
            try:
                scores = [self._score(part, task, text) for text in (JUNK, *gold_answers(task))]
            except DagrlError as error:
                self._blame("E504", error, place)
                continue
            if index == 0:
                self._judge(f"of node {node.node_id}", scores[0], scores[1:], place)

    def _score(self, part: RewardPartSpec, task: Task, text: str) -> float:
        function = REWARDS[part.fn] if part.fn in REWARDS else plugins.load(part.fn, self._base)
        result = call_reward(function, self._spoken(task, text), part.kwargs)
        return 0.0 if result is None else result.score

    def _spoken(self, task: Task, text: str) -> Trajectory:
        """A trajectory of one round in which every agent says `text`."""
        turns = [
            Turn(
                node_id=node.node_id, agent_group=node.agent_group, round=0, prompt_ids=(0,), response_ids=(0,),
                rollout_logprobs=(0.0,), temperature=1.0, finish_reason=FinishReason.STOP, policy_version=0,
                response_text=text,
            )
            for node in self._workflow.play
            if node.kind is NodeKind.ROLLOUT
        ]  # fmt: skip
        return Trajectory(task=task, sample=0, step=0, turns=turns, num_rounds=1)

    def _judge(self, named: str, junk: float, gold: Sequence[float], place: Place) -> None:
        """A reward must tell the right answer of the first row from junk."""
        if not gold:
            self._report.lines.append(f"reward {named}: junk gives {junk:g}; the data has no right answers to try")
        elif junk == 0.0 and 1.0 in gold:
            self._report.lines.append(f"reward {named}: the right answer gives 1, junk gives 0")
        else:
            message = f"the reward {named} gives {junk:g} for junk, {max(gold):g} for the first row's right answer"
            how = "tried the answer alone, in \\boxed{}, after #### and in <answer>; it should give 0 and 1"
            self._fault("W501", message, place, how)

    # Models

    def _try_model(self, group: AgentGroup, task: Task | None) -> None:
        place: Place = ("config", "model")
        if group.server is not None:
            self._report.lines.append(f"agent {group.index}: {group.server.url} speaks for it (not asked here)")
            return
        if group.model.path is None and group.model.recipe is None:
            self._report.lines.append(f"agent {group.index}: no model is given yet")
            return
        if not self._is_there(group.model):
            self._report.lines.append(f"agent {group.index}: the model of {group.model.recipe} is made on first use")
            return
        try:
            location = locate(group.model, self._base, lambda done, what: None)
            tokenizer = load_tokenizer(group.model, location, self._base)
            length = 0 if task is None else len(Scribe(lambda _: tokenizer).translate(PROMPT, group.index, task).ids)
        except DagrlError as error:
            self._unusable.append(group.model)
            self._blame("E503", error, place)
            return
        if task is not None:
            self._check_length(group, length)
        self._count_memory(group, Path(location))

    def _is_there(self, model: ModelSpec) -> bool:
        return model.recipe is None or recipe_folder(model.recipe, model.recipe_kwargs, self._base).is_dir()

    def _check_length(self, group: AgentGroup, length: int) -> None:
        longest = self._workflow.spec.config.rollout.max_context_len
        if length >= longest:
            message = f"the first row has {length} tokens for agent {group.index}, a conversation room for {longest}"
            self._fault("E405", message, ("config", "rollout", "max_context_len"))
        else:
            self._report.lines.append(f"agent {group.index}: the first row has {length} tokens of {longest}")

    def _count_memory(self, group: AgentGroup, folder: Path) -> None:
        weights = count_weights(folder) if folder.is_dir() else None
        if weights is None:
            self._report.lines.append(f"agent {group.index}: memory unknown, {folder} has no weights here")
            return
        critic = self._critic_weights(group, weights)
        parts = estimate(group, weights, critic)
        self._report.lines.append(
            f"agent {group.index}: about {shown(parts.total)} ({weights:,} weights {shown(parts.policy)}, "
            f"training {shown(parts.training)}, reference {shown(parts.reference)}, critic {shown(parts.critic)})"
        )

    def _critic_weights(self, group: AgentGroup, policy_weights: int) -> int:
        model = group.critic_model
        if model is None or model.path == group.model.path or not self._is_there(model):
            return policy_weights
        folder = Path(locate(model, self._base, lambda done, what: None))
        return (count_weights(folder) if folder.is_dir() else None) or policy_weights


def gold_answers(task: Task) -> list[str]:
    """The right answer of a task in the forms that rewards commonly look for; none where the task has none."""
    truth = task.ground_truth
    return [] if truth is None or isinstance(truth, (dict, list)) else [form.format(truth) for form in GOLD_FORMS]
