"""Token-in, token-out: a breach of each kind, made by real code in a real run, stops or is told with its span."""

from __future__ import annotations

import pytest

from dagrl.errors import BreachError
from tests.small_teams import TWO, one_process, run, team, train

TAMPERING = '''
import gc
from dataclasses import replace

import torch


def change_ids(batch, config):
    """A response token of the third turn becomes another."""
    where = int(batch.sequences.offsets[2] + batch.sequences.prompt_lens[2])
    batch.sequences.input_ids[where] = (batch.sequences.input_ids[where] + 1) % 7
    return batch


def change_prompt(batch, config):
    batch.sequences.input_ids[0] = (batch.sequences.input_ids[0] + 1) % 7
    return batch


def shift_mask(batch, config):
    """The last prompt token of every turn would be trained as if the agent had said it."""
    lens = batch.sequences.prompt_lens
    batch.sequences = replace(batch.sequences, prompt_lens=lens - 1)
    return batch


def swap_agents(batch, config):
    batch.turns.agent_group = 1 - batch.turns.agent_group
    return batch


def change_logprobs(batch, config):
    batch.columns["rollout_logprobs"][1] -= 0.5
    return batch


def change_weights(batch, config):
    """What a broken transfer of weights leaves: the trainer's are not those that the engine sampled with."""
    for module in [one for one in gc.get_objects() if type(one).__name__ == "Qwen2ForCausalLM"]:
        for parameter in module.parameters():
            with torch.no_grad():
                parameter += 0.2 * torch.sin(torch.arange(parameter.numel())).view_as(parameter)
    return batch


def leave_alone(batch, config):
    return batch
'''
HOOKED_REWARD = """
def rewrite(trajectory):
    for turn in trajectory.turns:
        turn.response_ids = turn.response_ids[::-1]
    return 1.0
"""


@pytest.fixture(autouse=True)
def shared_models(tmp_path_factory):
    with one_process(tmp_path_factory.getbasetemp() / "models"):
        yield


def tampered(folder, function, *overrides):
    """A run of two agents in which `function` gets the batch before log-probs are taken."""
    made = team(TWO, reward={"executable_ref": "scores.py:letters"})
    compute = {
        "node_id": "tamper", "node_type": "COMPUTE", "dependencies": ["reward"],
        "executable_ref": f"tampering.py:{function}",
    }  # fmt: skip
    for node in made["nodes"]:
        node["dependencies"] = ["tamper" if name == "reward" else name for name in node["dependencies"]]
    made["nodes"].append(compute)
    scores = "def letters(data_source, solution_str, ground_truth, extra_info):\n    return 1.0 * len(solution_str)\n"
    return train(folder, *overrides, team=made, files={"scores.py": scores, "tampering.py": TAMPERING})


def test_a_changed_response_token_stops_the_run_and_is_named_with_its_text(tmp_path):
    with pytest.raises(BreachError) as caught:
        tampered(tmp_path, "change_ids")
    told = str(caught.value)
    assert caught.value.exit_code == 4
    assert "ids that would be trained are not those sampled" in told
    assert "step 1, trajectory 1 (task train:" in told
    assert "turn 0 of agent" in told and "(node 'a', round 0)" in told and "response tokens 0 " in told
    assert "likely cause: a hook, REWARD or COMPUTE function" in told


def test_a_changed_prompt_token_is_named_by_its_distance_from_the_response(tmp_path):
    with pytest.raises(BreachError, match=r"trajectory 0 .*prompt tokens \(counted back from its end\) -"):
        tampered(tmp_path, "change_prompt")


def test_a_shifted_mask_stops_the_run(tmp_path):
    with pytest.raises(BreachError, match=r"mask .* prompt length (\d) was sampled, the batch says .* trajectory 0"):
        tampered(tmp_path, "shift_mask")


def test_turns_given_to_another_agent_stop_the_run(tmp_path):
    with pytest.raises(BreachError, match="agent 0 was sampled, the batch says 1"):
        tampered(tmp_path, "swap_agents")


def test_changed_log_probs_of_the_sampler_stop_the_run(tmp_path):
    with pytest.raises(BreachError, match="log-probs in the batch are not those it gave"):
        tampered(tmp_path, "change_logprobs")


@pytest.mark.slow
def test_other_weights_in_trainer_than_in_engine_are_told_with_span_log_probs_and_cause(tmp_path, capsys):
    tampered(tmp_path, "change_weights")
    told = [line for line in capsys.readouterr().out.splitlines() if "logprob_drift" in line]
    assert len(told) == 2, "each agent is told of once, though both steps are wrong"
    for line in told:
        assert "warning after step 1: logprob_drift: sampler and trainer disagree at step 1, trajectory" in line
        assert "response tokens" in line and "log-probs sampled [" in line and "trained [" in line
        assert "likely cause: the engine sampled with other weights" in line


def test_drift_stops_the_run_where_that_is_asked_for(tmp_path):
    with pytest.raises(BreachError, match="on_logprob_drift: warn"):
        tampered(tmp_path, "change_weights", "trainer.on_logprob_drift=stop")


@pytest.mark.slow
def test_a_clean_run_has_neither_breach_nor_drift(tmp_path, capsys):
    tampered(tmp_path / "compute", "leave_alone", "trainer.on_logprob_drift=stop")
    run(tmp_path / "plain", TWO, "trainer.on_logprob_drift=stop", "rollout.sampling.temperature=0.7")
    assert "logprob_drift" not in capsys.readouterr().out


def test_a_reward_that_rewrites_a_turn_does_not_change_what_is_trained(tmp_path):
    """The stream was laid before; the turn that the reward spoilt is not what is learnt from."""
    ran = run(tmp_path, TWO, reward={"executable_ref": "hooked.py:rewrite"}, files={"hooked.py": HOOKED_REWARD})
    assert len(ran.rows) == 2
