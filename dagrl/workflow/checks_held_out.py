"""Checks of held-out sets: one way to name them, names that tell them apart, and a set that counts."""

from __future__ import annotations

from collections import Counter

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts
from dagrl.workflow.held_out import NAME, RESERVED, held_out_sets, set_name
from dagrl.workflow.nearest import did_you_mean

_EVAL = ("config", "trainer", "eval")


def held_out_sets_are_told_apart(facts: Facts) -> list[Finding]:
    """Names of `trainer.eval`, and `val_files` besides them."""
    trainer, fault = facts.spec.config.trainer, facts.outline.fault
    findings = []
    if trainer.eval and facts.spec.config.data.val_files:
        message, hint = "data.val_files and trainer.eval both name held-out problems", "make val_files a set of eval"
        findings.append(fault("E406", message, _EVAL, hint=hint, on_key=True))
    names = Counter(set_name(spec) for spec in trainer.eval)
    for index, spec in enumerate(trainer.eval):
        name, place = set_name(spec), (*_EVAL, index) if spec.name is None else (*_EVAL, index, "name")
        if names[name] > 1:
            findings.append(fault("E406", f"several held-out sets are called '{name}'", place, hint="give each a name"))
        if not NAME.fullmatch(name) or RESERVED.fullmatch(name):
            hint = "letters, digits, '_', '-' and '.'; not agent_…, round_…, verdict, without"
            findings.append(fault("E113", f"'{name}' cannot name a held-out set", place, hint=hint))
    return findings


def the_set_that_counts_is_there(facts: Facts) -> list[Finding]:
    best = facts.spec.config.trainer.best_set
    names = [one.name for one in held_out_sets(facts.spec.config) if one.name]
    if best is None or best in names:
        return []
    hint = did_you_mean(best, names) if names else "it names one of the sets of trainer.eval"
    place = ("config", "trainer", "best_set")
    return [facts.outline.fault("E406", f"best_set names '{best}', which is no set of trainer.eval", place, hint=hint)]
