"""`dagrl plan` beside real runs: tokens, optimizer steps, who trains when and checkpoint bytes as they came to be."""

from __future__ import annotations

import json

import pytest

from dagrl.cli import exit_code
from dagrl.runtime.checkpoint import load_state
from dagrl.runtime.forecast.measured import measure
from dagrl.runtime.forecast.whole import forecast
from dagrl.runtime.run_folder import RunFolder
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.load import dump
from tests.small_teams import one_process, train

pytestmark = pytest.mark.slow

OVERRIDES = (
    *(f"nodes.{name}.agent_options.train_cycle=1" for name in ("train_0", "train_1")),
    "config.trainer.critic_warmup=1",
    "config.model.recipe_kwargs={hidden: 64}",
    "config.actor.ppo_mini_batch_size=8",
    "data.val_files=val.jsonl",
    "data.train_batch_size=4",
    "trainer.val_without=[scout]",
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run whose responses are all one token and whose single round is always played: nothing is left to chance."""
    with one_process(tmp_path_factory.mktemp("cache")):
        yield train(tmp_path_factory.mktemp("project"), *OVERRIDES, total_steps=3)


def test_tokens_steps_and_schedule_are_exact(ran):
    found, seen = forecast(ran.workflow), measure(ran.folder)
    for group in ran.workflow.groups:
        works = [work for work in found.nodes if work.kind is NodeKind.ROLLOUT and work.agents == (group.name,)]
        assert seen.agents[group.name]["tokens"] == sum(work.tokens for work in works) == 16
        assert seen.agents[group.name]["prompt_tokens"] == sum(work.prompt_tokens for work in works)
    assert seen.totals["env_calls"] == found.at_most["env_calls"]
    assert seen.totals["hook_calls"] > 0
    models = load_state(ran.checkpoint)["models"]
    assert found.optimizer_steps == {name: state["version"] for name, state in models.items()}
    for block in found.schedule:
        for step in range(block.first, block.last + 1):
            trains = {name for name in ("critic_0", "train_0", "train_1") if step in seen.trained_in.get(name, ())}
            assert trains == set(block.trains), step
    # Three evaluations, of which the one without the scout generates half as much.
    assert seen.totals["tokens"] == found.total_tokens - found.held_out_tokens / 2 <= found.at_most["tokens"]


def test_checkpoint_bytes_are_right_within_three_percent(ran):
    found, seen = forecast(ran.workflow), measure(ran.folder)
    assert found.checkpoint_bytes == pytest.approx(seen.checkpoint_bytes, rel=0.03)
    assert found.num_checkpoints == seen.num_checkpoints == 1


def test_the_command_prints_both_and_is_json_on_demand(ran, capsys):
    folder = RunFolder(ran.folder)
    folder.record_workflow(ran.workflow.path, resolved=dump(ran.workflow.resolved), overrides=OVERRIDES, origins={})
    folder.close()
    assert exit_code(["plan", str(ran.folder), "config.stop_when.tokens=1"]) == 0
    told = capsys.readouterr().out
    assert "mean of 3 steps done" in told
    assert "warning: stop_when.tokens cannot fit" in told
    assert exit_code(["plan", str(ran.workflow.path), "trainer.total_steps=3", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["plan"]["steps"] == 3
    assert content["measured"] is None


def test_a_model_that_is_not_there_is_a_note_and_bounds_are_still_given(ran, capsys):
    elsewhere = ("config.model.recipe=null", "config.model.recipe_kwargs={}", "config.model.path=nobody/nothing")
    assert exit_code(["plan", str(ran.workflow.path), *elsewhere]) == 0
    told = capsys.readouterr().out
    assert "nobody/nothing is not on this machine yet" in told
    assert "tokens by node: unknown" in told
    assert exit_code(["plan", str(ran.workflow.path), "config.data.train_files=gone.jsonl"]) == 3
