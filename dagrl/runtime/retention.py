"""Retention: which checkpoints a run keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The newest `keep_last`, and of those with a held-out accuracy the best `keep_best`."""

    keep_last: int | None = None
    """None keeps all."""
    keep_best: int = 0
    accuracies: Mapping[int, float] = field(default_factory=dict)
    """Held-out accuracy by step, as far as it is known."""

    def __post_init__(self) -> None:
        assert self.keep_last is None or self.keep_last >= 1

    @property
    def spares_an_older(self) -> bool:
        """Whether there is room for one besides the newest."""
        return self.keep_last is None or self.keep_last > 1

    def kept(self, steps: Sequence[int]) -> set[int]:
        """Those of `steps` that stay; of equal accuracies the latest is the better."""
        if self.keep_last is None:
            return set(steps)
        judged = sorted(set(steps) & self.accuracies.keys(), key=lambda step: (self.accuracies[step], step))
        return {*sorted(steps)[-self.keep_last :], *(judged[-self.keep_best :] if self.keep_best else ())}


KEEP_ALL = Retention()
