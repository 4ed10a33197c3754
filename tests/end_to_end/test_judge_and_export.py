"""`dagrl eval` and `dagrl export` on a finished run: what they print, keep and refuse; the folders load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.fork_server import completed as dagrl
from tests.openai_server import chat, serving
from tests.tiny_project import write_project

pytestmark = pytest.mark.slow

STEPS = 10


def train(project: Path, name: str, *options: str) -> Path:
    done = dagrl("run", "--workflow", "calling.yaml", "--run-dir", name, *options, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / name


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    write_project(folder, total_steps=STEPS, max_rounds=2)
    return folder


@pytest.fixture(scope="module")
def run(project):
    return train(project, "full", "trainer.save_freq=5", "trainer.test_freq=5", "trainer.val_before_train=true")


@pytest.fixture(scope="module")
def lora_run(project):
    return train(project, "lora", "agent_groups.0.adapter={r: 2, alpha: 64}", "trainer.total_steps=3")


def judged(project: Path, *words: str) -> dict:
    done = dagrl("eval", *words, "--json", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def files_of(run: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes() for file in run.rglob("*") if file.is_file() and "evaluations" not in str(file)
    }


def test_one_greedy_sample_gives_the_accuracy_that_the_run_measured_itself(project, run):
    before = files_of(run)
    [team] = judged(project, f"full@{STEPS}")["teams"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = next(row for row in reversed(rows) if "val/accuracy" in row)
    assert team["step"] == STEPS
    assert team["scores"][0]["average"]["mean"] == last["val/accuracy"]
    assert team["rounds"][0]["solved"]["mean"] == last["val/accuracy_first_round"]
    assert team["mean_reward"] == last["val/reward"]
    assert files_of(run) == before
    assert len(list((run / "evaluations").glob("*.json"))) == 1
    assert len(list((run / "evaluations").glob("*/eval_000010.parquet"))) == 1


def test_greedy_agents_are_sampled_at_temperature_1_when_there_are_several_samples_and_it_is_said(project, run):
    done = dagrl("eval", "full", "--k", "4", "--data", "val.jsonl", cwd=project)
    assert done.returncode == 0, done.stderr
    for words in ("temperature 1 instead", "avg@4", "pass@2", "pass@4", "maj@4", "letters", "scout", "caller"):
        assert words in done.stdout
    [team] = judged(project, "full", "--k", "4")["teams"]
    assert team["temperatures"] == {"scout": 1.0, "caller": 1.0}
    assert any(0 < sum(problem["solved"]) < 4 for problem in team["problems"])


def test_two_checkpoints_are_compared_problem_by_problem(project, run):
    told = judged(project, "full@5", "full@10", "--k", "2")
    shares = [[sum(one["solved"]) / 2 for one in team["problems"]] for team in told["teams"]]
    average = told["differences"][0]
    assert average["measure"] == "avg@2"
    assert average["mean"] == pytest.approx(sum(b - a for a, b in zip(*shares, strict=True)) / 16)
    assert average["low"] < average["mean"] < average["high"]


def ablated(project: Path, *words: str) -> dict[str, dict]:
    done = dagrl("ablate", *words, "--json", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_an_ablation_puts_each_agent_back_and_leaves_each_out(project, run):
    """By what the run itself measured at its start and its end, and by `dagrl eval --without`."""
    before = files_of(run)
    rows = ablated(project, "full@10", "--against", "5", "--against", "10")
    measured = {row["step"]: row["val/accuracy"] for row in map(json.loads, (run / "metrics.jsonl").open())
                if "val/accuracy" in row}  # fmt: skip
    whole = rows.pop(next(iter(rows)))
    assert (whole["solved"]["mean"], whole["difference"]) == (measured[10], None)
    kinds = ("as it began", "as after step 5", "as after step 10")
    assert set(rows) == {
        *(f"{agent} {kind}" for agent in ("scout", "caller") for kind in kinds), "all as they began",
        "without scout", "without caller",
    }  # fmt: skip
    assert rows["all as they began"]["solved"]["mean"] == measured[0]
    for agent in ("scout", "caller"):
        assert rows[f"{agent} as after step 10"]["difference"][0] == 0.0
    for row in rows.values():
        assert row["difference"][0] == pytest.approx(row["solved"]["mean"] - measured[10])
    [silent] = judged(project, "full@10", "--without", "scout")["teams"]
    assert rows["without scout"]["solved"]["mean"] == silent["scores"][0]["average"]["mean"]
    assert files_of(run) == before


ALONE = """
dag_id: alone
config:
  data: {train_files: train.jsonl, val_files: val.jsonl, train_batch_size: 16}
  model: {recipe: recipe.py:make}
  rollout: {n: 4, max_context_len: 64, rewards_with_env: true, sampling: {max_tokens: 1}, val_kwargs: {max_tokens: 1}}
  algorithm: {adv_estimator: grpo}
  trainer: {total_steps: 1}
nodes:
  - node_id: caller
    node_type: MODEL_INFERENCE
    agent_options: {obs_with_env: true, process_path: hooks.py, pre_process_kwargs: {role: C},
                    env_path: environment.py:Calling}
  - {node_id: old, node_type: MODEL_TRAIN, node_role: ACTOR, only_forward_compute: true, dependencies: [caller]}
  - {node_id: advantages, node_type: COMPUTE, node_role: ADVANTAGE, dependencies: [caller]}
  - {node_id: train, node_type: MODEL_TRAIN, node_role: ACTOR, dependencies: [advantages, old]}
"""


def test_a_single_agent_gets_as_many_samples_as_the_teams_tokens_buy(project, run):
    (project / "alone.yaml").write_text(ALONE)
    done = dagrl("run", "--workflow", "alone.yaml", "--run-dir", "alone", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = ablated(project, "full@10", "--single", "alone")
    team, alone = rows[next(iter(rows))], rows[list(rows)[-1]]
    assert "the majority of" in alone["name"]
    assert alone["tokens"] == pytest.approx(team["tokens"], rel=0.4)
    refused = dagrl("ablate", "alone", "--single", "full", cwd=project)
    assert refused.returncode == 2 and "has 2 agents" in refused.stderr


def test_two_runs_with_other_held_out_problems_are_not_compared_unless_given_the_same(project, run, lora_run):
    other = project / "other"
    shutil.copytree(lora_run, other)
    rows = (project / "val.jsonl").read_text().splitlines()
    (project / "val2.jsonl").write_text("\n".join(reversed(rows)) + "\n")
    resolved = other / "workflow.yaml"
    resolved.write_text(resolved.read_text().replace("val.jsonl", "val2.jsonl"))
    done = dagrl("eval", "full", "other", cwd=project)
    assert done.returncode == 2
    assert "do not have the same held-out problems" in done.stderr
    assert len(judged(project, "full", "other", "--data", "val.jsonl")["differences"]) == 1


def test_without_an_agent_the_team_is_worse(project, run):
    [team] = judged(project, "full", "--without", "scout")["teams"]
    assert team["without"] == "scout"
    assert team["agents"]["scout"]["turns_per_sample"] == 0
    assert team["scores"][0]["average"]["mean"] <= 0.25


def test_servers_speak_for_agents_one_or_all(project, run):
    """The server says the letter before the agent's mark: the secret, or what the scout said."""
    with serving(chat(lambda text: text[-2:-1])) as server:
        [team] = judged(project, "full", "--agent", f"scout={server.url}", "--agent", f"1={server.url}#tiny")["teams"]
        assert team["scores"][0]["average"]["mean"] == 1.0
        told = {"url": server.url, "model": "tiny", "prompts": "text"}
        assert team["servers"] == {"scout": told, "caller": told}
    with serving(chat(lambda text: "a")) as server:
        done = dagrl("eval", "full", "--agent", f"caller={server.url}", cwd=project)
    assert done.returncode == 0, done.stderr
    assert f"caller: tiny at {server.url}, prompts sent as text" in done.stdout
    rows = pq.read_table(sorted((run / "evaluations").glob("*/eval_000010.parquet"))[-1]).to_pylist()
    assert {row["response"] for row in rows if row["agent"] == "caller"} == {"a"}
    for row in rows:
        assert (row["rollout_logprobs"] is None) == (row["agent"] == "caller")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("eval", "full@7"), 2, "has no checkpoint of step 7"),
        (("eval", "full", "--without", "nobody"), 2, "no such rollout node"),
        (("eval", "full", "--agent", "caler=http://127.0.0.1:1"), 2, "did you mean 'caller'"),
        (("eval", "full", "--agent", "1=127.0.0.1:1"), 2, "begins with neither http:// nor https://"),
        (("eval", "full", "--agent", "http://127.0.0.1:1"), 2, "the address is missing"),
        (("eval", "full", "--agent", "1=http://me:pw@127.0.0.1:1"), 2, "holds a name or a password"),
        (("eval", "full", "full", "full"), 2, "3 runs are given"),
        (("eval", "full", "--data", "absent.jsonl"), 3, "no such file"),
        (("export", "full", "--agent", "scuot", "-o", "nowhere"), 2, "did you mean 'scout'"),
        (("export", "full", "-o", "full"), 2, "is not an empty folder"),
        (("export", "full", "-o", "nowhere", "--merge-lora"), 2, "no agent to export has a LoRA adapter"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(project, run, words, code, message):
    done = dagrl(*words, cwd=project)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert not (project / "nowhere").exists()


def test_code_changed_since_the_run_is_refused_with_the_difference(project, run):
    hooks = project / "hooks.py"
    before = hooks.read_text()
    hooks.write_text(before + "\n# changed\n")
    try:
        done = dagrl("eval", "full", cwd=project)
    finally:
        hooks.write_text(before)
    assert done.returncode == 2
    assert "+# changed" in done.stderr


def test_a_damaged_checkpoint_is_an_error_that_names_the_part_when_it_was_asked_for(project, run):
    damaged = project / "damaged"
    shutil.copytree(run, damaged)
    weights = damaged / "checkpoints" / "step_000010" / "agent_caller" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for words in (("eval", "damaged@10"), ("export", "damaged@10", "-o", "never")):
        done = dagrl(*words, cwd=project)
        assert done.returncode == 5
        assert "agent_caller/model.safetensors" in done.stderr
    done = dagrl("export", "damaged", "-o", "older", cwd=project)
    assert done.returncode == 0
    assert "step_000010 is not whole" in done.stderr
    assert "after step 5" in done.stdout


def test_the_best_checkpoint_is_the_one_with_the_highest_held_out_accuracy_and_the_latest_of_equals(project, run):
    metrics = run / "metrics.jsonl"
    before = metrics.read_bytes()
    rows = [json.loads(line) for line in before.decode().splitlines()]
    try:
        for row in rows:
            if "val/accuracy" in row:
                row["val/accuracy"] = {0: 0.9, 5: 0.8, 10: 0.7}[row["step"]]
        metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = dagrl("export", "full@best", "-o", "best", cwd=project)
    finally:
        metrics.write_bytes(before)
    assert "after step 5" in done.stdout


def logits(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([[6, 2, 7]])).logits
    return found


def test_exported_agents_load_in_transformers_with_a_card_that_tells_what_they_are(project, run):
    done = dagrl("export", "full", "-o", "team", cwd=project)
    assert done.returncode == 0, done.stderr
    for agent in ("scout", "caller"):
        folder = project / "team" / agent
        card = (folder / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: transformers\n")
        for words in (f"# {agent}", "```mermaid\nflowchart", "| 10 | ", "gae_marft", "recipe.py:make", "16 problems"):
            assert words in card
        assert "license: " not in card
        assert str(project) not in card
        assert (folder / "generation_config.json").is_file()
        assert torch.equal(logits(folder), logits(run / "checkpoints" / "step_000010" / f"agent_{agent}"))
        assert AutoTokenizer.from_pretrained(folder).encode("ab") == [2, 3]


def test_a_merged_adapter_loads_without_peft_and_computes_the_same(project, lora_run):
    merged = dagrl("export", "lora", "--agent", "scout", "--merge-lora", "-o", "merged", cwd=project)
    assert merged.returncode == 0, merged.stderr
    apart = dagrl("export", "lora", "--agent", "scout", "-o", "apart", cwd=project)
    assert apart.returncode == 0, apart.stderr
    assert not (project / "merged" / "adapter_config.json").exists()
    assert (project / "apart" / "adapter_config.json").is_file()
    assert (project / "apart" / "README.md").read_text().startswith("---\nlibrary_name: peft\n")
    base = json.loads((project / "apart" / "adapter_config.json").read_text())["base_model_name_or_path"]
    torch.testing.assert_close(logits(project / "merged"), logits(project / "apart"), atol=1e-5, rtol=1e-5)
    assert (logits(project / "merged") - logits(Path(base))).abs().max() > 1e-3


def test_a_push_that_cannot_reach_the_hub_says_so_and_leaves_the_folder(project, run):
    done = dagrl("export", "full", "--agent", "caller", "-o", "pushed", "--push", "nobody/caller", cwd=project)
    assert done.returncode == 2
    assert "cannot be sent to the Hugging Face hub" in done.stderr
    assert (project / "pushed" / "model.safetensors").is_file()
