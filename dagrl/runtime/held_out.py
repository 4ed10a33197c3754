"""The held-out problems of a run, set by set."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dagrl.data import tasks_of
from dagrl.data.tasks import Tell
from dagrl.types import Task
from dagrl.workflow.graph import Workflow
from dagrl.workflow.held_out import HeldOutSet, held_out_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A set and its problems."""

    spec: HeldOutSet
    tasks: tuple[Task, ...]

    @property
    def num_samples(self) -> int:
        """Of one evaluation."""
        return len(self.tasks) * self.spec.k


def read_held_out(workflow: Workflow, tell: Tell) -> tuple[HeldOut, ...]:
    """Every set, the one that counts first."""
    return tuple(problems_of(workflow, one, tell) for one in held_out_sets(workflow.spec.config))


def problems_of(workflow: Workflow, held_out: HeldOutSet, tell: Tell) -> HeldOut:
    """At most the first `data.val_max_prompts`. A task is called `<set>:<row>`, or `val:<row>` where the set has no
    name."""
    data, base = workflow.spec.config.data, workflow.path.parent
    tasks = tasks_of(data, held_out.files, "val", base=base, tell=tell, set_name=held_out.name)
    return HeldOut(spec=held_out, tasks=tuple(tasks[: data.val_max_prompts]))


def sampling_as(workflow: Workflow, held_out: HeldOutSet) -> Workflow:
    """`workflow` whose agents sample on every held-out problem as they do on those of `held_out`."""
    nodes = tuple(
        replace(
            node,
            val_sampling=held_out.params(node.val_sampling),
            val_sampling_seed=held_out.seed(node.val_sampling_seed),
        )
        for node in workflow.nodes
    )
    return replace(workflow, nodes=nodes)
