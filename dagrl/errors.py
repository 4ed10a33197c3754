"""One error tree: what is wrong, where, how to mend it; and `boundary`, which marks every crossing into user code."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SHOWN_CHARS = 80
_PACKAGE_FOLDER = str(Path(__file__).resolve().parent)


class DagrlError(Exception):
    """A mistake that a user can mend. Shown as one message without a traceback.

    `exit_code` is what the command ends with: 2 usage and workflow, 3 data, 4 numbers, 5 storage, 6 too many
    faults of user code, 7 the machine.
    """

    exit_code = 2

    def __init__(self, what: str, where: str | None = None, how: str | None = None) -> None:
        super().__init__(what, where, how)
        self.what = what
        self.where = where
        self.how = how

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        return text if self.how is None else f"{text}\n  = {self.how}"


class DataError(DagrlError):
    """A data file or a row of it cannot be used."""

    exit_code = 3


class NumericError(DagrlError):
    """A number that must be finite is not."""

    exit_code = 4


class BreachError(DagrlError):
    """What is about to be trained is not what was sampled: other ids, another mask, or other log-probs."""

    exit_code = 4


class StorageError(DagrlError):
    """A file of the run folder or a checkpoint cannot be written or read."""

    exit_code = 5


class FaultBudgetError(DagrlError):
    """More trajectories failed than `rollout.max_failed_fraction` allows."""

    exit_code = 6


class MachineError(DagrlError):
    """The machine has not got what the run needs, such as memory."""

    exit_code = 7


class PluginError(DagrlError):
    """A hook, environment, reward or function named in a workflow cannot be loaded or has the wrong signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault or warning found in a workflow file."""

    code: str
    """Stable code such as `E110`; errors start with E, warnings with W."""
    message: str
    """What is wrong, with the value that was got."""
    file: str | None = None
    line: int | None = None
    """From 1."""
    column: int | None = None
    """From 1."""
    field: str | None = None
    """Dotted path, nodes by their id: `nodes.actor_train.agent_options.train_cycle`."""
    hint: str | None = None
    """How to mend it; names the nearest right word where there is one."""
    source: str | None = None
    """The line of the file that the fault stands in."""

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")

    def render(self) -> str:
        """The finding as it is shown: place, severity, message, the line with a caret, the hint."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        severity = "error" if self.is_error else "warning"
        field = "" if self.field is None else f"  [{self.field}]"
        lines = [f"{place + ': ' if place else ''}{severity}[{self.code}]: {self.message}{field}"]
        if self.source is not None and self.line is not None and self.column is not None:
            lines.append(f"{self.line:6d} | {self.source}")
            lines.append(f"       | {' ' * (self.column - 1)}^")
        if self.hint is not None:
            lines.append(f"       = {self.hint}")
        return "\n".join(lines)


def pages_of(findings: Sequence[Finding]) -> str:
    """The line that names the page of every code in `findings`."""
    codes = sorted({finding.code for finding in findings})
    return f"see {', '.join(f'docs/errors/{code}.md' for code in codes)}"


class WorkflowError(DagrlError):
    """All faults of one workflow file at once."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join([*(finding.render() for finding in self.findings), pages_of(self.findings)]))

    def __reduce__(self) -> tuple[type[WorkflowError], tuple[tuple[Finding, ...]]]:
        return (WorkflowError, (self.findings,))


class UserCodeError(DagrlError):
    """A hook, environment, reward or other function of the user's raised, or gave back what it must not.

    `kind` is one word for the books: `raised`, `timeout`, `bad_return`, `worker_died`.
    """

    def __init__(self, what: str, where: str | None = None, how: str | None = None, kind: str = "raised") -> None:
        super().__init__(what, where, how)
        self.args = (what, where, how, kind)
        self.kind = kind


class TimeUp(BaseException):
    """User code ran out of time. Not an Exception, so that its own `except Exception` does not swallow it."""


@contextmanager
def boundary(name: str) -> Iterator[None]:
    """Marks a call into user code: what it raises becomes a `UserCodeError` that names `name`, file and line.

    SystemExit and the like too: only the user at the keyboard and dagrl itself end a run.
    """
    try:
        yield
    except (DagrlError, TimeUp):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise
        raise UserCodeError(f"{name} raised {describe(error)}", where=user_frame(error)) from error


def describe(error: BaseException) -> str:
    """Type and message; an exception whose own `__str__` raises is named by its type."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the __str__ is the user's code
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {text[:2000]}"


def show(value: object) -> str:
    """The repr of a value of the user's, cut to 80 characters; the name of its type where the repr raises."""
    try:
        text = repr(value)
    except BaseException:  # noqa: BLE001 - the __repr__ is the user's code
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def user_frame(error: BaseException) -> str | None:
    """`file:line in function` of the innermost frame of `error` outside dagrl, or None."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_own(frame.filename)]
    if not frames:
        return None
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}"


def origin_of(error: BaseException) -> BaseException:
    """What `error` was raised from in the first place; causes may go round in a circle."""
    seen: set[int] = set()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    return error


def user_traceback(error: BaseException) -> str:
    """The traceback of what `error` came from, without dagrl's own frames; empty where no other code was in it."""
    origin = origin_of(error)
    frames = [frame for frame in traceback.extract_tb(origin.__traceback__) if not _is_own(frame.filename)]
    if not frames:
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(origin)]).rstrip()


def _is_own(filename: str) -> bool:
    return filename.startswith(_PACKAGE_FOLDER)
