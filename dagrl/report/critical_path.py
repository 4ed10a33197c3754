"""The learn graph with the times its nodes took: what a step waits for, what running side by side would gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnWork:
    """One learn node in one step."""

    name: str
    agent: str
    """Whose node it is; nodes that work for several agents have a name of their own here."""
    seconds: float
    cpu_seconds: float
    """Of dagrl's own process, all threads."""
    after: tuple[str, ...]
    """Nodes that must be over before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What it would bring to run learn nodes of different agents at the same time."""

    sequential: float
    """Seconds of all nodes one after the other, as they ran."""
    by_agent: float
    """Where each agent's nodes ran one after the other, but beside those of other agents, each as fast as now."""
    least: float
    """All CPU seconds, spread over all cores: it cannot be faster than that on this machine."""

    @property
    def seconds(self) -> float:
        """At most so many could be saved."""
        return max(0.0, self.sequential - max(self.by_agent, self.least))


def critical_path(work: Sequence[LearnWork]) -> list[LearnWork]:
    """The chain of nodes that each wait for the one before and take longest together; ties go to the earlier node.

    `work` is in an order in which everything comes after what it waits for.
    """
    best: dict[str, tuple[float, str | None]] = {}
    by_name = {one.name: one for one in work}
    for one in work:
        before = max((name for name in one.after if name in best), key=lambda name: best[name][0], default=None)
        best[one.name] = (one.seconds + (0.0 if before is None else best[before][0]), before)
    name = max(best, key=lambda one: best[one][0], default=None)
    chain = []
    while name is not None:
        chain.append(by_name[name])
        name = best[name][1]
    return chain[::-1]


def gain_of_agents_in_parallel(work: Sequence[LearnWork], num_cpus: int) -> Gain:
    """Nodes start as soon as what they wait for is over and their agent's last node is, in the order of `work`."""
    ends: dict[str, float] = {}
    free: dict[str, float] = {}
    for one in work:
        start = max([free.get(one.agent, 0.0), *(ends[name] for name in one.after if name in ends)])
        ends[one.name] = free[one.agent] = start + one.seconds
    return Gain(
        sequential=sum(one.seconds for one in work),
        by_agent=max(ends.values(), default=0.0),
        least=sum(one.cpu_seconds for one in work) / max(1, num_cpus),
    )
