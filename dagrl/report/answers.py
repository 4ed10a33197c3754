"""The questions that the page asks, and their answers as JSON values; nothing here knows of HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError
from dagrl.report import run_views
from dagrl.report.conversation_index import MAX_PAGE, ORDERS, conversation_index
from dagrl.report.conversations import TOKEN_COLUMNS, Conversation, SpokenTurn, read_conversations
from dagrl.report.reader import RunReader, TrajectoryFile, find_runs
from dagrl.report.token_texts import load_token_texts

Params = Mapping[str, str]


class Unknown(DagrlError):
    """What was asked for does not exist."""


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
            "graph": lambda asked: run_views.graph(self._reader(asked)),
            "times": lambda asked: run_views.node_times(self._reader(asked), _number(asked, "step", 0)),
            "config": lambda asked: run_views.configuration(self._reader(asked)),
            "conversations": self.conversations,
            "conversation": self.conversation,
            "task": self.task,
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
        files = reader.trajectory_files()
        return self._summary(asked["run"], reader) | {
            "path": str(reader.path),
            "files": [{"name": file.path.stem, "step": file.step, "kind": file.kind, "without": file.without}
                      for file in files],
            "checkpoints": [{"step": one.step, "bytes": one.num_bytes, "complete": one.is_complete}
                            for one in reader.checkpoints()],
            "failures": len(reader.failures()),
            "versions": reader.versions(),
            "now": time.time(),
        }  # fmt: skip

    def curves(self, asked: Params) -> dict[str, Any]:
        return run_views.curves(self._reader(asked).metrics())

    def conversations(self, asked: Params) -> dict[str, Any]:
        """A page of the trajectories of one file."""
        file = self._file(asked)
        order = asked.get("order") or ORDERS[0]
        if order not in ORDERS:
            raise Unknown(f"no order '{order}'", how=f"one of {', '.join(ORDERS)}")
        index = conversation_index(file.path)
        places = index.chosen(file.path, order=order, task=asked.get("task", ""), text=asked.get("text", ""))
        offset, limit = _number(asked, "offset", 0), min(_number(asked, "limit", 50), MAX_PAGE)
        rows = index.page(file.path, places[offset : offset + limit])
        return {"file": file.path.stem, "total": len(places), "of": len(index), "offset": offset, "rows": rows}

    def conversation(self, asked: Params) -> dict[str, Any]:
        """One trajectory with every turn and token."""
        file = self._file(asked)
        number = _number(asked, "trajectory", 0)
        found = read_conversations(file.path, only=[number], columns=TOKEN_COLUMNS)
        if not found:
            raise Unknown(f"no trajectory {number} in {file.path.name}")
        return self._told(found[0], self._reader(asked))

    def task(self, asked: Params) -> dict[str, Any]:
        """All trajectories of one task, by file: the same problem at different steps."""
        task = asked.get("task", "")
        found = []
        for file in self._reader(asked).trajectory_files():
            index = conversation_index(file.path)
            places = index.chosen(file.path, order="order", task=task)
            rows = index.columns.take(places).select(["trajectory", "sample", "trajectory_reward"]).to_pylist()
            if rows:
                found.append({"file": file.path.stem, "step": file.step, "kind": file.kind, "rows": rows})
        return {"task": task, "files": found}

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

    def _file(self, asked: Params) -> TrajectoryFile:
        name = asked.get("file", "")
        files = self._reader(asked).trajectory_files()
        found = next((file for file in files if file.path.stem == name), None)
        if found is None:
            raise Unknown(f"no file of trajectories '{name}' in this run")
        return found

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
                "agents": reader.agents,
                "description": str(reader.workflow.get("description") or ""),
                "seed": reader.versions().get("seed"),
                "headline": run_views.headline(reader.metrics()),
            }
        except DagrlError as error:
            return {"name": name, "state": "broken", "fault": str(error), "step": 0, "agents": [], "headline": None}

    def _told(self, one: Conversation, reader: RunReader) -> dict[str, Any]:
        checkpoints = [checkpoint.path for checkpoint in reader.checkpoints() if checkpoint.is_complete]
        folder = checkpoints[-1] if checkpoints else None
        return {
            "trajectory": one.index, "task_id": one.task_id, "sample": one.sample, "data_source": one.data_source,
            "ground_truth": one.ground_truth, "stop_reason": one.stop_reason, "num_rounds": one.num_rounds,
            "reward": one.reward, "seconds": one.seconds,
            "turns": [_turn(turn, folder) for turn in one.turns],
        }  # fmt: skip


def _turn(turn: SpokenTurn, checkpoint: Path | None) -> dict[str, Any]:
    ids = turn.tokens.get("response_ids") or []
    texts = None if checkpoint is None else load_token_texts(checkpoint / f"agent_{turn.agent}" / "tokenizer.json")
    return {
        "round": turn.round, "position": turn.position, "node": turn.node, "group": turn.agent_group,
        "agent": turn.agent, "branch": turn.branch, "prompt": turn.prompt, "response": turn.response,
        "observation": turn.observation, "reward": turn.reward, "reward_parts": turn.reward_parts,
        "finish_reason": turn.finish_reason, "seconds": turn.seconds, "policy_version": turn.policy_version,
        "ids": ids, "tokens": None if texts is None else texts.of([int(number) for number in ids]),
        "columns": {name: values for name, values in turn.tokens.items()
                    if name != "response_ids" and values is not None},
    }  # fmt: skip


def _number(asked: Params, name: str, default: int) -> int:
    text = asked.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise Unknown(f"'{name}' is a whole number, not '{text}'")
    return int(text)
