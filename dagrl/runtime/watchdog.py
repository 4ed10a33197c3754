"""Watchdog: signs in the metrics that a run is going wrong, each with its likely cause and the setting to change."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Any

from dagrl.runtime.likely_causes import INFLUENCE, trained_share, who_is_lazy, who_talks, who_trains, why_still
from dagrl.types import Metrics

PATIENCE = 5
"""Steps in a row that a sign must hold before it is told."""
QUIET_STEPS = 50
"""Steps for which the same sign is not told again."""
MAX_CUT = 0.2
"""Share of responses cut by length, and of trajectories cut by the context, above which answers are lost."""
MAX_GAP = 0.05
"""Mean |log-prob of the sampler - of the trainer| in nats; float32 gives 1e-6, bfloat16 some 1e-2."""
MAX_TOKEN_SHARE = 0.95
"""Share of all response tokens that one agent of a team says."""
MIN_ENTROPY = 0.01
"""Nats per token below which a policy explores nothing."""
SOLVED = 0.9
"""Mean reward, as a share of the largest seen, above which low entropy is success."""
MAX_FAILED = 0.01
MAX_REPEATED = 0.5
"""Share of what an agent says that was said before in the conversation. It is too much where it is `REPEATED_RISE` more
than in the first steps, as some jobs are to repeat, and from `ALWAYS_REPEATED` on whatever it was then."""
REPEATED_RISE = 0.2
ALWAYS_REPEATED = 0.9
START_STEPS = 10
"""Steps at the start of a run whose reward the last ones are compared with, and the number of those."""
MIN_INFLUENCE = 1e-3
"""Nats per token by which an agent's message changes the others' answers; below it nobody notices."""
LAZY_PROBES = 3
"""Probes in a row below it before it is told."""
FIRST_STEPS = 5
"""Steps whose mean is taken for a run's ordinary repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One thing to look out for."""

    name: str
    is_there: Callable[[Metrics], bool]
    text: str
    """What it is, why it may be, what to change."""
    here: Callable[[Metrics], str] = lambda metrics: ""
    """What the metrics say about which of these it is; empty where they say nothing."""


SIGNS: Sequence[Sign] = (
    Sign(
        name="no_signal",
        is_there=lambda m: m.get("reward/std") == 0.0 and m.get("trajectory/count", 0.0) > 1,
        text="all rewards of a step are equal, so nothing is learnt: the problems are all too hard or too easy, or the "
        "answers are never found (look at `dagrl show`); change the data, rollout.n or the reward",
    ),
    Sign(
        name="reward_stands_still",
        is_there=lambda m: m["has_reward_moved"] == 0.0 and m.get("reward/std") != 0.0 and not _is_solved(m),
        text="the reward of the last steps is that of the first ones, within its noise: the updates are too small "
        "(raise actor.optim.lr, lower actor.kl_loss_coef), too noisy (raise rollout.n or data.train_batch_size), or "
        "the reward does not depend on what the agents do",
        here=why_still,
    ),
    Sign(
        name="entropy_collapse",
        is_there=lambda m: _smallest(m, "/policy/entropy") < MIN_ENTROPY and not _is_solved(m),
        text="an agent's entropy is nearly 0 while rewards are not high: it explores no more; raise "
        "actor.entropy_coeff or actor.kl_loss_coef, or lower actor.optim.lr",
    ),
    Sign(
        name="cut_responses",
        is_there=lambda m: _largest(m, "/cut") > MAX_CUT,
        text="more than 20 % of an agent's responses are cut by max_tokens: raise rollout.sampling.max_tokens, or "
        "reward shorter answers",
    ),
    Sign(
        name="full_context",
        is_there=lambda m: m.get("trajectory/ended/max_context", 0.0) > MAX_CUT,
        text="more than 20 % of trajectories end because the context is full: raise rollout.max_context_len, or drop "
        "old turns in post_process",
    ),
    Sign(
        name="sampler_drift",
        is_there=lambda m: _largest(m, "/policy/sampler_gap_mean") > MAX_GAP,
        text="sampler and trainer disagree about the log-probs of the same tokens: check dtype and "
        "attn_implementation; with dtype bfloat16 try float32",
    ),
    Sign(
        name="one_agent_talks",
        is_there=lambda m: _token_share(m) > MAX_TOKEN_SHARE,
        text="one agent says more than 95 % of all tokens: the others have gone silent or their max_tokens is small; "
        "algorithm.loss_agg_mode seq-mean-token-mean weighs agents by turns instead of tokens",
        here=who_talks,
    ),
    Sign(
        name="one_role_trains",
        is_there=lambda m: trained_share(m) > MAX_TOKEN_SHARE >= _token_share(m),
        text="one role has more than 95 % of the trained tokens although others speak: their samples are left out "
        "(groups without signal, cut or failed samples), or all of them are short beside it; look at rewards by role "
        "and at algorithm.group_by, or weigh turns instead of tokens (algorithm.loss_agg_mode)",
        here=who_trains,
    ),
    Sign(
        name="repeats_itself",
        is_there=lambda m: _largest(m, "/repeats_self_excess") > 0,
        text="an agent says the same again: most of its words stood in its own answers of the conversation before, and "
        "more than in the first steps. It has settled on one answer, or loops: raise rollout.sampling.temperature or "
        "actor.entropy_coeff, lower rollout.sampling.max_tokens, or let its hook show it what was wrong",
    ),
    Sign(
        name="repeats_others",
        is_there=lambda m: _largest(m, "/repeats_others_excess") > 0,
        text="an agent copies the others: most of its words were said by another agent of the conversation before, and "
        "more than in the first steps. Agreeing pays as much as working: hand on less in post_process, reward each "
        "agent for its own part (algorithm.reward_mode: per_agent), or leave the agent out",
    ),
    Sign(
        name="lazy_agent",
        is_there=lambda m: _largest(m, "/lazy_probes") >= LAZY_PROBES,
        text="an agent's message changes nothing in what the others answer: nobody reads it (their hooks), it says the "
        "same whatever the problem, or the others do the work themselves. Let the next agent need it, reward the agent "
        "for what it brings (a CREDIT node, rule difference), or leave it out (`dagrl eval --without`)",
        here=lambda m: who_is_lazy(m, LAZY_PROBES),
    ),
    Sign(
        name="failing_trajectories",
        is_there=lambda m: m.get("trajectory/failed", 0.0) > MAX_FAILED * m.get("trajectory/count", 0.0),
        text="trajectories fail in user code and are dropped: see the run's failures/ folder for each one's error",
    ),
    Sign(
        name="large_updates",
        is_there=lambda m: _largest(m, "/actor/kl") > 0.2,
        text="an update moves a policy far from the one that sampled (KL above 0.2): lower actor.optim.lr or "
        "ppo_epochs, or set actor.target_kl",
    ),
)


class Watchdog:
    """Tells of a sign when it has held for `PATIENCE` steps, and then not again for `QUIET_STEPS`."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._rewards: deque[float] = deque(maxlen=QUIET_STEPS)
        self._start_rewards: list[float] = []
        self._first_repeated: dict[str, list[float]] = {}
        self._lazy_probes: dict[str, int] = {}

    def look(self, step: int, metrics: Metrics) -> list[str]:
        """What to tell after `step` steps."""
        self._rewards.append(metrics.get("reward/mean", 0.0))
        if len(self._start_rewards) < START_STEPS:
            self._start_rewards.append(self._rewards[-1])
        seen = {**metrics, "best_reward": max(self._rewards), "has_reward_moved": float(self._has_reward_moved(step))}
        seen |= self._repeated_too_much(metrics) | self._without_influence(metrics)
        told = []
        for sign in SIGNS:
            self._held[sign.name] = self._held.get(sign.name, 0) + 1 if sign.is_there(seen) else 0
            is_due = step - self._told.get(sign.name, -QUIET_STEPS) >= QUIET_STEPS
            if self._held[sign.name] >= PATIENCE and is_due:
                self._told[sign.name] = step
                here = sign.here(seen)
                told.append(f"{sign.name}: {sign.text}" + (f"; here {here}" if here else ""))
        return told

    def _has_reward_moved(self, step: int) -> bool:
        """Whether the last steps' mean reward differs from the first ones' by two standard errors; true while there are
        too few to tell."""
        if step < 3 * START_STEPS or len(self._rewards) < 2 * START_STEPS:
            return True
        first, last = self._start_rewards, list(self._rewards)[-START_STEPS:]
        error = math.sqrt((pvariance(first) + pvariance(last)) / START_STEPS)
        return abs(fmean(last) - fmean(first)) > 2 * error

    def _repeated_too_much(self, metrics: Metrics) -> Metrics:
        """By how much each share of repetition is above what it may be in this run."""
        excess: Metrics = {}
        for name in (name for name in metrics if name.endswith(("/repeats_self", "/repeats_others"))):
            first = self._first_repeated.setdefault(name, [])
            if len(first) < FIRST_STEPS:
                first.append(metrics[name])
            usual = sum(first) / len(first)
            excess[f"{name}_excess"] = metrics[name] - min(max(MAX_REPEATED, usual + REPEATED_RISE), ALWAYS_REPEATED)
        return excess

    def _without_influence(self, metrics: Metrics) -> Metrics:
        """By agent, in how many probes in a row its message has changed nothing; the count stands until the next."""
        for name in (name for name in metrics if name.startswith(INFLUENCE)):
            agent = name.removeprefix(INFLUENCE)
            is_lazy = metrics[name] < MIN_INFLUENCE
            self._lazy_probes[agent] = self._lazy_probes.get(agent, 0) + 1 if is_lazy else 0
        return {f"{agent}/lazy_probes": float(count) for agent, count in self._lazy_probes.items()}

    def state_dict(self) -> dict[str, Any]:
        first = {name: list(values) for name, values in self._first_repeated.items()}
        return {
            "held": dict(self._held),
            "told": dict(self._told),
            "rewards": list(self._rewards),
            "start_rewards": list(self._start_rewards),
            "first_repeated": first,
            "lazy_probes": dict(self._lazy_probes),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._held, self._told = dict(state["held"]), dict(state["told"])
        self._rewards = deque(state["rewards"], maxlen=QUIET_STEPS)
        self._start_rewards = list(state["start_rewards"])
        self._lazy_probes = dict(state["lazy_probes"])
        self._first_repeated = {name: list(values) for name, values in state["first_repeated"].items()}


def _largest(metrics: Metrics, ending: str) -> float:
    return max((value for name, value in metrics.items() if name.endswith(ending)), default=0.0)


def _smallest(metrics: Metrics, ending: str) -> float:
    return min((value for name, value in metrics.items() if name.endswith(ending)), default=float("inf"))


def _is_solved(metrics: Metrics) -> bool:
    best = metrics["best_reward"]
    return best > 0 and metrics.get("reward/mean", 0.0) >= SOLVED * best and best >= SOLVED


def _token_share(metrics: Metrics) -> float:
    """Of the agent that says most; 0 where one speaks alone."""
    tokens = [
        metrics[name] * metrics[name.replace("/response_tokens", "/turns")]
        for name in metrics
        if name.endswith("/response_tokens")
    ]
    return max(tokens) / sum(tokens) if len(tokens) > 1 and sum(tokens) > 0 else 0.0


def as_markdown() -> str:
    """All signs as a table for the docs."""
    rows = [f"| `{sign.name}` | {sign.text[:1].upper()}{sign.text[1:]} |" for sign in SIGNS]
    return "\n".join(["| warning | what it is, why it may be, what to change |", "|---|---|", *rows])
