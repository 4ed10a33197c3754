"""What an evaluation says beyond its accuracy: by round, by agent, and of several samples of each problem."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.rewards.verdicts import confusion
from dagrl.runtime.evaluate import Evaluation, known, solved_shares
from dagrl.runtime.judgement import agent_rewards, judge_samples
from dagrl.runtime.statistics import mean_interval
from dagrl.types import FinishReason, Metrics, Task, Trajectory, Turn


def detailed_scores(evaluation: Evaluation, tasks: Sequence[Task], k: int, agent_names: Sequence[str]) -> Metrics:
    """Of the whole team, under the set's own names; `tasks` were played `k` times each, `agent_names` stand by agent
    group."""
    trajectories = evaluation.trajectories
    metrics = _of_rounds(tasks, trajectories) | _of_agents(trajectories, agent_names)
    metrics |= confusion([one for one in trajectories if one.unscored is None])
    if k > 1:
        scores = judge_samples(tasks, trajectories, num_samples=k, agent_names=agent_names).scores[0]
        metrics |= {"pass_at_k": scores.passes[k].mean, "maj_at_k": scores.majority.mean}
    return {f"{evaluation.place}{name}": value for name, value in metrics.items()}


def _of_rounds(tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> Metrics:
    """From the second: the first has `accuracy_first_round`."""
    last = max((one.num_rounds for one in trajectories), default=0)
    shares = {number: known(solved_shares(tasks, trajectories, max_rounds=number)) for number in range(2, last + 1)}
    return {f"round_{number}/accuracy": mean_interval(own).mean for number, own in shares.items()}


def _of_agents(trajectories: Sequence[Trajectory], agent_names: Sequence[str]) -> Metrics:
    rewards = agent_rewards(trajectories, agent_names)
    metrics = {f"agent_{name}/reward": reward for name, reward in rewards.items()}
    turns = [turn for one in trajectories for turn in one.turns]
    for group, name in enumerate(agent_names):
        own = [turn for turn in turns if turn.agent_group == group]
        if own:
            metrics |= {f"agent_{name}/{key}": value for key, value in _spoken(own, len(trajectories)).items()}
    return metrics


def _spoken(turns: Sequence[Turn], num_samples: int) -> Metrics:
    return {
        "turns": len(turns) / num_samples,
        "response_tokens": sum(len(turn.response_ids) for turn in turns) / len(turns),
        "cut": sum(turn.finish_reason is FinishReason.LENGTH for turn in turns) / len(turns),
    }
