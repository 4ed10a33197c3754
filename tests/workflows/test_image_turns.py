"""image_turns.yaml: its environment and hook by hand, and runs with a model that has hardly been taught."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import AutoImageProcessor, AutoModelForImageTextToText

from dagrl.images import read_image
from tests.fork_server import completed as dagrl
from tests.workflows.files import WORKFLOWS, shipped

SMALL = (
    "model.recipe_kwargs={lesson_steps: 30, batch_size: 8, hidden_size: 32}", "trainer.total_steps=2",
    "data.train_batch_size=2", "rollout.n=4", "data.val_max_prompts=4", "actor.ppo_mini_batch_size=4",
)  # fmt: skip


def test_the_environment_shows_as_many_pictures_as_colours_and_pays_for_each_name():
    env = shipped("image_turns/patch_env.py").PatchEnv()
    first = env.reset(ground_truth="red blue", seed=3)
    assert first.shape == (28, 28, 3) and first[..., 0].max() > 150
    parts, reward, done = env.step(["red"], "red blue")
    assert (parts[0]["text"], reward, done) == ("right", 0.5, False)
    assert parts[1]["image"][..., 2].max() > 150
    assert env.step(["green"], "red blue") == ("wrong", 0.0, True)


def test_the_hook_leaves_out_all_pictures_but_the_last():
    post_process = shipped("image_turns/process.py").post_process
    one, other = (2**30 + number for number in (7, 8))
    assert post_process(None, [1, one, 2, 3, other], [4]) == [1, 2, 3, other, 4]
    assert post_process(None, [1, one, 2, 3, other], [4], keep=2) == [1, one, 2, 3, other, 4]
    assert post_process(None, [1, one, 2], [4], keep=0) == [1, 2, 4]


@pytest.mark.slow
def test_it_runs_and_each_turn_keeps_its_pictures(tmp_path: Path):
    done = dagrl("run", "--workflow", str(WORKFLOWS / "image_turns.yaml"), "--run-dir", "out", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    turns = pq.read_table(tmp_path / "out" / "trajectories" / "step_000001.parquet").to_pylist()
    assert [len(turn["images"]) for turn in turns] == [1, 2, 2] * 8
    kept = [image for turn in turns for image in turn["images"] if image["data"] is not None]
    assert len({image["sha256"] for image in kept}) == len(kept) == 24, "each picture stands once"
    assert all(read_image(image["data"]).digest == image["sha256"] for image in kept)
    for first, second, third in zip(turns[::3], turns[1::3], turns[2::3]):
        names = [[image["sha256"] for image in turn["images"]] for turn in (first, second, third)]
        assert names[1][0] == names[0][0] and names[2][0] == names[1][1]
        assert [turn["prompt"].count("<|image_pad|>") for turn in (first, second, third)] == [1, 2, 2]
    rows = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    gaps = [value for row in rows for name, value in row.items() if name.endswith("sampler_gap_max")]
    assert len(gaps) == 2 and max(gaps) < 1e-4


@pytest.mark.resilience
def test_a_run_with_images_resumes_replays_and_is_exported(tmp_path: Path):
    """Resumed from the middle it is byte for byte the run that went through; a step computed again from its log agrees;
    the agent loads in transformers."""
    command = ("run", "--workflow", str(WORKFLOWS / "image_turns.yaml"), "--run-dir", "whole", *SMALL)
    done = dagrl(*command, "trainer.total_steps=3", "trainer.save_freq=1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AutoModelForImageTextToText.from_pretrained" in done.stdout
    shutil.copytree(tmp_path / "whole", tmp_path / "again", symlinks=True)
    for step in (2, 3):
        shutil.rmtree(tmp_path / "again" / "checkpoints" / f"step_{step:06d}")
    done = dagrl("run", "--resume", "again", cwd=tmp_path)
    assert done.returncode == 0 and "after step 1" in done.stdout, done.stdout + done.stderr
    assert fingerprint(tmp_path / "again") == fingerprint(tmp_path / "whole")
    done = dagrl("replay", "whole", "--step", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = dagrl("export", "whole", "-o", "agents", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    AutoModelForImageTextToText.from_pretrained(tmp_path / "agents" / "viewer")
    assert AutoImageProcessor.from_pretrained(tmp_path / "agents" / "viewer").merge_size == 2


def fingerprint(run: Path) -> dict[str, str]:
    """SHA-256 of everything that must repeat byte for byte."""
    files = [run / "metrics.jsonl", run / "ledger.jsonl", *run.glob("trajectories/*.parquet")]
    files += run.glob("checkpoints/step_000003/**/*.safetensors")
    kept = [file for file in files if not file.name.endswith(".timings.parquet")]
    return {file.relative_to(run).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in kept}
