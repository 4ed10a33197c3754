"""`dagrl selftest`: every estimator and loss beside its closed form."""

from __future__ import annotations

import typer


def selftest() -> None:
    """Compute every estimator and loss on a small fixed example, beside its closed form. Exit code 1 if one differs."""
    from dagrl.runtime.selftest import checks

    found = list(checks())
    for check in found:
        verdict = "OK     " if check.is_same else "differs"
        print(f"{verdict} {check.kind:<10} {check.name:<28} {_shown(check.got)}")
        if not check.is_same:
            print(f"{'':<7} {'':<10} {'closed form':<28} {_shown(check.expected)}")
    num_wrong = sum(not check.is_same for check in found)
    print(f"{len(found) - num_wrong} of {len(found)} are as their closed form")
    if num_wrong:
        raise typer.Exit(1)


def _shown(numbers: tuple[float, ...]) -> str:
    return " ".join(f"{number:9.6f}" for number in numbers)
