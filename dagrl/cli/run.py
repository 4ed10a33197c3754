"""`dagrl run`: trains what a workflow file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagrl.cli.completion import override_paths
from dagrl.errors import DagrlError, WorkflowError
from dagrl.runtime.signals import StopSignals, stop_signals
from dagrl.workflow.checks import check_runnable
from dagrl.workflow.graph import Workflow, load_workflow

if TYPE_CHECKING:
    from dagrl.runtime.resume import ResumePoint
    from dagrl.runtime.run_folder import RunFolder

SMOKE_OVERRIDES = (
    "config.trainer.total_steps=2",
    "config.data.train_batch_size=2",
    "config.data.val_max_prompts=2",
    "config.actor.ppo_mini_batch_size=null",
    "config.critic.ppo_mini_batch_size=null",
    "config.trainer.min_improvement=null",
)
"""`--smoke`: two steps on two prompts, to see that everything works together."""


def run(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value …, by dotted path and node id.", autocompletion=override_paths),
    ] = None,
    workflow: Annotated[Path | None, typer.Option("--workflow", "-w", help="The workflow's YAML file.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="A new folder for the run instead of runs/…/<time>.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, show the plan, load no model.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Two steps on two prompts.")] = False,
    resume: Annotated[str | None, typer.Option(help="A run folder, or 'latest': goes on from its checkpoint.")] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help="Resume although files changed.")] = False,
) -> None:
    """Train the team of a workflow file."""
    given = [*(overrides or []), *(SMOKE_OVERRIDES if smoke else ())]
    if resume is not None:
        _refuse_beside_resume(run_dir=run_dir is not None, dry_run=dry_run, smoke=smoke)
    with stop_signals() as stop:
        if resume is not None:
            code = _resume(resume, workflow, given, allow_changes, stop)
        elif workflow is None:
            raise DagrlError("no workflow is given", how="dagrl run --workflow FILE, or dagrl run --resume RUN")
        elif dry_run:
            code = _show_plan(_checked(workflow, given))
        else:
            code = _train(_checked(workflow, given), given, run_dir, stop)
    raise typer.Exit(code)


def _refuse_beside_resume(**options: bool) -> None:
    for name, is_given in options.items():
        if is_given:
            option = f"--{name.replace('_', '-')}"
            raise DagrlError(f"{option} and --resume do not go together", how=f"leave {option} out")


def _checked(workflow: Path, overrides: list[str]) -> Workflow:
    """The workflow, ready to run; warnings are shown, faults raised."""
    checked = load_workflow(workflow, overrides, load_plugins=True)
    for warning in checked.warnings:
        print(warning.render(), file=sys.stderr)
    findings = check_runnable(checked)
    if any(finding.is_error for finding in findings):
        raise WorkflowError(findings)
    return checked


def _show_plan(workflow: Workflow) -> int:
    from dagrl.workflow.draw import draw
    from dagrl.workflow.load import dump

    print(dump(workflow.resolved))
    print(draw(workflow, "ascii"))
    return 0


def _train(workflow: Workflow, overrides: list[str], run_dir: Path | None, stop: StopSignals) -> int:
    from dagrl.runtime.run_folder import create_run_folder

    trainer = workflow.spec.config.trainer
    folder = create_run_folder(Path(trainer.runs_dir), workflow.spec.dag_id, run_dir=run_dir)
    return begin(workflow, overrides, folder, stop)


def begin(workflow: Workflow, overrides: list[str], folder: RunFolder, stop: StopSignals) -> int:
    """Runs `workflow` from its first step in a new folder; gives the exit code."""
    _record(workflow, overrides, folder)
    folder.record_versions(seed=workflow.spec.config.trainer.seed, argv=sys.argv)
    return _run(workflow, folder, stop, point=None)


def _resume(ref: str, workflow: Path | None, overrides: list[str], allow_changes: bool, stop: StopSignals) -> int:
    from dagrl.runtime import resume
    from dagrl.runtime.code_files import code_files
    from dagrl.runtime.run_folder import RunFolder, read_source
    from dagrl.workflow.load import dump

    run = resume.find_run(ref, Path("runs"))
    source, given = read_source(run)
    given += overrides
    checked = _checked(source if workflow is None else workflow, given)
    changes = resume.differences(run, resolved=dump(checked.resolved), code=code_files(checked))
    if changes and not allow_changes:
        raise DagrlError(
            f"the workflow or its code is not what the run began with:\n{changes}",
            where=str(run),
            how="undo the changes, or go on with them by --allow-changes",
        )
    folder = RunFolder(run)
    point = resume.find_point(run, steps_back=ref == resume.LATEST)
    for line in point.skipped:
        print(f"warning: {line}", file=sys.stderr)
    print(f"resuming {run} after step {point.step}")
    if changes:
        folder.keep_old_workflow(point.step)
        _record(checked, given, folder)
    return _run(checked, folder, stop, point)


def _record(workflow: Workflow, overrides: list[str], folder: RunFolder) -> None:
    from dagrl.runtime.code_files import code_files
    from dagrl.workflow.load import dump
    from dagrl.workflow.origins import origins

    places = origins(workflow.facts.outline.tree, workflow.path.parent)
    folder.record_workflow(workflow.path, resolved=dump(workflow.resolved), overrides=overrides, origins=places)
    folder.record_code(code_files(workflow), workflow.path.parent)


def _run(workflow: Workflow, folder: RunFolder, stop: StopSignals, point: ResumePoint | None) -> int:
    """Exit code: 0, 1 where the team did not improve as `trainer.min_improvement` asks, 128 + signal."""
    from dagrl.runtime.console import Console
    from dagrl.runtime.session import run_workflow

    console = Console()
    try:
        report = run_workflow(workflow, folder, console, stop=stop, point=point)
    except DagrlError as error:
        error.where = f"{folder.path}" if error.where is None else error.where
        raise
    finally:
        folder.close()
    console.report(report, folder.path)
    if report.stopped_by is not None:
        print(f"go on with: dagrl run --resume {folder.path}")
        return 128 + report.stopped_by
    return 0 if report.has_improved_by(workflow.spec.config.trainer.min_improvement) else 1
