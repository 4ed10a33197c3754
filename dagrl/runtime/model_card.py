"""The model card of an exported agent: its team's graph, held-out scores, training curve and settings, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl import __version__
from dagrl.backends.vision import IMAGE_PROCESSOR_FILE
from dagrl.runtime.statistics import accuracy_interval
from dagrl.workflow.draw import draw
from dagrl.workflow.graph import Workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.sections import ModelSpec

_READS_IMAGES = "AutoModelForImageTextToText"
MAX_CURVE_ROWS = 12
"""A longer training is shown as means over parts of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card is made from."""

    workflow: Workflow
    group: AgentGroup
    run: str
    step: int
    """Steps done at the checkpoint."""
    auto_class: str
    """What loads the folder."""
    is_peft: bool
    """True where the folder holds a LoRA adapter alone."""
    num_problems: int | None
    """Held-out problems of the run's own evaluations; None where it is not known, and no interval can be given."""
    metrics: Sequence[Mapping[str, Any]]
    """Rows up to the checkpoint."""
    judged: Sequence[Mapping[str, Any]]
    """What `dagrl eval` found of this checkpoint."""


def model_card(facts: CardFacts) -> str:
    """README.md of the agent's folder. Names no licence: that is the user's to choose."""
    parts = [_head(facts), _introduction(facts), _team(facts), _scores(facts), _curve(facts), _settings(facts)]
    return "\n\n".join([*parts, _use(facts), _licence()]) + "\n"


def base_model(spec: ModelSpec) -> str:
    """How the base model is called, without the folders of the machine it was on."""
    if spec.recipe is not None:
        file, _, function = spec.recipe.rpartition(":")
        return f"made by the recipe {Path(file).name}:{function}"
    assert spec.path is not None, "a workflow that ran has a model"
    return Path(spec.path).name if _is_folder(spec.path) else spec.path


def _is_folder(path: str) -> bool:
    return Path(path).is_absolute() or Path(path).is_dir()


def _head(facts: CardFacts) -> str:
    lines = ["---", f"library_name: {'peft' if facts.is_peft else 'transformers'}", "pipeline_tag: text-generation"]
    path = facts.group.model.path
    if path is not None and not _is_folder(path):
        lines.append(f"base_model: {path}")
    return "\n".join([*lines, "tags:", "- dagrl", "- reinforcement-learning", "- multi-agent", "---"])


def _introduction(facts: CardFacts) -> str:
    team = ", ".join(_cell(group.name) for group in facts.workflow.groups)
    what = "A LoRA adapter for" if facts.is_peft else "A causal language model, trained from"
    return (
        f"# {_cell(facts.group.name)}\n\n"
        f"{what} the base model {_cell(base_model(facts.group.model))}: one agent of the team "
        f"`{_cell(facts.workflow.spec.dag_id)}` ({team}), after {facts.step} steps of reinforcement learning with "
        f"dagrl {__version__} (run `{_cell(facts.run)}`). It was trained to work in this team, on prompts made by the "
        "team's hooks; alone, or with other prompts, it may behave otherwise."
    )


def _team(facts: CardFacts) -> str:
    return f"## The team\n\n```mermaid\n{draw(facts.workflow, 'mermaid')}\n```"


def _scores(facts: CardFacts) -> str:
    rows = [row for row in facts.metrics if row.get("val/accuracy") is not None]
    parts = ["## Held-out scores", "Of the whole team; intervals hold at 95 %."]
    if rows:
        table: list[tuple[str, ...]] = [("after step", "accuracy", "in the first round", "mean reward")]
        for row in rows:
            number = row.get("val/problems") or facts.num_problems
            accuracies = [_accuracy(row.get(f"val/{name}"), number) for name in ("accuracy", "accuracy_first_round")]
            table.append((str(int(row["step"])), *accuracies, _number(row.get("val/reward"))))
        known = facts.num_problems is not None
        parts.append(
            f"{facts.num_problems} problems." if known else "The number of problems is not known: no intervals."
        )
        parts.append(_table(table))
    else:
        parts.append("The run evaluated nothing up to this step.")
    return "\n\n".join([*parts, *(_judged(one) for one in facts.judged)])


def _accuracy(mean: float | None, num_problems: float | None) -> str:
    if mean is None or num_problems is None:
        return _number(mean)
    return str(accuracy_interval(mean * num_problems, num_problems))


def _judged(one: Mapping[str, Any]) -> str:
    """The table of one `dagrl eval`."""
    k = one["num_samples"]
    files = ", ".join(f"`{_cell(Path(file).name)}`" for file in one["data"]) or "the run's held-out problems"
    sizes = list(one["scores"][0]["passes"])
    names = [f"avg@{k}", *(f"pass@{size}" for size in sizes), *([f"maj@{k}"] if k > 1 else [])]
    rows = [("data source", "problems", *names)]
    for scores in one["scores"]:
        intervals = [scores["average"], *scores["passes"].values(), *([scores["majority"]] if k > 1 else [])]
        rows.append((_cell(scores["source"]), str(scores["num_problems"]), *map(_interval, intervals)))
    temperatures = ", ".join(sorted({f"{temperature:g}" for temperature in one["temperatures"].values()}))
    how = f"{k} sample(s) of each problem at temperature {temperatures}"
    return f"By `dagrl eval` on {files}, {how}:\n\n{_table(rows)}"


def _interval(interval: Mapping[str, float]) -> str:
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _curve(facts: CardFacts) -> str:
    place = f"agent_{facts.group.name}"
    columns = {
        "team's reward": "reward/mean",
        "agent's reward": f"{place}/reward",
        "entropy": f"{place}/policy/entropy",
        "KL of the updates": f"{place}/actor/kl",
        "tokens per response": f"{place}/response_tokens",
    }
    rows = [row for row in facts.metrics if "trajectory/count" in row]
    if not rows:
        return "## Training\n\nNo step was logged."
    columns = {title: name for title, name in columns.items() if any(row.get(name) is not None for row in rows)}
    table = [("steps", *columns)]
    num_parts = min(len(rows), MAX_CURVE_ROWS)
    for part in range(num_parts):
        own = rows[part * len(rows) // num_parts : (part + 1) * len(rows) // num_parts]
        first, last = int(own[0]["step"]), int(own[-1]["step"])
        means = [_number(_mean([row.get(name) for row in own])) for name in columns.values()]
        table.append((str(first) if first == last else f"{first}-{last}", *means))
    return f"## Training\n\nMeans over the steps of each row.\n\n{_table(table)}"


def _settings(facts: CardFacts) -> str:
    config, group = facts.workflow.spec.config, facts.group
    node = next(node for node in facts.workflow.nodes if _trains(node.kind, node.agent_group, group.index))
    sampling = next((one.sampling for one in facts.workflow.play if one.agent_group == group.index), None)
    adapter = "none: all weights" if group.adapter is None else f"r {group.adapter.r}, alpha {group.adapter.alpha:g}"
    rows = {
        "base model": base_model(group.model),
        "dtype": group.model.dtype,
        "adapter": adapter,
        "advantage estimator": node.algorithm.adv_estimator,
        "policy loss": node.algorithm.policy_loss,
        "learning rate": f"{group.actor.optim.lr:g}",
        "epochs per step": str(group.actor.ppo_epochs),
        "problems per step": str(config.data.train_batch_size),
        "samples of each": str(config.rollout.n),
        "rounds at most": str(config.rollout.max_rounds),
        "seed": str(config.trainer.seed),
    }
    if sampling is not None:
        rows["sampling"] = (
            f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, max_tokens {sampling.max_tokens}"
        )
    return f"## Settings\n\n{_table([('setting', 'value'), *((name, _cell(value)) for name, value in rows.items())])}"


def _trains(kind: NodeKind, agent_group: int, group: int) -> bool:
    return kind is NodeKind.TRAIN_ACTOR and agent_group == group


def _use(facts: CardFacts) -> str:
    note = "With peft installed; the base model must be where `adapter_config.json` says.\n\n" if facts.is_peft else ""
    loads = {"model": facts.auto_class, "tokenizer": "AutoTokenizer"}
    if facts.auto_class == _READS_IMAGES:
        loads["processor"] = "AutoProcessor"
    lines = "".join(f"{name} = {loader}.from_pretrained(FOLDER)\n" for name, loader in loads.items())
    return f"## Use\n\n{note}```python\nfrom transformers import {', '.join(sorted(loads.values()))}\n\n{lines}```"


def auto_class(folder: Path) -> str:
    """What loads the agent in `folder`: an image processor lies beside one that reads images."""
    return _READS_IMAGES if (folder / IMAGE_PROCESSOR_FILE).is_file() else "AutoModelForCausalLM"


def _licence() -> str:
    return (
        "## Licence\n\nNone is named here. It is yours to choose, within the terms of the base model and of the data: "
        "add `license:` to the head of this file."
    )


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return math.fsum(present) / len(present) if present else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _cell(text: str) -> str:
    """`text` in one line without Markdown's own signs."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
