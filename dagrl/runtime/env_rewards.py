"""Where the rewards of an environment stand: on which turns of a round, each counted once."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.environments.protocol import EnvAnswer
from dagrl.types import Turn
from dagrl.workflow.kinds import RewardPlacement


def team_reward(answer: EnvAnswer, actors: Sequence[int]) -> float:
    """The team's number, or the mean over agents of their own (an agent that acted twice: of their sum)."""
    if not answer.rewards:
        return 0.0
    return answer.rewards[0] if answer.is_team_reward else sum(answer.rewards) / len(set(actors))


def place_rewards(
    answer: EnvAnswer,
    actions: Sequence[tuple[int, Turn | None]],
    turns: Sequence[Turn],
    mode: RewardPlacement,
) -> None:
    """Adds one answer's rewards to the turns of its round.

    `actions`: agent group and turn of each action; None where the agent did not speak. `turns`: all turns of the round
    in time order. chained: the last acting turn gets the team's reward. team: the last turn of every agent of the round
    does. per_agent: each action's own, or the team's once for each agent; per_agent_chained: once at all. by_credit: a
    CREDIT node gives them out.
    """
    if mode == "by_credit":
        return
    team = team_reward(answer, [group for group, _ in actions])
    acted = [turn for _, turn in actions if turn is not None]
    if mode == "team":
        for turn in {turn.agent_group: turn for turn in turns}.values():
            turn.reward += team
    elif mode != "chained" and not answer.is_team_reward:
        for reward, (_, own) in zip(answer.rewards, actions):
            if own is not None:
                own.reward += reward
    elif mode == "per_agent":
        for turn in {turn.agent_group: turn for turn in acted}.values():
            turn.reward += team
    elif acted:
        _last(acted, turns).reward += team


def _last(acted: Sequence[Turn], turns: Sequence[Turn]) -> Turn:
    """The turn of `acted` that stands last in `turns`."""
    return next(turn for turn in reversed(turns) if any(turn is one for one in acted))
