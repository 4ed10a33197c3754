"""Probes of lazy agents in real runs: the influence is what transformers says it is, and nothing else changes."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from dagrl.errors import WorkflowError
from tests.small_teams import GIVE, TWO, one_process, run, speaker, train

pytestmark = pytest.mark.slow

DEAF = """
def pre_process(tokenizer, prompt_id, inputs):
    return prompt_id[:2] + tokenizer.encode("C")
"""
DRAWING = """
import random

def pre_process(tokenizer, prompt_id):
    return prompt_id + tokenizer.encode(random.choice("SC"))
"""
NEEDY = """
def pre_process(tokenizer, prompt_id, inputs):
    return prompt_id + tokenizer.encode(inputs["a"][0])
"""
PROBED = ("trainer.probe_freq=2", "trainer.total_steps=3")


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def logprobs(model, prompt, response):
    ids = torch.tensor([*prompt, *response])
    with torch.no_grad():
        logits = model(ids[None]).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(1, ids[len(prompt) :, None])[:, 0]


def test_the_influence_is_the_shift_of_what_the_other_said_with_the_message_gone(tmp_path):
    ran = run(tmp_path, TWO, *PROBED, "trainer.probe_conversations=3", "actor.optim.lr=0")
    model = AutoModelForCausalLM.from_pretrained(ran.checkpoint / "agent_1")
    spoken = {(turn["task_id"], turn["sample"], turn["node"]): turn for turn in ran.turns()}
    tasks = list(dict.fromkeys(turn["task_id"] for turn in ran.turns()))[:3]
    estimates = []
    for task in tasks:
        first, second = spoken[task, 0, "a"], spoken[task, 0, "b"]
        told = logprobs(model, second["prompt_ids"], second["response_ids"])
        untold = logprobs(model, first["prompt_ids"], second["response_ids"])
        estimates.append((untold - told).exp() - 1 - (untold - told))
    expected = float(torch.cat(estimates).mean())
    assert expected > 1e-6
    assert ran.rows[0]["influence/kl/a"] == pytest.approx(expected, rel=1e-3)
    assert ran.rows[0]["influence/heard/a"] == 1.0 and ran.rows[0]["influence/failed"] == 0.0
    assert "influence/kl/b" not in ran.rows[0], "nobody speaks after b"
    assert ["influence/kl/a" in row for row in ran.rows] == [True, False, True]


def test_an_agent_that_nobody_reads_has_no_influence_and_one_that_a_hook_needs_is_counted(tmp_path):
    deaf = run(tmp_path / "deaf", (speaker("a"), speaker("b", 1, ["a"], process_path="hooks2.py")), *PROBED,
               files={"hooks2.py": DEAF})  # fmt: skip
    assert (deaf.rows[0]["influence/kl/a"], deaf.rows[0]["influence/heard/a"]) == (0.0, 0.0)
    needy = run(tmp_path / "needy", (speaker("a"), speaker("b", 1, ["a"], process_path="hooks2.py")), *PROBED,
                files={"hooks2.py": NEEDY})  # fmt: skip
    assert needy.rows[0]["influence/failed"] == 4.0 and "influence/kl/a" not in needy.rows[0]
    assert needy.rows[-1]["trajectory/failed"] == 0.0 and not list((needy.folder / "failures").glob("*"))


def fingerprint(ran):
    """SHA-256 of all that training makes, and the metrics but for clocks and probes."""
    files = [ran.folder / "ledger.jsonl", *(ran.folder / "trajectories").glob("*.parquet")]
    files += list(ran.checkpoint.rglob("*.safetensors"))
    found = {
        file.relative_to(ran.folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if not file.name.endswith(".timings.parquet")
    }
    rows = [json.loads(line) for line in (ran.folder / "metrics.jsonl").read_text().splitlines()]
    return found, [{name: row[name] for name in row if not name.startswith("influence/")} for row in rows]


@pytest.mark.resilience
def test_probes_change_no_weight_and_no_book_of_a_team_with_an_environment(tmp_path):
    options = ("trainer.total_steps=2",)
    plain = train(tmp_path / "plain", *options, max_rounds=2)
    probed = train(tmp_path / "probed", *options, "trainer.probe_freq=1", max_rounds=2)
    assert all("influence/kl/scout" in row and "influence/kl/caller" in row for row in probed.rows)
    assert fingerprint(plain) == fingerprint(probed)


def test_probes_shift_no_draw_of_a_hook_that_draws_from_the_process(tmp_path):
    team = (speaker("a"), speaker("b", 1, ["a"], process_path="hooks2.py"))
    drawn = [
        run(tmp_path / name, team, "trainer.total_steps=2", *options, files={"hooks2.py": DRAWING})
        for name, options in (("plain", ()), ("probed", ("trainer.probe_freq=1",)))
    ]
    assert fingerprint(drawn[0]) == fingerprint(drawn[1])
    assert len({turn["prompt"][-1] for turn in drawn[0].of("b")}) > 1, "the hook draws nothing"


@pytest.mark.parametrize(
    ("play", "message"),
    [
        ((speaker("a"),), "no agent speaks after another"),
        ((speaker("a"), speaker("b", 1)), "no agent speaks after another"),
    ],
)
def test_a_team_in_which_nobody_can_hear_is_refused(tmp_path, play, message):
    with pytest.raises(WorkflowError, match=message):
        run(tmp_path, play, "trainer.probe_freq=1", reward=GIVE)
