"""What the page shows of the conversations of one run, as plain JSON values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagrl.report.conversation_files import TrajectoryFile
from dagrl.report.conversation_index import MAX_PAGE, ORDERS, conversation_index, trajectories_of_task
from dagrl.report.conversations import TOKEN_COLUMNS, Conversation, SpokenTurn, read_conversations
from dagrl.report.questions import Params, Unknown, number
from dagrl.report.reader import RunReader
from dagrl.report.token_texts import load_token_texts


def conversations(reader: RunReader, asked: Params) -> dict[str, Any]:
    """A page of the trajectories of one file."""
    file = _file(reader, asked)
    order = asked.get("order") or ORDERS[0]
    if order not in ORDERS:
        raise Unknown(f"no order '{order}'", how=f"one of {', '.join(ORDERS)}")
    index = conversation_index(file.path)
    places = index.chosen(file.path, order=order, task=asked.get("task", ""), text=asked.get("text", ""))
    offset, limit = number(asked, "offset", 0), min(number(asked, "limit", 50), MAX_PAGE)
    rows = index.page(file.path, places[offset : offset + limit])
    return {"file": file.name, "total": len(places), "of": len(index), "offset": offset, "rows": rows}


def conversation(reader: RunReader, asked: Params) -> dict[str, Any]:
    """One trajectory with every turn and token."""
    file = _file(reader, asked)
    place = number(asked, "trajectory", 0)
    found = read_conversations(file.path, only=[place], columns=TOKEN_COLUMNS)
    if not found:
        raise Unknown(f"no trajectory {place} in {file.path.name}")
    return _told(found[0], reader)


def task(reader: RunReader, asked: Params) -> dict[str, Any]:
    """All trajectories of one task, by file: the same problem at different steps. Not of `dagrl eval`, whose problems
    may be others of the same number."""
    wanted = asked.get("task", "")
    found = []
    for file in reader.trajectory_files():
        if rows := trajectories_of_task(file.path, wanted):
            found.append({"file": file.name, "title": str(file), "rows": rows})
    return {"task": wanted, "files": found}


def _file(reader: RunReader, asked: Params) -> TrajectoryFile:
    name = asked.get("file", "")
    files = [*reader.trajectory_files(), *reader.judged_files()]
    found = next((file for file in files if file.name == name), None)
    if found is None:
        raise Unknown(f"no file of trajectories '{name}' in this run")
    return found


def _told(one: Conversation, reader: RunReader) -> dict[str, Any]:
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
