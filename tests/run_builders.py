"""Small run folders made by the real writers, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import torch

from dagrl.experience import Experience, collate
from dagrl.runtime.metrics import MetricsWriter
from dagrl.runtime.run_folder import RunFolder, create_run_folder
from dagrl.runtime.trajectory_log import TrajectoryLog
from dagrl.types import Observation, Task, Trajectory
from dagrl.workflow.kinds import Column
from dagrl.workflow.load import dump
from tests.stream_builders import turn

AGENTS = ("thinker", "writer")
HOOK = "def pre_process(tokenizer, prompt_id, obs=None):\n    return prompt_id\n"
NOON = datetime(2026, 1, 2, 12, 0, 0)


def workflow(*, seed: int = 1, lr: float = 0.01, total_steps: int = 10) -> dict[str, object]:
    """Not one that can run, but one with everything that readers look at."""
    return {
        "dag_id": "team",
        "agent_groups": {index: {"name": name} for index, name in enumerate(AGENTS)},
        "config": {"actor": {"optim": {"lr": lr}}, "trainer": {"total_steps": total_steps, "seed": seed}},
        "nodes": [{"node_id": "think", "agent_group": 0}, {"node_id": "write", "agent_group": 1}],
    }


def make_run(
    runs_dir: Path,
    *,
    seed: int = 1,
    lr: float = 0.01,
    rewards: Sequence[float] = (),
    hook: str = HOOK,
    state: str | None = "done",
    now: datetime = NOON,
) -> RunFolder:
    """A run with one row of metrics per reward; it is still locked. `state` None leaves status.json away."""
    sources = runs_dir.parent / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    (sources / "team.yaml").write_text("dag_id: team\n")
    (sources / "hook.py").write_text(hook)
    folder = create_run_folder(runs_dir, "team", now=now)
    folder.record_workflow(
        sources / "team.yaml", resolved=dump(workflow(seed=seed, lr=lr)), overrides=["a=1"], origins={}
    )
    folder.record_code([sources / "hook.py"], sources)
    folder.record_versions(seed=seed, argv=["dagrl", "run"])
    write_metrics(folder.path, [{"reward/mean": reward} for reward in rewards])
    if state is not None:
        folder.write_status(state, len(rewards))
    return folder


def write_metrics(path: Path, rows: Sequence[Mapping[str, float]], first_step: int = 1) -> None:
    writer = MetricsWriter(path)
    for step, row in enumerate(rows, start=first_step):
        writer.write(step, row)
    writer.close()


def trajectory(
    task_id: str, reward: float, *, text: str = "42", heard: str = "right", speakers: Sequence[int] = (0, 1)
) -> Trajectory:
    """The agents speak once each, then the environment answers all of them."""
    turns = [turn(group, 0, (5, 6), response_text=text, node_id=f"node_{group}") for group in speakers]
    turns[-1].reward = reward
    turns[-1].reward_parts = {"format": 0.5}
    said = Observation(
        round=0,
        node_id="env",
        texts=dict.fromkeys(speakers, heard),
        heard={f"node_{group}": heard for group in speakers},
        rewards={},
        is_team_reward=True,
        terminated=True,
        truncated=False,
    )
    return Trajectory(
        task=Task(task_id=task_id, prompt="p", ground_truth="7", data_source="sums"),
        sample=0,
        step=0,
        turns=turns,
        observations=[said],
        reward=reward,
        num_rounds=1,
    )


def credited(trajectories: Sequence[Trajectory], advantages: Sequence[float]) -> Experience:
    """The stream with one advantage for all tokens of each trajectory."""
    experience = collate(list(trajectories))
    owner = experience.turns.trajectory
    per_turn = torch.tensor(list(advantages), dtype=torch.float32)[owner]
    values = torch.repeat_interleave(per_turn, experience.sequences.response_lens)
    experience.write(Column.ADVANTAGES, experience.turns_of([0, 1]), values)
    return experience


def write_trajectories(folder: RunFolder, step: int, trajectories: Sequence[Trajectory], advantages: Sequence[float]):
    log = TrajectoryLog(folder.trajectories, agent_names=AGENTS, decode=lambda group, ids: f"to {group}: {list(ids)}")
    return log.write_step(step, credited(trajectories, advantages))


def write_evaluation(folder: Path, step: int, trajectories: Sequence[Trajectory], without: str | None = None) -> Path:
    """`folder`: `RUN/trajectories`, or `RUN/evaluations/TIME` as `dagrl eval` does."""
    log = TrajectoryLog(folder, agent_names=AGENTS, decode=lambda group, ids: f"to {group}: {list(ids)}")
    return log.write_evaluation(step, collate(list(trajectories)), without)
