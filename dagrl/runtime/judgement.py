"""What k samples per problem say about a team: avg@k, pass@k, maj@k with intervals, by source, agent and round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from dagrl.rewards.math import same_answer_key
from dagrl.runtime.evaluate import SOLVED
from dagrl.runtime.statistics import Interval, mean_interval, paired_difference
from dagrl.types import FinishReason, Task, Trajectory, Turn

ALL = "all"
"""The row over every data source."""

Vote = Hashable
"""What two final answers have in common if they are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem and how its k samples ended."""

    task_id: str
    data_source: str
    solved: tuple[bool, ...]
    """By sample; a sample that failed is not solved."""
    votes: tuple[Vote | None, ...]
    """The team's final answer by sample; None where it gave none."""

    @property
    def share_solved(self) -> float:
        """avg@k of this problem, which is its pass@1 too."""
        return sum(self.solved) / len(self.solved)

    def pass_at(self, k: int) -> float:
        return pass_at_k(len(self.solved), sum(self.solved), k)

    def majority(self) -> float:
        """maj@k: the share of solved samples among those that gave the answer given most; 0 without any answer."""
        winner = majority(self.votes)
        own = [solved for solved, vote in zip(self.solved, self.votes, strict=True) if vote == winner]
        return 0.0 if winner is None else sum(own) / len(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of the problems of one data source; every interval is over problems."""

    source: str
    num_problems: int
    average: Interval
    """avg@k."""
    passes: dict[int, Interval]
    """pass@k' for k' = 2, 4, 8, … and k itself; empty for k = 1, where it is avg@k."""
    majority: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """How much was said, by one agent or in one round."""

    turns_per_sample: float
    mean_tokens: float
    longest_tokens: int
    share_cut: float
    """Of turns that `max_tokens` or the context's budget ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of the conversations."""

    share_reached: float
    """Of all samples."""
    solved: Interval
    """Share of samples that were solved in this round or an earlier one."""
    spoken: Spoken


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """All that is told about one team."""

    problems: tuple[Problem, ...]
    num_samples: int
    num_failed: int
    mean_reward: float
    scores: tuple[Scores, ...]
    """Over all problems first, then by data source, where there are several."""
    agents: dict[str, Spoken]
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Second team less first, over the same problems."""

    measure: str
    """`avg@8` and the like."""
    mean: float
    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k of n samples hold a solved one, c of the n being solved: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374) eq. 1, in exact integers; 1 where n - c < k.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} of {c} solved among {n} samples has no meaning")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def majority(votes: Sequence[Vote | None]) -> Vote | None:
    """The vote given most often, of equals the one given first; None where nobody voted.

    >>> majority(["b", None, "a", "a", "b"])
    'b'
    """
    counts = Counter(vote for vote in votes if vote is not None)
    return max(counts, key=counts.__getitem__) if counts else None


def judge_samples(
    tasks: Sequence[Task],
    trajectories: Sequence[Trajectory],
    *,
    num_samples: int,
    agent_names: Sequence[str],
) -> Judgement:
    """`trajectories` are the samples of `tasks` that did not fail, scored; `agent_names` stand by agent group."""
    by_task: dict[str, dict[int, Trajectory]] = {task.task_id: {} for task in tasks}
    for one in trajectories:
        by_task[one.task.task_id][one.sample] = one
    problems = tuple(_problem(task, by_task[task.task_id], num_samples) for task in tasks)
    turns = [turn for one in trajectories for turn in one.turns]
    return Judgement(
        problems=problems,
        num_samples=num_samples,
        num_failed=len(tasks) * num_samples - len(trajectories),
        mean_reward=sum(one.reward for one in trajectories) / max(len(trajectories), 1),
        scores=tuple(_by_source(problems, num_samples)),
        agents={
            name: _spoken([turn for turn in turns if turn.agent_group == group], len(trajectories))
            for group, name in enumerate(agent_names)
        },
        rounds=tuple(_rounds(trajectories, tasks, num_samples)),
    )


def measures(k: int) -> dict[str, Callable[[Problem], float]]:
    """What each problem is measured by, by name."""
    found: dict[str, Callable[[Problem], float]] = {f"avg@{k}": lambda problem: problem.share_solved}
    if k > 1:
        found[f"pass@{k}"] = lambda problem: problem.pass_at(k)
        found[f"maj@{k}"] = Problem.majority
    return found


def compare(first: Judgement, second: Judgement) -> tuple[Difference, ...]:
    """Paired by problem, which both played; each problem's luck of being easy or hard falls out."""
    differences = []
    for name, measure in measures(first.num_samples).items():
        scores = [[measure(problem) for problem in one.problems] for one in (first, second)]
        mean, low, high = paired_difference(*scores)
        differences.append(Difference(measure=name, mean=mean, low=low, high=high))
    return tuple(differences)


def _problem(task: Task, samples: dict[int, Trajectory], num_samples: int) -> Problem:
    solved = tuple(number in samples and samples[number].reward >= SOLVED for number in range(num_samples))
    texts = [_final_text(samples[number]) if number in samples else None for number in range(num_samples)]
    return Problem(task_id=task.task_id, data_source=task.data_source, solved=solved, votes=votes_of(texts))


def _final_text(trajectory: Trajectory) -> str | None:
    """What the agent that spoke last said last."""
    return trajectory.turns[-1].response_text if trajectory.turns else None


def votes_of(texts: Sequence[str | None]) -> tuple[Vote | None, ...]:
    """Each text's vote: its last box, as a number or normalised text. Where no text of a problem has a box, the texts
    themselves vote, without the space around them; empty ones do not."""
    boxed = [None if text is None else same_answer_key(text) for text in texts]
    if any(vote is not None for vote in boxed):
        return tuple(boxed)
    return tuple(None if text is None else text.strip() or None for text in texts)


def _by_source(problems: Sequence[Problem], k: int) -> list[Scores]:
    sources: dict[str, list[Problem]] = {}
    for problem in problems:
        sources.setdefault(problem.data_source, []).append(problem)
    if len(sources) == 1:
        return [_scores(next(iter(sources)), problems, k)]
    return [_scores(ALL, problems, k), *(_scores(name, sources[name], k) for name in sorted(sources))]


def _scores(source: str, problems: Sequence[Problem], k: int) -> Scores:
    sizes = [] if k == 1 else sorted({*(2**power for power in range(1, k.bit_length()) if 2**power <= k), k})
    return Scores(
        source=source,
        num_problems=len(problems),
        average=mean_interval([problem.share_solved for problem in problems]),
        passes={size: mean_interval([problem.pass_at(size) for problem in problems]) for size in sizes},
        majority=mean_interval([problem.majority() for problem in problems]),
    )


def _rounds(trajectories: Sequence[Trajectory], tasks: Sequence[Task], num_samples: int) -> list[Round]:
    num_asked = len(tasks) * num_samples
    rounds = []
    for number in range(max((one.num_rounds for one in trajectories), default=0)):
        shares = dict.fromkeys((task.task_id for task in tasks), 0.0)
        for one in trajectories:
            shares[one.task.task_id] += float(one.num_rounds <= number + 1 and one.reward >= SOLVED) / num_samples
        reached = [one for one in trajectories if one.num_rounds > number]
        turns = [turn for one in reached for turn in one.of_round(number)]
        rounds.append(
            Round(
                share_reached=len(reached) / num_asked,
                solved=mean_interval(list(shares.values())),
                spoken=_spoken(turns, len(reached)),
            )
        )
    return rounds


def _spoken(turns: Sequence[Turn], num_samples: int) -> Spoken:
    lengths = [len(turn.response_ids) for turn in turns]
    cut = sum(turn.finish_reason is FinishReason.LENGTH for turn in turns)
    return Spoken(
        turns_per_sample=len(turns) / max(num_samples, 1),
        mean_tokens=sum(lengths) / max(len(lengths), 1),
        longest_tokens=max(lengths, default=0),
        share_cut=cut / max(len(turns), 1),
    )
