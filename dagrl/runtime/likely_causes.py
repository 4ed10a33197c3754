"""Which of the causes of a warning it is, as far as a step's own numbers say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dagrl.types import Metrics

TINY_KL = 1e-5
"""Nats: below it an update of a policy changes nothing that could be seen."""
INFLUENCE = "influence/kl/"
"""Names of how much an agent's message changes the others' answers begin so."""
_AGENT = re.compile(r"agent_(.+)/response_tokens")
_ROLE = re.compile(r"role/(.+)/trained_share")


def why_still(metrics: Metrics) -> str:
    """Why a reward does not move."""
    moves = {name: value for name, value in metrics.items() if name.endswith("/actor/kl")}
    if moves and max(moves.values()) < TINY_KL:
        return f"no update moves a policy by more than {max(moves.values()):.1e} nats: the updates are too small"
    if metrics.get("trajectory/solved") == 0.0:
        return "no conversation is solved: the problems are too hard, or the answers are never found"
    count, spread = metrics.get("trajectory/count", 0.0), metrics.get("reward/std", 0.0)
    if count and spread:
        seen = 2 * spread / count**0.5
        return f"a step of {count:.0f} trajectories sees no gain below {seen:.3f}: the updates may be too noisy"
    return ""


def who_talks(metrics: Metrics) -> str:
    """Which agent says nearly all, and what the others do instead."""
    said = {
        match[1]: value * metrics[f"agent_{match[1]}/turns"]
        for name, value in metrics.items()
        if (match := _AGENT.fullmatch(name))
    }
    if not said or not sum(said.values()):
        return ""
    first = max(said, key=said.__getitem__)
    others = [_little(name, metrics) for name in said if name != first]
    return f"{first} says {said[first] / sum(said.values()):.0%}; {'; '.join(others)}"


def _little(name: str, metrics: Metrics) -> str:
    if metrics.get(f"agent_{name}/empty", 0.0) > 0.5:
        return f"{name} is silent in {metrics[f'agent_{name}/empty']:.0%} of its turns"
    if metrics[f"agent_{name}/turns"] < 0.5 * metrics.get("trajectory/count", 0.0):
        return f"{name} is asked in {metrics[f'agent_{name}/turns']:.0f} turns of the step only"
    return f"{name} says {metrics[f'agent_{name}/response_tokens']:.1f} tokens in a turn"


def trained_share(metrics: Metrics) -> float:
    """Of the role with the most trained tokens; 0 where no roles are told apart."""
    return max(_shares(metrics).values(), default=0.0)


def who_trains(metrics: Metrics) -> str:
    """Which role has nearly all trained tokens, and what the others said."""
    shares = _shares(metrics)
    if not shares:
        return ""
    first = max(shares, key=shares.__getitem__)
    others = [
        f"{name} has {share:.1%} and says {metrics.get(f'role/{name}/tokens', 0.0):.1f} tokens in a conversation"
        for name, share in shares.items()
        if name != first
    ]
    return f"{first} has {shares[first]:.1%}; {'; '.join(others)}"


def _shares(metrics: Metrics) -> Mapping[str, float]:
    return {match[1]: value for name, value in metrics.items() if (match := _ROLE.fullmatch(name))}


def who_is_lazy(metrics: Metrics, num_probes: int) -> str:
    """Whose message changes nothing, as far as the last step was probed; `<agent>/lazy_probes` say since when."""
    names = [
        name.removesuffix("/lazy_probes")
        for name, count in metrics.items()
        if name.endswith("/lazy_probes") and count >= num_probes
    ]
    return "; ".join(f"{name}, {_heard(metrics.get(f'influence/heard/{name}'))}" for name in names)


def _heard(share: float | None) -> str:
    if share is None:
        return "in each of the last probes"
    return "whom nobody reads" if share == 0.0 else f"though {share:.0%} of the others' turns read it"
