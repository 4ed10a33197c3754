"""The command `dagrl`: a table of sub-commands, each loaded only when it is used, and what ends up as an exit code."""

from __future__ import annotations

import errno
import importlib
import sys
import tempfile
import traceback
from collections.abc import Sequence

import typer

from dagrl import __version__
from dagrl.cli.completion import typed_words
from dagrl.errors import DagrlError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("dagrl.cli.run:run", "Train the team of a workflow file."),
    "validate": ("dagrl.cli.validate:validate", "Check a workflow file; everything wrong is told at once."),
    "plan": ("dagrl.cli.plan:plan", "Say what a run will take: tokens, time, memory, disk; or what one took."),
    "graph": ("dagrl.cli.graph:graph", "Draw a workflow: text, Mermaid, SVG or HTML."),
    "ps": ("dagrl.cli.ps:ps", "List runs: state, step, last sign of life."),
    "watch": ("dagrl.cli.watch:watch", "Follow a run live."),
    "show": ("dagrl.cli.show:show", "Show conversations with rewards and advantages by turn."),
    "trace": ("dagrl.cli.trace:trace", "Show which node ran when, what a step waits for, and who is idle."),
    "compare": ("dagrl.cli.compare:compare", "Compare runs: curves, settings, code; seeds are grouped."),
    "eval": ("dagrl.cli.eval:evaluate", "Judge a run's team: avg@k, pass@k, maj@k with intervals; compare two."),
    "ablate": ("dagrl.cli.ablate:ablate", "Judge it with one agent as it began, as after another step, or silent."),
    "export": ("dagrl.cli.export:export", "Take a run's agents home: Hugging Face folders with model cards."),
    "verify": ("dagrl.cli.verify:verify", "Say whether a run folder is whole and its numbers come out again."),
    "rerun": ("dagrl.cli.rerun:rerun", "Repeat a run and say whether it comes out the same, byte for byte."),
    "replay": ("dagrl.cli.replay:replay", "Run a step's nodes, or a failed trajectory, again; under pdb if asked."),
    "doctor": ("dagrl.cli.doctor:doctor", "Say what this machine is ready for, and what is missing."),
    "selftest": ("dagrl.cli.selftest:selftest", "Compute every estimator and loss beside its closed form."),
    "ls": ("dagrl.cli.ls:ls", "List what ships: workflows, environments, rewards, estimators, losses, engines."),
    "cp": ("dagrl.cli.cp:cp", "Copy a shipped workflow with all it needs."),
    "new": ("dagrl.cli.new:new", "Make a project, an environment, a hook or a reward, with a test that passes."),
    "check-env": ("dagrl.cli.check_env:check_env", "Check that a class keeps the contract of an environment."),
    "play-env": ("dagrl.cli.play_env:play_env", "Be the agent yourself in an environment."),
    "try-hook": ("dagrl.cli.try_hook:try_hook", "Show text and ids before and after a hook."),
    "data": ("dagrl.cli.data:data", "Check data files: what is read as what, every bad row."),
    "view": ("dagrl.cli.view:view", "Look at runs in the browser, or write one self-contained report."),
}
"""Name of a command → the function behind it, and its line of help."""

EXIT_BUG = 70
"""Our own fault (sysexits' EX_SOFTWARE)."""
EXIT_INTERRUPTED = 130


def _show_version(value: bool) -> None:
    if value:
        print(f"dagrl {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    return None


def _not_loaded() -> None:
    """Stands for a command that this call does not use."""


def _app(chosen: str | None) -> typer.Typer:
    """The command line; of the commands only `chosen` is loaded, so that the others cost nothing."""
    app = typer.Typer(
        name="dagrl",
        help="Trains teams of LLM agents with reinforcement learning; one YAML file describes one run.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,  # rich takes twice as long to load as all else that help needs
        context_settings={"max_content_width": 120},
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, (target, line) in COMMANDS.items():
        module, _, function = target.partition(":")
        command = getattr(importlib.import_module(module), function) if name == chosen else _not_loaded
        app.command(name=name, help=line, short_help=line)(command)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: runs the command and ends the process with its exit code."""
    sys.exit(exit_code(arguments))


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. A `DagrlError` is printed as it is; anything unexpected goes to a file with its traceback."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    typed = typed_words()
    chosen = next((word for word in (given if typed is None else typed) if not word.startswith("-")), None)
    try:
        _app(chosen)(args=given, prog_name="dagrl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except DagrlError as error:
        print(_as_text(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last boundary: a bug of ours, kept for a report
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # wherever a name was looked up
            shown = DagrlError("no file or folder can have so long a name", where=f"{str(error.filename)[:60]}…")
            print(_as_text(shown), file=sys.stderr)
            return shown.exit_code
        print(f"dagrl failed by a bug of its own; the traceback is in {_keep_traceback()}", file=sys.stderr)
        return EXIT_BUG
    return 0


def _as_text(error: DagrlError) -> str:
    text = str(error)
    return text if "error[" in text else f"error: {text}"


def _keep_traceback() -> str:
    handle, file = tempfile.mkstemp(prefix="dagrl-bug-", suffix=".txt")
    with open(handle, "w", encoding="utf-8") as report:
        report.write(f"dagrl {__version__}, {' '.join(sys.argv)}\n\n{traceback.format_exc()}")
    return file
