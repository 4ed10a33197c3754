"""Every shipped workflow trains what was sampled: two small steps of each, stopped by any breach or drift."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.runtime.console import Console
from dagrl.runtime.metrics import read_metrics
from dagrl.runtime.run_folder import create_run_folder
from dagrl.runtime.session import run_workflow
from dagrl.runtime.signals import StopSignals
from dagrl.runtime.token_check import BOUNDS
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.kinds import NodeKind
from tests.small_teams import one_process

WORKFLOWS = Path(__file__).parents[2] / "workflows"
SMALL = (
    "trainer.total_steps=2", "trainer.on_logprob_drift=stop", "trainer.val_without=[]", "trainer.min_improvement=null",
    "trainer.show_sample_freq=0", "trainer.critic_warmup=0", "data.train_batch_size=4", "data.val_files=[]",
    "rollout.max_rounds=1", "rollout.max_context_len=256",
    "rollout.sampling.max_tokens=16", "actor.ppo_mini_batch_size=null", "critic.ppo_mini_batch_size=null",
)  # fmt: skip
"""A length for a test and a model that is hardly taught; all else stays as it ships."""
NOT_HERE = (
    "data.max_prompt_length=null", f"data.train_files={WORKFLOWS / 'marft/data/train.parquet'}", "model.path=null",
    f"model.recipe={WORKFLOWS / 'small_model/marft.py'}:make",
)  # fmt: skip
"""For a workflow whose model and data are not in the repository."""
PROGRAMS = (
    f"data.train_files={WORKFLOWS / 'codegen/train.jsonl'}", f"model.recipe={WORKFLOWS / 'small_model/code.py'}:make",
    "rollout.max_context_len=512",
)  # fmt: skip
"""After these, for one that needs programs."""
TAUGHT = ("model.recipe_kwargs={lesson_steps: 2, demo_steps: 1}",)
IMAGES = ("model.recipe_kwargs={lesson_steps: 2}", "rollout.max_rounds=2")
"""In place of these, for one whose recipe has lessons alone."""
SHIPPED = sorted(path.name for path in WORKFLOWS.glob("*.yaml"))


@pytest.mark.resilience
@pytest.mark.parametrize("name", SHIPPED)
def test_no_breach_and_no_drift(name, tmp_path, tmp_path_factory):
    with one_process(tmp_path_factory.getbasetemp() / "models"):
        is_large = load_workflow(WORKFLOWS / name).spec.config.model.path is not None
        given = SMALL + NOT_HERE * is_large + PROGRAMS * (name == "codegen_verifier_deepcoder.yaml")
        given += IMAGES if name == "image_turns.yaml" else TAUGHT
        workflow = load_workflow(WORKFLOWS / name, given, load_plugins=True)
        (dtype,) = {group.model.dtype for group in workflow.groups}
        assert dtype == ("bfloat16" if is_large else "float32")
        folder = create_run_folder(tmp_path, "shipped")
        run_workflow(workflow, folder, Console(), stop=StopSignals())
        folder.close()
    gaps = [value for row in read_metrics(folder.path / "metrics.jsonl") for key, value in row.items() if "gap" in key]
    assert bool(gaps) == any(node.kind is NodeKind.OLD_LOGPROBS for node in workflow.nodes)
    assert max(gaps, default=0.0) < BOUNDS[dtype].token
