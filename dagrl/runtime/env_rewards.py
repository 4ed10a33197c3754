"""Where the rewards of an environment stand: on which turns of a round, each counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagrl.environments.protocol import EnvAnswer
from dagrl.types import Turn
from dagrl.workflow.kinds import RewardPlacement


def team_reward(answer: EnvAnswer, actors: Sequence[int]) -> float:
    """The team's number, or the mean over agents of their own (an agent that acted twice: of their sum)."""
    if not answer.rewards:
        return 0.0
    return answer.rewards[0] if answer.is_team_reward else sum(answer.rewards) / len(set(actors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action of a step."""

    group: int
    latest: Turn | None
    """The latest turn of who acts: this round's, an earlier one where it was silent, None where it never spoke."""


def place_rewards(
    answer: EnvAnswer,
    actions: Sequence[Action],
    turns: Sequence[Turn],
    mode: RewardPlacement,
) -> None:
    """Adds one answer's rewards to the turns of its round.

    `turns`: all turns of the round in time order. chained: the last acting turn gets the team's reward. team: the last
    turn of every agent of the round does; team_by_speaker: that of every node and branch. per_agent: each action's own,
    or the team's once for each agent; per_agent_chained: once at all. by_credit: a CREDIT node gives them out. A reward
    of its own for who was silent in this round (a game is lost by the other player's move) stands on its latest turn.
    """
    if mode == "by_credit":
        return
    team = team_reward(answer, [action.group for action in actions])
    acted = [turn for turn in turns if any(turn is action.latest for action in actions)]
    if mode == "team_by_speaker":
        for turn in {(turn.node_id, turn.branch): turn for turn in turns}.values():
            turn.reward += team
    elif mode == "team":
        for turn in {turn.agent_group: turn for turn in turns}.values():
            turn.reward += team
    elif mode != "chained" and not answer.is_team_reward:
        for reward, action in zip(answer.rewards, actions):
            if action.latest is not None:
                action.latest.reward += reward
    elif mode == "per_agent":
        for turn in {turn.agent_group: turn for turn in acted}.values():
            turn.reward += team
    elif acted:
        acted[-1].reward += team
