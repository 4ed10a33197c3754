"""A judged team as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagrl.plain_text import safe
from dagrl.runtime.judge import Verdict
from dagrl.runtime.judgement import Difference, Scores, Spoken

_GAP = "  "


def verdict_lines(verdict: Verdict) -> list[str]:
    """What `dagrl eval` prints of one team; intervals hold at 95 %."""
    judgement, evaluation = verdict.judgement, verdict.evaluation
    k = judgement.num_samples
    without = "" if evaluation.without is None else f", without {evaluation.without}"
    lines = [f"{verdict.team.name}{without}: {len(judgement.problems)} problems, {k} sample(s) each"]
    for name, server in verdict.servers.items():
        lines.append(f"  {name}: {server['model']} at {server['url']}, prompts sent as {server['prompts']}")
    if verdict.is_warmed:
        lines.append("  held-out sampling is greedy in this run (rollout.val_kwargs.temperature 0), which would make")
        lines.append("  all samples of a problem the same: sampled at temperature 1 instead")
    lines += _without_verdict(verdict)
    lines += ["", *table([_head(k, judgement.scores[0]), *(_row(k, scores) for scores in judgement.scores)])]
    agents: list[tuple[str, ...]] = [
        ("agent", "reward/turn", *_SPOKEN_HEAD),
        *((name, _reward(judgement.agent_rewards.get(name)), *_spoken(one)) for name, one in judgement.agents.items()),
    ]
    lines += ["", *table(agents), *_verdicts(judgement.verdicts)]
    rounds: list[tuple[str, ...]] = [("round", "reached", "solved by then", *_SPOKEN_HEAD)]
    for number, one in enumerate(judgement.rounds, start=1):
        rounds.append((str(number), f"{one.share_reached:.0%}", str(one.solved), *_spoken(one.spoken)))
    return [safe(line) for line in [*lines, "", *table(rounds)]]


def difference_lines(first: Verdict, second: Verdict, differences: Sequence[Difference]) -> list[str]:
    """The paired comparison of two teams."""
    rows = [("measure", "problems", "difference", "")]
    for one in differences:
        size = _of(one.num_problems, len(first.judgement.problems))
        told = f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]" if one.num_problems else "unknown"
        verdict = "" if one.low <= 0 <= one.high else "better" if one.mean > 0 else "worse"
        rows.append((one.measure, size, told, verdict))
    left_out = [
        f"  {one.team.name}: {one.judgement.num_failed} failed, {one.judgement.num_unknown} without a reward; "
        "a problem that it has no verdict on is in no pair"
        for one in (first, second)
        if one.judgement.num_failed or one.judgement.num_unknown
    ]
    lines = [f"{second.team.name} less {first.team.name}, paired by problem:", *left_out, "", *table(rows)]
    return [safe(line) for line in lines]


def _without_verdict(verdict: Verdict) -> list[str]:
    """The samples that no share counts, and what the share would be at worst; nothing where every sample has one."""
    judgement, evaluation = verdict.judgement, verdict.evaluation
    k, scores = judgement.num_samples, judgement.scores[0]
    told = [("failed in user code", evaluation.failed), ("played, but without a reward", evaluation.unknown)]
    lines = [f"  samples {what}: {sum(kinds.values())} ({_counts(kinds)})" for what, kinds in told if kinds]
    if not lines:
        return []
    lines.append(f"  they count neither as solved nor as not solved; avg@{k} with all of them not solved: "
                 f"{scores.average_at_worst:.3f}")  # fmt: skip
    if any(number < scores.num_problems for number in scores.num_passes.values()):
        sizes = ", ".join(f"pass@{size} {number}" for size, number in scores.num_passes.items())
        lines.append(f"  problems with enough verdicts, of {scores.num_problems}: {sizes}")
    return lines


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in kinds.items())


def _of(number: int, size: int) -> str:
    return str(size) if number == size else f"{number} of {size}"


def _head(k: int, scores: Scores) -> tuple[str, ...]:
    passes = [f"pass@{size}" for size in scores.passes]
    return ("data source", "problems", f"avg@{k}", *passes, *([f"maj@{k}"] if k > 1 else []))


def _row(k: int, scores: Scores) -> tuple[str, ...]:
    passes = [str(interval) for interval in scores.passes.values()]
    majority = [str(scores.majority)] if k > 1 else []
    return (scores.source, _of(scores.num_judged, scores.num_problems), str(scores.average), *passes, *majority)


def _reward(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.3f}"


def _verdicts(shares: Mapping[str, float]) -> list[str]:
    """The confusion matrices, a row for each pair of labels; nothing where nobody judges."""
    rows: list[tuple[str, ...]] = [("verdict of", "said", "should say", "share")]
    for name, share in shares.items():
        _, who, *labels = name.split("/")
        if len(labels) == 2:
            rows.append((who, *labels, f"{share:.1%}"))
    return ["", *table(rows)] if len(rows) > 1 else []


_SPOKEN_HEAD = ("turns/sample", "tokens/turn", "longest", "cut")


def _spoken(one: Spoken) -> tuple[str, ...]:
    return (f"{one.turns_per_sample:.2f}", f"{one.mean_tokens:.1f}", str(one.longest_tokens), f"{one.share_cut:.1%}")


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        (_GAP + _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in rows
    ]
