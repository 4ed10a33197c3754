"""Executor: every node once, in order, with its metrics in their place; no further where numbers are not finite."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from dagrl.errors import DagrlError, NumericError
from dagrl.experience import Experience, NonFinite, collate
from dagrl.runtime.executor import Executor, LearnResult
from dagrl.workflow.graph import Workflow, load_workflow
from dagrl.workflow.kinds import Column
from tests.stream_builders import trajectory, turn
from tests.tiny_project import write_project

PLACES = {
    "reward": "reward", "old_0": "agent_scout/policy", "old_1": "agent_caller/policy",
    "ref_0": "agent_scout/reference", "ref_1": "agent_caller/reference", "values_0": "agent_scout/values",
    "values_1": "agent_caller/values", "advantages": "advantage", "critic_0": "critic_scout",
    "train_0": "agent_scout/actor", "train_1": "agent_caller/actor",
}  # fmt: skip
"""Of the nodes that run; the critic is one for both agents, so `critic_1` is idle."""
Act = Callable[[Experience], None]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    return load_workflow(write_project(tmp_path_factory.mktemp("project")))


class Scripted:
    """A node that notes that it ran, and does what it is told."""

    def __init__(self, name: str, log: list[tuple[str, int]], act: Act | None) -> None:
        self._name, self._log, self._act = name, log, act

    def run(self, experience: Experience, step: int) -> dict[str, float]:
        self._log.append((self._name, step))
        if self._act is not None:
            self._act(experience)
        return {"number": float(len(self._log))}


class Asking:
    """A node that needs more play."""

    node = None

    async def run_playing(self, experience: Experience, step: int, play: Any) -> dict[str, float]:
        await asyncio.sleep(0)
        return {"played": float(await play.again([step]))}


class Play:
    async def again(self, wanted: Sequence[int]) -> int:
        return 10 + wanted[0]


class Checks:
    """Stands for the check of tokens: notes when it was asked, and finds a drift at one node."""

    def __init__(self, drifting: str | None = None) -> None:
        self.began: list[int] = []
        self.looked: list[int] = []
        self._drifting = drifting

    def begin(self, experience: Experience, step: int) -> None:
        self.began.append(step)

    def ids(self, experience: Experience, step: int) -> None:
        self.looked.append(step)

    def drift(self, experience: Experience, node: Any, step: int) -> str | None:
        return f"drift at {node.node_id} in {step}" if node.node_id == self._drifting else None


class Bench:
    """An executor of scripted nodes, and what they did."""

    def __init__(self, flow: Workflow, acts: dict[str, Act] | None = None, **options: Any) -> None:
        self.ran: list[tuple[str, int]] = []
        self.checks = options.pop("checks", Checks())
        nodes: dict[str, Any] = {
            name: Scripted(name, self.ran, (acts or {}).get(name)) for name in (*PLACES, "critic_1")
        }
        nodes |= options.pop("others", {})
        self.executor = Executor(flow, nodes, self.checks, **options)

    def learn(self, batch: Experience, step: int = 0, **options: Any) -> LearnResult:
        return asyncio.run(self.executor.learn(batch, step, **options))


def batch() -> Experience:
    return collate([trajectory("a", [turn(0, 0, [3]), turn(1, 0, [4])]), trajectory("b", [turn(0, 0, [5])])])


def spoil(column: Column = Column.REWARDS, value: float = math.nan) -> Act:
    def act(experience: Experience) -> None:
        experience.write(column, torch.tensor([1]), torch.tensor([value]))

    return act


def refuse_update(experience: Experience) -> None:
    experience.nonfinite.append(NonFinite(tensor="loss", turns=torch.tensor([0])))


def test_every_node_runs_once_in_order_with_its_metrics_under_its_agent(flow: Workflow) -> None:
    bench, experience = Bench(flow), batch()
    result = bench.learn(experience, 7)
    order = [name for name, _ in bench.ran]
    assert sorted(order) == sorted(PLACES) and {step for _, step in bench.ran} == {7}
    for node in flow.learn:
        assert all(order.index(name) < order.index(node.node_id) for name in node.dependencies if name in PLACES)
    assert result.metrics == {f"{PLACES[name]}/number": float(place) for place, name in enumerate(order, start=1)}
    assert list(result.seconds) == order and all(seconds >= 0 for seconds in result.seconds.values())
    assert result.warnings == ()
    assert bench.checks.began == [7] and bench.checks.looked == [7] * len(order)
    assert experience.excuses == {}


def test_only_the_nodes_asked_for_run(flow: Workflow) -> None:
    bench = Bench(flow)
    result = bench.learn(batch(), 0, only={"values_1", "train_0"})
    assert [name for name, _ in bench.ran] == ["values_1", "train_0"] == list(result.seconds)
    assert result.metrics.keys() == {"agent_caller/values/number", "agent_scout/actor/number"}


def test_nothing_runs_on_samples_that_are_not_finite(flow: Workflow, tmp_path: Path) -> None:
    bench, experience = Bench(flow, failures_dir=tmp_path), batch()
    experience.columns[Column.ROLLOUT_LOGPROBS][1] = math.inf
    result = bench.learn(experience, 3)
    assert bench.ran == [] and bench.checks.began == [] == bench.checks.looked
    assert result.metrics == {"trajectory/given_up": 1.0} and result.seconds == {}
    assert experience.excuses == {0: "nonfinite", 1: "nonfinite"}
    (told,) = result.warnings
    assert told.startswith("the rollout_logprobs of agent 'caller' at node 'agent_1' is not finite in 1 of 2 samples")
    assert told.endswith("; no update was made from it")
    assert [file.name for file in tmp_path.iterdir()] == ["step4_agent_1_nonfinite.json"]


def test_after_a_column_that_is_not_finite_the_rest_of_the_step_is_left_out(flow: Workflow) -> None:
    bench, experience = Bench(flow, {"advantages": spoil()}), batch()
    result = bench.learn(experience)
    ran = [name for name, _ in bench.ran]
    assert ran[-1] == "advantages" and not {"critic_0", "train_0", "train_1"} & set(ran)
    assert result.metrics["advantage/number"] == len(ran) and result.metrics["trajectory/given_up"] == 1.0
    assert [one.split(" is")[0] for one in result.warnings] == ["the rewards of agent 'caller' at node 'advantages'"]
    assert len(bench.checks.looked) == len(ran) - 1, "the tokens of a step that is given up are not looked at"
    assert set(experience.excuses) == {0, 1}


def test_an_update_that_was_not_made_stops_nobody_else(flow: Workflow) -> None:
    bench, experience = Bench(flow, {"critic_0": refuse_update}, checks=Checks("critic_0")), batch()
    result = bench.learn(experience, 2)
    assert len(bench.ran) == len(PLACES) and "trajectory/given_up" not in result.metrics
    assert experience.excuses == {} and experience.nonfinite == []
    first, second = result.warnings
    assert first.startswith("the loss of agent 'scout' at node 'critic_0' is not finite")
    assert second == "drift at critic_0 in 2"


@pytest.mark.parametrize("act", [spoil(), refuse_update])
def test_the_third_step_in_a_row_ends_the_run(flow: Workflow, tmp_path: Path, act: Act) -> None:
    bench = Bench(flow, {"values_0": act}, failures_dir=tmp_path)
    for step in range(2):
        assert len(bench.learn(batch(), step).warnings) == 1
    with pytest.raises(NumericError, match=r"step 3: .*node 'values_0'.*for the 3\. step in a row") as caught:
        bench.learn(batch(), 2)
    assert str(tmp_path / "step3_values_0_nonfinite.json") in str(caught.value)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_good_step_or_another_node_between_starts_the_count_anew(flow: Workflow, tmp_path: Path) -> None:
    bad: dict[int, str] = {0: "values_0", 1: "values_0", 3: "values_0", 4: "values_1", 5: "values_0", 6: "values_0"}

    def spoiling(name: str) -> Act:
        return lambda experience: spoil()(experience) if bad.get(step) == name else None

    bench = Bench(flow, {name: spoiling(name) for name in ("values_0", "values_1")}, failures_dir=None)
    for step in range(8):
        result = bench.learn(batch(), step)
        assert ("trajectory/given_up" in result.metrics) == (step in bad)
    assert list(tmp_path.iterdir()) == []


def test_the_limit_is_what_was_asked_for_and_no_file_is_named_where_none_is_written(flow: Workflow) -> None:
    bench = Bench(flow, {"old_0": spoil()}, max_nonfinite_in_a_row=1)
    with pytest.raises(NumericError) as caught:
        bench.learn(batch())
    assert "the samples are in" not in str(caught.value)


def test_the_count_goes_on_after_a_resume(flow: Workflow) -> None:
    before, after = (Bench(flow, {"values_0": spoil()}) for _ in range(2))
    for step in range(2):
        before.learn(batch(), step)
    state = before.executor.state_dict()
    after.executor.load_state_dict(state)
    with pytest.raises(NumericError, match=r"3\. step"):
        after.learn(batch(), 2)
    assert state == before.executor.state_dict(), "a state that was handed out does not change"
    assert state["nonfinite_in_a_row"]["values_0"] == 2


@pytest.mark.parametrize(
    ("where", "told"), [(None, "step 5, node 'ref_0'"), ("x.py:3", "step 5, node 'ref_0', x.py:3")]
)
def test_a_users_mistake_is_placed_by_step_and_node(flow: Workflow, where: str | None, told: str) -> None:
    def fail(experience: Experience) -> None:
        raise DagrlError("wrong", where=where)

    with pytest.raises(DagrlError) as caught:
        Bench(flow, {"ref_0": fail}).learn(batch(), 4)
    assert caught.value.where == told


def test_a_node_that_needs_more_play_gets_it(flow: Workflow) -> None:
    asking = {"advantages": Asking()}
    assert Bench(flow, others=asking, play=Play()).learn(batch(), 3).metrics["advantage/played"] == 13.0
    with pytest.raises(AssertionError, match="'advantages' needs more play"):
        Bench(flow, others=asking).learn(batch())
