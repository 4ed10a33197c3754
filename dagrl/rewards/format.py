"""Format of a response: sections in tags, each once, in order, nothing beside them."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.errors import DagrlError
from dagrl.rewards.turns import TurnRewards, each_turn
from dagrl.types import Trajectory


def format_score(trajectory: Trajectory, *, tags: Sequence[str], nodes: Sequence[str] = ()) -> TurnRewards | float:
    """For each turn of `nodes` (all, if not given): 1 where the response is one section for each of `tags`, in this
    order, else 0. `tags: [think, answer]` is DeepSeek-R1's format (arXiv 2501.12948)."""
    if not tags or isinstance(tags, str):
        raise DagrlError(f"tags are {tags!r}", where="reward 'format'", how="for example tags: [think, answer]")
    return each_turn(trajectory, nodes, lambda turn: float(is_tagged(turn.response_text, tags)))


def is_tagged(text: str, tags: Sequence[str]) -> bool:
    """Whether `text` is nothing but one section for each tag, opened and closed once, in order, with a text inside.

    >>> is_tagged("<think>2 + 2</think> <answer>4</answer>", ["think", "answer"])
    True
    >>> is_tagged("<think>2 + 2</think> so <answer>4</answer>", ["think", "answer"])
    False
    """
    if any(text.count(mark) != 1 for tag in tags for mark in (f"<{tag}>", f"</{tag}>")):
        return False
    rest = text
    for tag in tags:
        before, _, rest = rest.partition(f"<{tag}>")
        inside, closed, rest = rest.partition(f"</{tag}>")
        if before.strip() or not closed or not inside.strip():
            return False
    return not rest.strip()
