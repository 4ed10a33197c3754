"""Every check refuses what it must and leaves a correct workflow alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.workflow import checks, codes
from dagrl.workflow.checks import check_runnable
from tests.workflow_files import CHAIN, TEAM, changed, faults, load, only_fault, without_node

ENV = ("dependencies: [scout]\n", "dependencies: [scout]\n    agent_options: {env_path: e.py:E}\n")
SHARER = "dependencies: [advantage]\n    agent_options: {share"
WAITING_SHARER = SHARER.replace("[advantage]", "[advantage, value_1]")
NO_CYCLE = ("    agent_options: {train_cycle: 15}\n", "")


def warned(folder: Path, text: str, *overrides: str) -> set[str]:
    return {warning.code for warning in load(folder, text, *overrides).warnings}


def test_a_correct_workflow_has_neither_errors_nor_warnings(tmp_path: Path) -> None:
    assert load(tmp_path, TEAM).warnings == ()


def test_every_check_stands_in_a_table_and_every_code_has_a_title() -> None:
    found = (*checks.OUTLINE_CHECKS, *checks.CHECKS, *checks.PLUGIN_CHECKS)
    assert len(set(found)) == len(found)
    source = "".join(path.read_text() for path in Path(checks.__file__).parent.glob("*.py"))
    assert all(f'"{code}"' in source for code in codes.TITLES if code[1] != "5" and code != "E100")


REFUSED = [
    ("E201", "two nodes have the id", [("node_id: old_1", "node_id: old_0"), (", old_1", ", old_0")], ()),
    ("E202", "did you mean 'scout'", [("dependencies: [scout]", "dependencies: [scuot]")], ()),
    ("E203", "scout (line", [("node_id: scout\n", "node_id: scout\n    dependencies: [caller]\n")], ()),
    ("E203", "judge (line", [("dependencies: [caller]", "dependencies: [judge]")], ()),
    ("E204", "0..n-1", [("group: 1\n    dependencies: [scout]", "group: 3\n    dependencies: [scout]")], ()),
    ("E204", "no node belongs", [], ("agent_groups.2.name=third",)),
    ("E205", "cannot have the role CRITIC", [("node_type: REWARD", "node_type: REWARD\n    node_role: CRITIC")], ()),
    ("E205", "only_forward_compute has no meaning", [("REWARD", "REWARD\n    only_forward_compute: true")], ()),
    ("E206", "engine 'vllm' is not built yet", [], ("rollout.engine=vllm",)),
    ("E406", "old_logprobs: recompute gives it the trainer's", [], ("algorithm.policy_loss=m2po",)),
    ("E206", "role ACTOR is not built yet", [], ("nodes.actor_1.agent_options.share_instance=0",)),
    ("E207", "train_cycle does nothing", [], ("nodes.judge.agent_options.train_cycle=3",)),
    ("E207", "num_parallel does nothing", [], ("nodes.actor_0.agent_options.num_parallel=3",)),
    ("E207", "when does nothing", [], ("nodes.judge.agent_options.when=a.py:f",)),
    ("E207", "executable_ref does nothing", [], ("nodes.scout.executable_ref=a.py:f",)),
    ("E207", "neither a function nor a role", [("node_role: ADVANTAGE", "node_role: DEFAULT")], ()),
    ("E207", "for the whole run", [], ("nodes.scout.config.rollout.n=4",)),
    ("E208", "waits for 'judge'", [("dependencies: [caller]", "dependencies: [scout]"),
                                   ("dependencies: [scout]\n", "dependencies: [scout, judge]\n")], ()),
    ("E209", "env_path does nothing", [], ("nodes.judge.agent_options.env_path=a.py:E",)),
    ("E209", "comes after it", [ENV, ("[caller]", "[world]"), ("  - node_id: judge",
     "  - {node_id: world, node_type: ENV, dependencies: [caller], agent_options: {env_path: e.py:E}}\n"
     "  - node_id: judge")], ()),
    ("E209", "names no environment", [("[caller]", "[world]"), ("  - node_id: judge",
     "  - {node_id: world, node_type: ENV, dependencies: [caller]}\n  - node_id: judge")], ()),
    ("E209", "no agent acts", [("[caller]", "[caller, world]"), ("  - node_id: judge",
     "  - {node_id: world, node_type: ENV, agent_options: {env_path: e.py:E}}\n  - node_id: judge")], ()),
    ("E210", "reads old_logprobs", [("[advantage, old_0, ref_0]", "[advantage, ref_0]")], ()),
    ("E210", "add 'value_1' to its dependencies", [("value_0, value_1]", "value_0]"), (SHARER, WAITING_SHARER)], ()),
    ("E212", "before 'actor_0' trains it", [("[advantage, old_0, ref_0]", "[advantage, ref_0]")],
     ("actor.old_logprobs=rollout",)),
    ("E213", "there is no group 7", [("share_instance: 0", "share_instance: 7")] * 2, ()),
    ("E213", "with itself", [("share_instance: 0", "share_instance: 1")] * 2, ()),
    ("E213", "another model or tokenizer", [], ("agent_groups.1.model.path=other",)),
    ("E214", "values differ", [], ("nodes.actor_1.agent_options.train_cycle=7",)),
    ("E214", "has no train_cycle", [NO_CYCLE], ()),
    ("E214", "shared critic", [], ("nodes.critic_1.agent_options.train_cycle=15",)),
    ("E215", "use different critics", [("share_instance: 0", "share_instance: null")], ()),
    ("E215", "different models", [], ("nodes.old_0.config.model.device=cpu", "nodes.ref_0.config.model.device=cuda")),
    ("E215", "in different ways", [], ("nodes.critic_1.config.critic.ppo_epochs=2",)),
    ("E401", "did you mean 'gae_marft'", [], ("algorithm.adv_estimator=gae_mrft",)),
    ("E401", "unknown policy_loss", [], ("algorithm.policy_loss=pppo",)),
    ("E402", "no node has one", [], ("rollout.rewards_with_env=true",)),
    ("E403", "once per agent", [], ("algorithm.reward_mode=team",)),
    ("E405", "may answer with", [], ("nodes.scout.agent_options.sampling.max_tokens=4096",)),
    ("E405", "prompts may have", [], ("data.max_prompt_length=4096",)),
    ("E405", "mini-batches of 65", [], ("nodes.actor_1.config.actor.ppo_mini_batch_size=65",)),
    ("E406", "needs train_cycle", [NO_CYCLE] * 2, ("algorithm.update_order=cycle",)),
    ("E406", "contradicts the train_cycle", [], ("algorithm.update_order=sequential",)),
    ("E406", "no ROLLOUT node", [], ("trainer.val_without=[socut]",)),
    ("E406", "have one name", [], ("agent_groups={0: {name: a}, 1: {name: a}}",)),
    ("E406", "scores for all agents", [("[judge, value_0", "[judge, second, value_0"), ("  - node_id: old_0",
     "  - {node_id: second, node_type: REWARD, agent_group: 1, dependencies: [caller]}\n  - node_id: old_0")], ()),
    ("E406", "one ratio per response, and gae_marft", [], ("algorithm.policy_loss=gspo",)),
    ("E406", "takes the sampler's for both", [],
     ("actor.rollout_correction=tis", "actor.old_logprobs=rollout")),
    ("E406", "rollout.n is 1", [], ("algorithm.adv_estimator=grpo",)),
    ("E406", "compares whole trajectories", [],
     ("algorithm.adv_estimator=grpo", "rollout.n=4", "algorithm.group_by=[prompt, turn]")),
    ("E406", "given one per token", [], ("algorithm.policy_loss=cispo", "algorithm.action_level=true")),
    ("E406", "given one per token", [], ("algorithm.policy_loss=a.py:f", "algorithm.action_level=true")),
    ("E406", "one old_logprobs for all", [NO_CYCLE] * 2,
     ("algorithm.update_order=sequential", "nodes.actor_1.config.actor.old_logprobs=rollout")),
    ("E207", "for the whole run", [], ("nodes.advantage.config.algorithm.reward_mode=per_agent",)),
    ("E207", "it has no executable_ref", [], ("nodes.judge.agent_options.reward_kwargs={a: 1}",)),
    ("E215", "shares the critic of group 0", [], ("agent_groups={1: {critic: {ppo_epochs: 3}}}",)),
    ("E206", "dropout in adapters", [], ("agent_groups={1: {adapter: {dropout: 0.1}}}",)),
    ("E401", "unknown adv_estimator 'remx'", [], ("nodes.advantage.config.algorithm.adv_estimator=remx",)),
    ("E401", "unknown policy_loss", [], ("nodes.actor_0.config.algorithm.policy_loss=pppo",)),
    ("E406", "dr_mas means group_by", [], ("algorithm.adv_estimator=dr_mas", "algorithm.group_by=[prompt]")),
    ("E401", "did you mean 'overlong'", [], ("nodes.judge.agent_options.rewards=[{fn: overlon}]",)),
    ("E406", "both rewards and executable_ref",
     [("node_type: REWARD", "node_type: REWARD\n    executable_ref: a.py:f")],
     ("nodes.judge.agent_options.rewards=[{fn: math}]",)),
    ("E406", "have the name math", [], ("nodes.judge.agent_options.rewards=[{fn: math}, {fn: math}]",)),
    ("E406", "names 'socut'", [], ("nodes.judge.agent_options.outcome_node=socut",)),
    ("E406", "names 'socut'", [], ("nodes.judge.agent_options.correct_reward_weight={socut: 2}",)),
    ("E207", "rewards does nothing", [], ("nodes.scout.agent_options.rewards=[{fn: math}]",)),
    ("E113", "must be less than 1", [], ("actor.optim.betas=[0.9, 1.0]",)),
    ("E113", "name of a folder", [], ("agent_groups={0: {name: a/b}}",)),
    ("E113", "must be a finite number", [], ("algorithm.gamma=.nan",)),
    ("E113", "must be at most 1", [], ("algorithm.gamma=1.5",)),
    ("E406", "'old_1', 'ref_1', 'actor_1' must have its policy here", [],
     ("agent_groups={1: {server: {url: 'http://127.0.0.1:1'}}}",)),
    ("E113", "the address begins with neither", [], ("agent_groups={1: {server: {url: localhost:8000}}}",)),
    ("E113", "the address holds a name or a password", [],
     ("agent_groups={1: {server: {url: 'http://a:b@127.0.0.1'}}}",)),
    ("E114", "got 'scripted'", [], ("rollout.engine=scripted",)),
    ("E110", "unknown key 'lrr'", [], ("nodes.actor_0.config.actor.optim.lrr=1",)),
    ("E110", "unknown key 'trainer'", [], ("nodes.actor_0.config.trainer.seed=1",)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "words", "changes", "overrides"), REFUSED)
def test_is_refused(
    tmp_path: Path, code: str, words: str, changes: list[tuple[str, str]], overrides: tuple[str, ...]
) -> None:
    fault = only_fault(tmp_path, changed(TEAM, *changes), *overrides)
    assert fault.code == code
    assert words in fault.render()


def test_a_node_without_a_type_is_one_fault_even_if_it_is_the_only_one(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, "dag_id: alone\nnodes:\n  - node_id: scout\n")
    assert (fault.code, fault.field) == ("E111", "nodes.scout.node_type")
    assert only_fault(tmp_path, "dag_id: alone\nnodes: []\n").code == "E113"


def test_a_cycle_is_named_node_by_node_in_the_direction_of_the_data(tmp_path: Path) -> None:
    text = changed(TEAM, ("[judge, value_0, value_1]", "[judge, value_0, value_1, critic_1]"))
    assert "advantage (line 45) → critic_1 (line 53) → advantage (line 45)" in only_fault(tmp_path, text).message


@pytest.mark.parametrize(
    ("node", "code", "words"),
    [
        ("judge", "E402", "rewards of agent group 0"),
        ("ref_0", "E210", "use_kl_loss and use_kl_in_reward need the frozen reference"),
        ("old_1", "E210", "old_logprobs: rollout"),
        ("value_1", "E404", "gae_marft needs a critic"),
    ],
)
def test_a_missing_node_is_named_by_what_it_would_write(tmp_path: Path, node: str, code: str, words: str) -> None:
    found = [one for one in faults(tmp_path, without_node(TEAM, node)) if one.code == code]
    assert found
    assert words in found[0].render()


def test_columns_are_written_once_and_chains_have_one_advantage_node(tmp_path: Path) -> None:
    extra = """\
  - {node_id: again, node_type: COMPUTE, node_role: ADVANTAGE, agent_group: 0, dependencies: [judge, value_0, value_1]}
"""
    codes_found = {fault.code for fault in faults(tmp_path, TEAM + extra)}
    assert {"E211", "E406"} <= codes_found
    own = extra.replace("agent_group: 0", "agent_group: 1")
    both = SHARER.replace("[adv", "[again, adv")
    text = changed(TEAM + own, ("[advantage, old_1, ref_1]", "[again, old_1, ref_1]"), (SHARER, both))
    assert len(load(tmp_path, text, "algorithm.adv_estimator=gae").nodes) == 14


def test_a_group_that_never_speaks_is_refused(tmp_path: Path) -> None:
    node = "node_type: MODEL_TRAIN, node_role: CRITIC, only_forward_compute: true, agent_group: 2"
    text = f"{TEAM}  - {{node_id: value_2, {node}}}\n"
    assert "E208" in {fault.code for fault in faults(tmp_path, text)}


def test_sharing_in_a_ring_is_refused(tmp_path: Path) -> None:
    text = TEAM.replace("node_id: value_0\n", "node_id: value_0\n    agent_options: {share_instance: 1}\n")
    text = text.replace("node_id: critic_0\n", "node_id: critic_0\n    agent_options: {share_instance: 1}\n")
    assert any("ring" in fault.message for fault in faults(tmp_path, text))


def test_a_base_that_extends_its_child_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("extends: workflow.yaml\n")
    assert "ring" in only_fault(tmp_path, "extends: base.yaml\n" + TEAM).message
    assert "no such file" in only_fault(tmp_path, "extends: nothing.yaml\n" + TEAM).message


@pytest.mark.parametrize(
    ("code", "changes", "overrides"),
    [
        ("W201", [("[advantage, old_0, ref_0]", "[advantage, old_0, ref_0, critic_0]")], ()),
        ("W202", [("{use_kl_loss: true}", "{use_kl_loss: false}")], ()),
        ("W401", [ENV], ("rollout.rewards_with_env=true",)),
        ("W403", [], ("nodes.scout.agent_options.obs_with_env=true",)),
        ("W403", [], ("nodes.judge.agent_options.combine=add",)),
        ("W403", [], ("algorithm.kl_ctrl.type=adaptive",)),
        ("W403", [("{use_kl_loss: true}", "{use_kl_loss: false}")], ("actor.kl_loss_ctrl=adaptive",)),
        ("W403", [], ("algorithm.action_logprob=mean",)),
        ("W403", [], ("algorithm.loss_horizon=5",)),
        ("W403", [], ("nodes.judge.config.actor.ppo_epochs=2",)),
        ("W403", [], ("nodes.scout.agent_options.pre_process_kwargs={a: 1}",)),
        ("W403", [], ("nodes.scout.agent_options.env_kwargs={a: 1}",)),
        ("W403", [], ("critic.head_hidden=5",)),
        ("W403", [], ("nodes.value_0.config.critic.ppo_epochs=5",)),
        ("W403", [], ("nodes.old_0.config.actor.optim.lr=5",)),
        ("W403", [], ("nodes.actor_0.config.algorithm.gamma=0.5",)),
        ("W403", [], ("nodes.advantage.config.algorithm.policy_loss=a.py:f",)),
        ("W403", [], ("algorithm.group_by=[prompt]",)),
        ("W403", [], ("algorithm.advantage_level=turn",)),
        ("W403", [], ("algorithm.m2_mode=authors",)),
        ("W403", [], ("algorithm.policy_loss=m2po", "actor.old_logprobs=rollout", "actor.clip_ratio=0.3")),
        ("W404", [], ("algorithm.adv_estimator=gae", "algorithm.reward_mode=chained")),
        ("W405", [], ("algorithm.policy_loss=gspo", "algorithm.adv_estimator=grpo", "rollout.n=4")),
        ("W405", [], ("algorithm.gamma_token=0.9",)),
        ("W405", [], ("algorithm.action_level=true", "algorithm.action_logprob=mean")),
        ("W405", [], ("algorithm.adv_estimator=grpo", "rollout.n=4", "rollout.sampling.temperature=0")),
        (
            "W405",
            [("[judge, value_0, value_1]", "[judge, value_0, value_1, old_0, old_1, ref_0, ref_1]")],
            ("algorithm.use_kl_in_reward=true",),
        ),
        ("W405", [], ("actor.kl_loss_type=k1",)),
        (
            "W405",
            [],
            ("algorithm.adv_estimator=dr_grpo", "rollout.n=4", "algorithm.loss_agg_mode=seq-mean-token-mean"),
        ),
        (
            "W405",
            [],
            (
                "algorithm.adv_estimator=maxrl",
                "rollout.n=4",
                "nodes.judge.agent_options.rewards=[{fn: math}, {fn: repetition}]",
            ),
        ),
        (
            "W405",
            [],
            ("nodes.judge.agent_options.rewards=[{fn: overlong, kwargs: {max_tokens: 99, buffer_tokens: 9}}]",),
        ),
        ("W405", [], ("nodes.scout.agent_options.process_path=scout.py",)),
        (
            "W405",
            [],
            (
                "algorithm.adv_estimator=grpo",
                "rollout.n=4",
                "algorithm.group_by=[prompt, turn]",
                "algorithm.advantage_level=turn",
                "algorithm.gamma=0",
            ),
        ),
    ],
)
def test_is_warned_of(tmp_path: Path, code: str, changes: list[tuple[str, str]], overrides: tuple[str, ...]) -> None:
    assert code in warned(tmp_path, changed(TEAM, *changes), *overrides)


def test_a_critic_that_nobody_trains_is_warned_of(tmp_path: Path) -> None:
    text = without_node(without_node(TEAM, "critic_0"), "critic_1")
    assert warned(tmp_path, text) == {"W402"}


def test_settings_of_an_agent_that_nobody_trains_are_warned_of(tmp_path: Path) -> None:
    text = changed(without_node(without_node(without_node(TEAM, "actor_1"), "old_1"), "ref_1"), NO_CYCLE)
    assert warned(tmp_path, text, "agent_groups={1: {adapter: {r: 2}}}") == {"W403"}
    assert warned(tmp_path, text, "agent_groups={1: {optim: {lr: 2}}}") == {"W403"}


def test_a_nodes_own_estimator_says_how_rewards_are_shared_out(tmp_path: Path) -> None:
    said = ("config.algorithm.adv_estimator=gae", "executable_ref=a.py:f")
    for words, mode in (
        ((), "chained"),
        ((f"nodes.advantage.{said[0]}",), "team"),
        ((f"nodes.advantage.{said[1]}",), "team"),
    ):
        workflow = load(tmp_path, TEAM, *words)
        assert workflow.spec.config.algorithm.reward_mode == mode
        assert {node.algorithm.reward_mode for node in workflow.nodes} == {mode}
        assert not {found.code for found in workflow.warnings} & {"W404"}


def test_a_setting_that_all_nodes_of_an_agent_repeat_is_not_warned_of(tmp_path: Path) -> None:
    said = [f"nodes.{name}_0.config.actor.optim.lr=0.5" for name in ("old", "ref", "actor")]
    assert warned(tmp_path, TEAM, *said) == set()


def test_steps_that_train_nobody_are_warned_of(tmp_path: Path) -> None:
    text = without_node(without_node(TEAM, "actor_1"), "old_1")
    found = [one.message for one in load(tmp_path, without_node(text, "ref_1")).warnings]
    assert any("steps 15-29 train nobody" in message for message in found)


def test_a_reward_node_may_add_to_the_environment(tmp_path: Path) -> None:
    overrides = ("rollout.rewards_with_env=true", "nodes.judge.agent_options.combine=add")
    assert warned(tmp_path, changed(TEAM, ENV), *overrides) == set()


def test_the_chain_warns_once_of_all_its_idle_edges(tmp_path: Path) -> None:
    found = [one for one in load(tmp_path, CHAIN).warnings if one.code == "W201"]
    assert len(found) == 1
    assert found[0].message.startswith("8 edges carry no data")


def test_data_and_models_are_demanded_only_for_a_run(tmp_path: Path) -> None:
    bare = check_runnable(load(tmp_path, TEAM, "trainer.test_freq=1"))
    assert [finding.code for finding in bare] == ["E407"] * 4
    full = ("model.path=m", "data.train_files=a.jsonl", "data.val_files=b.jsonl", "trainer.test_freq=1")
    assert check_runnable(load(tmp_path, TEAM, *full)) == []
    assert check_runnable(load(tmp_path, TEAM, "model.recipe=a.py:f", "data.train_files=a.jsonl")) == []


def test_what_compares_held_out_results_demands_them(tmp_path: Path) -> None:
    ready = ("model.path=m", "data.train_files=a.jsonl")
    for flag in ("trainer.min_improvement=0.1", "trainer.val_without=[scout]"):
        assert [found.code for found in check_runnable(load(tmp_path, TEAM, *ready, flag))] == ["E407"]
        assert check_runnable(load(tmp_path, TEAM, *ready, flag, "data.val_files=b.jsonl")) == []
    unmeasured = (*ready, "data.val_files=b.jsonl", "trainer.min_improvement=0.1", "trainer.val_before_train=false")
    assert [found.code for found in check_runnable(load(tmp_path, TEAM, *unmeasured))] == ["E406"]


def test_agents_may_hear_rollouts_two_edges_away_and_speak_in_parallel(tmp_path: Path) -> None:
    text = changed(TEAM, ("  - node_id: judge\n", "  - {node_id: third, node_type: MODEL_INFERENCE, agent_group: 1,"
                   " dependencies: [scout, caller]}\n  - node_id: judge\n"), ("[caller]", "[third]"))  # fmt: skip
    assert [node.node_id for node in load(tmp_path, text).play] == ["scout", "caller", "third"]


def test_no_more_than_fifty_findings_are_shown(tmp_path: Path) -> None:
    flags = [f"trainer.wrong_{number}=1" for number in range(70)]
    found = faults(tmp_path, TEAM, *flags)
    assert len(found) == 51
    assert found[-1].message == "and 20 more"
