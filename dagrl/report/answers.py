"""The questions that the page asks, and their answers as JSON values; nothing here knows of HTTP."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError
from dagrl.report.curves import curves, headline
from dagrl.report.questions import Params, Unknown
from dagrl.report.reader import RunReader, find_runs

OF_A_RUN = {
    "graph": "dagrl.report.run_views:graph",
    "times": "dagrl.report.node_times:node_times",
    "config": "dagrl.report.run_views:configuration",
    "conversations": "dagrl.report.conversation_answers:conversations",
    "conversation": "dagrl.report.conversation_answers:conversation",
    "task": "dagrl.report.conversation_answers:task",
}
"""Question about one run → the function behind it. It is loaded when it is first asked: what reads parquet and checks
workflows takes longer to load than the first page to draw."""
COMPARISON = "dagrl.report.comparison_view:comparison"


class Answers:
    """Answers about all runs at and below some folders; new runs appear by themselves. Safe to use from threads."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        self._readers: dict[str, RunReader] = {}
        self._lock = threading.RLock()
        self._questions: Mapping[str, Callable[[Params], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "curves": self.curves,
            "compare": self.compare,
            **{name: self._of_a_run(target) for name, target in OF_A_RUN.items()},
        }

    def answer(self, question: str, params: Params) -> Any:
        """Raises `Unknown` where the question or something that it names does not exist, DagrlError where a file of
        the run is broken."""
        asked = self._questions.get(question)
        if asked is None:
            raise Unknown(f"no question '{question}'")
        with self._lock:
            return asked(params)

    def runs(self, _: Params) -> dict[str, Any]:
        """All runs, the newest first, with how far they are and a short curve."""
        self._look()
        told = [self._summary(name, reader) for name, reader in self._readers.items()]
        return {"runs": told[::-1], "roots": [str(root) for root in self._roots], "now": time.time()}

    def run(self, asked: Params) -> dict[str, Any]:
        """One run: status, files of trajectories, checkpoints, versions."""
        reader = self._reader(asked)
        files = [*reader.judged_files(), *reader.trajectory_files()]
        return self._summary(asked["run"], reader) | {
            "path": str(reader.path),
            "files": [{"name": file.name, "kind": file.kind, "step": file.step, "title": str(file)} for file in files],
            "checkpoints": [{"step": one.step, "bytes": one.num_bytes, "complete": one.is_complete}
                            for one in reader.checkpoints()],
            "failures": len(reader.failures()),
            "versions": reader.versions(),
            "now": time.time(),
        }  # fmt: skip

    def curves(self, asked: Params) -> dict[str, Any]:
        return curves(self._reader(asked).metrics())

    def compare(self, asked: Params) -> dict[str, Any]:
        """Several runs, their names with commas between them."""
        names = dict.fromkeys(asked.get("runs", "").split(","))
        told: dict[str, Any] = _loaded(COMPARISON)({name: self._reader({"run": name}) for name in names})
        return told

    def _of_a_run(self, target: str) -> Callable[[Params], Any]:
        def answer(asked: Params) -> Any:
            return _loaded(target)(self._reader(asked), asked)

        return answer

    def _look(self) -> None:
        """Finds the runs that there are now; readers of runs already known are kept, as they hold what was read."""
        found: dict[str, RunReader] = {}
        for place, root in enumerate(self._roots):
            for path in find_runs(root):
                name = path.relative_to(root).as_posix() if path != root else f"{path.parent.name}/{path.name}"
                if name in found and found[name].path != path:
                    name = f"{name}@{place}"
                known = self._readers.get(name)
                found[name] = known if known is not None and known.path == path else RunReader(path)
        self._readers = found

    def _reader(self, asked: Params) -> RunReader:
        name = asked.get("run", "")
        if name not in self._readers:
            self._look()
        if name not in self._readers:
            raise Unknown(f"no run '{name}'")
        return self._readers[name]

    def _summary(self, name: str, reader: RunReader) -> dict[str, Any]:
        """What a list shows of a run; a folder that is broken is listed with its fault."""
        try:
            status = reader.status()
            return {
                "name": name,
                "state": status.state,
                "step": status.step,
                "total_steps": reader.total_steps,
                "heartbeat": status.heartbeat,
                "doing": None if status.doing is None else asdict(status.doing),
                "agents": reader.agents,
                "description": str(reader.workflow.get("description") or ""),
                "seed": reader.versions().get("seed"),
                "headline": headline(reader.metrics()),
            }
        except DagrlError as error:
            return {"name": name, "state": "broken", "fault": str(error), "step": 0, "agents": [], "headline": None}


def _loaded(target: str) -> Callable[..., Any]:
    module, _, function = target.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
