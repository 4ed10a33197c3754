"""ExtraRollouts: play in the middle of a step, for learn nodes that ask for it; counted, traced, scored."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.nodes.reward import RewardNode
from dagrl.runtime.ledger import Ledger
from dagrl.runtime.player import Player
from dagrl.runtime.trace import Trace
from dagrl.trace_events import EXTRA_PLAY
from dagrl.types import ExtraRollout, Trajectory


class ExtraRollouts:
    """What nodes are given as `ExtraPlay`."""

    def __init__(self, player: Player, scorer: RewardNode | None, ledger: Ledger, trace: Trace) -> None:
        """`scorer`: the workflow's REWARD node; None takes the environment's rewards."""
        self._player = player
        self._scorer = scorer
        self._ledger = ledger
        self._trace = trace

    async def again(self, wanted: Sequence[ExtraRollout]) -> list[Trajectory | None]:
        if not wanted:
            return []
        with self._trace.phase(EXTRA_PLAY, is_played=True):
            played = await self._player.play_extra(wanted)
        self._ledger.note_extra(len(wanted))
        whole = [one for one in played if isinstance(one, Trajectory)]
        if self._scorer is not None:
            self._scorer.score(whole)
        return [one if isinstance(one, Trajectory) and one.unscored is None else None for one in played]
