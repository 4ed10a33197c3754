"""`dagrl validate`: checks a workflow file without running it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dagrl.cli.completion import override_paths
from dagrl.errors import DagrlError, Finding, WorkflowError, pages_of
from dagrl.workflow import checks
from dagrl.workflow.graph import Workflow, load_workflow
from dagrl.workflow.plan import summary


def validate(
    file: Annotated[Path, typer.Argument(help="The workflow's YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value …, by dotted path and node id.", autocompletion=override_paths),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also load hooks and environments, try each once, estimate the memory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON on the standard output.")] = False,
) -> None:
    """Check a workflow file; everything wrong is told at once."""
    workflow, findings, lines = _checked(file, overrides or [], deep)
    failed = [finding for finding in findings if finding.is_error]
    if as_json:
        print(json.dumps(_as_json(workflow, findings, lines), indent=2))
    else:
        for finding in findings:
            print(finding.render(), file=sys.stderr)
        if findings:
            print(pages_of(findings), file=sys.stderr)
        _print_summary(workflow if not failed else None, findings, lines)
    if failed:
        raise typer.Exit(WorkflowError.exit_code)


def _checked(
    file: Path, overrides: Sequence[str], deep: bool
) -> tuple[Workflow | None, Sequence[Finding], Sequence[str]]:
    """The workflow or None, everything found, and the lines of the deep check."""
    try:
        workflow = load_workflow(file, overrides, load_plugins=deep)
    except WorkflowError as error:
        return None, error.findings, ()
    except DagrlError as error:
        finding = Finding(code="E100", message=error.what, file=error.where or str(file), hint=error.how)
        return None, (finding,), ()
    if not deep:
        return workflow, (*workflow.warnings, *checks.of_files(workflow.facts)), ()
    from dagrl.runtime.deep_check import deep_check

    report = deep_check(workflow)
    return workflow, (*workflow.warnings, *report.findings), report.lines


def _print_summary(workflow: Workflow | None, findings: Sequence[Finding], lines: Sequence[str]) -> None:
    errors = sum(finding.is_error for finding in findings)
    warnings = len(findings) - errors
    if workflow is None:
        print(f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}", file=sys.stderr)
        return
    for line in [*summary(workflow), *lines]:
        print(f"ok  {line}")


def _as_json(workflow: Workflow | None, findings: Sequence[Finding], lines: Sequence[str]) -> dict[str, Any]:
    """`{"ok", "findings": [{code, message, file, line, column, field, hint, source}], "summary": [lines]}`."""
    is_ok = workflow is not None and not any(finding.is_error for finding in findings)
    told = [*summary(workflow), *lines] if workflow is not None and is_ok else []
    return {"ok": is_ok, "findings": [asdict(finding) for finding in findings], "summary": told}
