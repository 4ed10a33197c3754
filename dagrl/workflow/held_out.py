"""Held-out sets: what an evaluation plays, how, and which set counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from dagrl.types import SamplingParams
from dagrl.workflow.layers import given
from dagrl.workflow.sections import ConfigSpec, EvalSetSpec

NAME = re.compile(r"[\w.-]+")
"""What a set may be called: its name stands in names of metrics and files."""
RESERVED = re.compile(r"agent_.*|round_.*|verdict|without|.*_without_.*")
"""Names that would be taken for something else there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutSet:
    """Problems that are played and scored together."""

    name: str = ""
    """Empty for `data.val_files`, which need none."""
    files: tuple[str, ...] = ()
    k: int = 1
    """Samples of each problem."""
    counts: bool = True
    """Its scores are those of the run: `val/accuracy`, the best checkpoint, budgets."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What all agents sample otherwise than `rollout.val_kwargs` says."""

    def params(self, usual: SamplingParams) -> SamplingParams:
        """How an agent samples on this set that samples by `usual` on held-out problems."""
        told = {key: value for key, value in self.sampling.items() if key != "seed"}
        if "top_k" in told:
            told["top_k"] = max(told["top_k"], 0)
        return replace(usual, **told)

    def seed(self, usual: int | None) -> int | None:
        seed: int | None = self.sampling.get("seed", usual)
        return seed


VAL = HeldOutSet()
"""Held-out problems played by `rollout.val_kwargs`."""


def held_out_sets(config: ConfigSpec) -> tuple[HeldOutSet, ...]:
    """The sets of a run, the one that counts first; none where nothing is held out."""
    usual = config.rollout.val_kwargs.n
    if not config.trainer.eval:
        return (HeldOutSet(files=config.data.val_files, k=usual),) if config.data.val_files else ()
    best = config.trainer.best_set or set_name(config.trainer.eval[0])
    sets = [_of(spec, usual, best) for spec in config.trainer.eval]
    return tuple(sorted(sets, key=lambda one: not one.counts))


def set_name(spec: EvalSetSpec) -> str:
    """Its own, or that of its first file: `data/aime24.jsonl` is aime24, `me/amc:test` amc."""
    if spec.name is not None:
        return spec.name
    last = PurePath(spec.files[0].partition(":")[0]).name
    return re.sub(r"[^\w.-]+", "-", re.sub(r"\.(parquet|jsonl?)$", "", last))


def _of(spec: EvalSetSpec, usual: int, best: str) -> HeldOutSet:
    told = {key: value for key, value in given(spec).items() if key not in ("name", "files", "k") and value is not None}
    name = set_name(spec)
    return HeldOutSet(
        name=name,
        files=spec.files,
        k=usual if spec.k is None else spec.k,
        counts=name == best,
        sampling=told,
    )
