"""What k samples per problem say about a team: avg@k, pass@k, maj@k with intervals, by source, agent and round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from dagrl.rewards.math import same_answer_key
from dagrl.rewards.verdicts import confusion
from dagrl.runtime.evaluate import known, mean_reward, solved_shares
from dagrl.runtime.statistics import Interval, known_pairs, mean_interval, paired_difference
from dagrl.types import SOLVED, FinishReason, Task, Trajectory, Turn

ALL = "all"
"""The row over every data source."""

Vote = Hashable
"""What two final answers have in common if they are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem and how its k samples ended."""

    task_id: str
    data_source: str
    solved: tuple[bool | None, ...]
    """By sample; None where there is no verdict: the sample failed, or nobody could find its reward."""
    votes: tuple[Vote | None, ...]
    """The team's final answer by sample; None where it gave none, and where there is no verdict."""

    @property
    def verdicts(self) -> list[bool]:
        """Of the samples that have one."""
        return [one for one in self.solved if one is not None]

    @property
    def share_solved(self) -> float | None:
        """avg@k of this problem, which is its pass@1 too, over the samples with a verdict; None without any."""
        return sum(self.verdicts) / len(self.verdicts) if self.verdicts else None

    def pass_at(self, k: int) -> float | None:
        """None where fewer than `k` samples have a verdict."""
        return pass_at_k(len(self.verdicts), sum(self.verdicts), k) if len(self.verdicts) >= k else None

    def majority(self) -> float | None:
        """maj@k: the share of solved samples among those that gave the answer given most; 0 where no sample with a
        verdict has an answer, None without any verdict."""
        winner = majority(self.votes)
        if winner is None:
            return 0.0 if self.verdicts else None
        own = [solved is True for solved, vote in zip(self.solved, self.votes, strict=True) if vote == winner]
        return sum(own) / len(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of the problems of one data source; every interval is over problems."""

    source: str
    num_problems: int
    num_judged: int
    """Problems of which a sample has a verdict: those that avg@k and maj@k are over."""
    average: Interval
    """avg@k."""
    average_at_worst: float
    """avg@k if every sample without a verdict were not solved."""
    passes: dict[int, Interval]
    """pass@k' for k' = 2, 4, 8, … and k itself; empty for k = 1, where it is avg@k."""
    num_passes: dict[int, int]
    """Problems that each pass@k' is over: those with k' verdicts or more."""
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
    """Of the samples that did not fail."""
    solved: Interval
    """Share of samples with a verdict that were solved in this round or an earlier one."""
    spoken: Spoken


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """All that is told about one team."""

    problems: tuple[Problem, ...]
    num_samples: int
    num_failed: int
    """Samples that user code broke."""
    num_unknown: int
    """Samples that were played and whose reward nobody could find."""
    mean_reward: float
    """Of the samples with a verdict; NaN without any."""
    scores: tuple[Scores, ...]
    """Over all problems first, then by data source, where there are several."""
    agents: dict[str, Spoken]
    agent_rewards: dict[str, float]
    """Mean reward of a turn of each agent that spoke in a sample with a verdict."""
    verdicts: dict[str, float]
    """Confusion matrices of agents that judge, as the reward function gave them."""
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Second team less first, over the same problems."""

    measure: str
    """`avg@8` and the like."""
    mean: float
    low: float
    high: float
    num_problems: int
    """Problems for which both teams have the measure."""


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
    """`trajectories` are the samples of `tasks` that did not fail, scored as far as they could be; `agent_names` stand
    by agent group."""
    by_task: dict[str, dict[int, Trajectory]] = {task.task_id: {} for task in tasks}
    for one in trajectories:
        by_task[one.task.task_id][one.sample] = one
    problems = tuple(_problem(task, by_task[task.task_id], num_samples) for task in tasks)
    turns = [turn for one in trajectories for turn in one.turns]
    return Judgement(
        problems=problems,
        num_samples=num_samples,
        num_failed=len(tasks) * num_samples - len(trajectories),
        num_unknown=sum(one.unscored is not None for one in trajectories),
        mean_reward=mean_reward(trajectories),
        scores=tuple(_by_source(problems, num_samples)),
        agents={
            name: _spoken([turn for turn in turns if turn.agent_group == group], len(trajectories))
            for group, name in enumerate(agent_names)
        },
        agent_rewards=agent_rewards(trajectories, agent_names),
        verdicts=confusion([one for one in trajectories if one.unscored is None]),
        rounds=tuple(_rounds(trajectories, tasks)),
    )


def measures(k: int) -> dict[str, Callable[[Problem], float | None]]:
    """What each problem is measured by, by name."""
    found: dict[str, Callable[[Problem], float | None]] = {f"avg@{k}": lambda problem: problem.share_solved}
    if k > 1:
        found[f"pass@{k}"] = lambda problem: problem.pass_at(k)
        found[f"maj@{k}"] = Problem.majority
    return found


def compare(first: Judgement, second: Judgement) -> tuple[Difference, ...]:
    """Paired by problem, which both played; each problem's luck of being easy or hard falls out. A problem that one of
    them has no verdict on is in no pair."""
    differences = []
    for name, measure in measures(first.num_samples).items():
        own, other = known_pairs(*([measure(problem) for problem in one.problems] for one in (first, second)))
        mean, low, high = paired_difference(own, other)
        differences.append(Difference(measure=name, mean=mean, low=low, high=high, num_problems=len(own)))
    return tuple(differences)


def _problem(task: Task, samples: dict[int, Trajectory], num_samples: int) -> Problem:
    judged = {number: one for number, one in samples.items() if one.unscored is None}
    solved = tuple(judged[number].reward >= SOLVED if number in judged else None for number in range(num_samples))
    texts = [_final_text(judged[number]) if number in judged else None for number in range(num_samples)]
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
    passes = {size: known(problem.pass_at(size) for problem in problems) for size in sizes}
    shares = known(problem.share_solved for problem in problems)
    return Scores(
        source=source,
        num_problems=len(problems),
        num_judged=len(shares),
        average=mean_interval(shares),
        average_at_worst=sum(sum(problem.verdicts) for problem in problems) / max(len(problems) * k, 1),
        passes={size: mean_interval(values) for size, values in passes.items()},
        num_passes={size: len(values) for size, values in passes.items()},
        majority=mean_interval(known(problem.majority() for problem in problems)),
    )


def agent_rewards(trajectories: Sequence[Trajectory], agent_names: Sequence[str]) -> dict[str, float]:
    """Mean reward of a turn of each agent, over the trajectories with a verdict."""
    rewards: dict[int, list[float]] = {}
    for turn in (turn for one in trajectories if one.unscored is None for turn in one.turns):
        rewards.setdefault(turn.agent_group, []).append(turn.reward)
    return {agent_names[group]: sum(own) / len(own) for group, own in sorted(rewards.items())}


def _rounds(trajectories: Sequence[Trajectory], tasks: Sequence[Task]) -> list[Round]:
    rounds = []
    for number in range(max((one.num_rounds for one in trajectories), default=0)):
        shares = known(solved_shares(tasks, trajectories, max_rounds=number + 1))
        reached = [one for one in trajectories if one.num_rounds > number]
        turns = [turn for one in reached for turn in one.of_round(number)]
        rounds.append(
            Round(
                share_reached=len(reached) / len(trajectories),
                solved=mean_interval(shares),
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
