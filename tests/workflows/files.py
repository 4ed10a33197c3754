"""The shipped workflows: their modules, loaded as a run loads them, and short runs of them."""

from pathlib import Path
from types import ModuleType

from dagrl.runtime.console import Console
from dagrl.runtime.run_folder import create_run_folder
from dagrl.runtime.session import run_workflow
from dagrl.runtime.signals import StopSignals
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.plugins import load_module
from tests.small_teams import Ran

WORKFLOWS = Path(__file__).parents[2] / "workflows"


def shipped(file: str) -> ModuleType:
    """The module of a file of `workflows/`."""
    return load_module(file, WORKFLOWS)


def train_shipped(folder: Path, name: str, *overrides: str) -> Ran:
    """Two steps of a shipped workflow in this process, with a model that has seen a few demonstrations at most."""
    small = "{lesson_steps: 60, demo_steps: 140, hidden_size: 32, num_layers: 1, batch_size: 16}"
    quick = (
        f"config.model.recipe_kwargs={small}",
        "config.trainer.total_steps=2",
        "config.data.val_files=[]",
        "config.trainer.val_without=[]",
        "config.trainer.min_improvement=null",
        "config.trainer.show_sample_freq=0",
    )
    workflow = load_workflow(WORKFLOWS / f"{name}.yaml", [*quick, *overrides], load_plugins=True)
    run = create_run_folder(folder / "runs", name, run_dir=folder / "out")
    try:
        run_workflow(workflow, run, Console(), stop=StopSignals())
    finally:
        run.close()
    return Ran(folder / "out", workflow)
