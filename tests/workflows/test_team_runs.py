"""Each team workflow runs: who speaks to whom, what is paid, who is trained. Two steps each.

Those marked slow have a model that has hardly seen anything, the others one that can speak in the form asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.small_teams import Ran, one_process
from tests.workflows.files import shipped, train_shipped

lessons, selection = shipped("small_model/team.py"), shipped("teams/solver_rewriter_selector.py")
final_answer = shipped("../envs/final_answer_env.py").final_answer
SMALL = ("config.data.train_batch_size=4", "config.rollout.n=4", "config.actor.ppo_mini_batch_size=16")
ABLE = "config.model.recipe_kwargs={lesson_steps: 100, demo_steps: 200, batch_size: 48}"
MANY = ("config.data.train_batch_size=16", "config.actor.ppo_mini_batch_size=16")


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def conversations(ran: Ran) -> list[list[dict]]:
    """The turns of the first step, conversation by conversation."""
    found: dict[tuple, list] = {}
    for turn in ran.turns():
        found.setdefault((turn["task_id"], turn["sample"]), []).append(turn)
    return list(found.values())


def trained(ran: Ran) -> set[str]:
    """Agents whose policies were updated in every step."""
    names = {group.name for group in ran.workflow.groups}
    return {name for name in names if None not in ran.series(f"agent_{name}/actor/grad_norm")}


def is_open(text: str) -> bool:
    return final_answer(text) is None


def counts(conversation: list[dict]) -> Counter[str]:
    return Counter(turn["node"] for turn in conversation)


@pytest.mark.resilience
def test_a_single_agent(tmp_path: Path) -> None:
    ran = train_shipped(tmp_path, "single_agent", *SMALL, ABLE)
    assert all(counts(one) == {"solver": 1} for one in conversations(ran))
    assert trained(ran) == {"solver"}


@pytest.mark.resilience
def test_the_solver_speaks_again_where_it_was_rejected_and_reads_the_whole_review(tmp_path: Path) -> None:
    ran = train_shipped(tmp_path, "actor_verifier", *SMALL, ABLE)
    rejected = 0
    for first, review, *again in conversations(ran):
        assert bool(again) == ("<verify>reject</verify>" in review["response"])
        assert review["prompt"].endswith(lessons.said("solver", first["response"]) + "<|verifier|>")
        for turn in again:
            rejected += 1
            assert turn["prompt"].endswith(lessons.said("verifier", review["response"]) + "<|solver|>")
            assert turn["prompt"].count("<|solver|>") == 1, "its own first try is not shown"
    assert rejected and trained(ran) == {"solver", "verifier"}
    row = ran.rows[0]
    assert row["reward/verdict/verifier/right"] == pytest.approx(row["reward/parts/verdict_right"])
    said_reject = sum(value for name, value in row.items() if name.startswith("reward/verdict/verifier/reject/"))
    assert said_reject == pytest.approx(row["role/solver_again/spoke"]) == pytest.approx(row["reward/parts/rejected"])


@pytest.mark.resilience
def test_a_solver_may_keep_its_first_try_and_each_kind_of_turn_may_have_its_own_baseline(tmp_path: Path) -> None:
    quotes = "nodes.solver_again.agent_options.pre_process_kwargs.quotes.solver"
    options = (f'{quotes}=["<|solver|>", "<|end|>"]', "config.algorithm.group_by=[prompt, agent, node]")
    ran = train_shipped(tmp_path, "actor_verifier", *SMALL, *options, ABLE)
    again = [one for one in conversations(ran) if len(one) == 3]
    for first, review, last in again:
        told = lessons.said("solver", first["response"]) + lessons.said("verifier", review["response"])
        assert last["prompt"].endswith(told + "<|solver|>")
    for task in {turn["task_id"] for turn in ran.turns()}:
        for node in ("solver", "solver_again", "verifier"):
            own = [turn for turn in ran.of(node) if turn["task_id"] == task]
            assert sum(turn["advantages"][0] for turn in own) == pytest.approx(0.0, abs=1e-4), "its own baseline"


@pytest.mark.resilience
def test_with_dynamic_sampling_a_step_has_as_many_prompts_and_no_idle_one(tmp_path: Path) -> None:
    more = "nodes.informative.agent_options.dynamic_sampling.max_extra_batches=40"
    ran = train_shipped(tmp_path, "actor_verifier_ds", *SMALL, more, ABLE)
    rewards: dict[str, dict[str, set[float]]] = {}
    for turn in ran.turns():
        rewards.setdefault(turn["task_id"], {}).setdefault(turn["agent"], set()).add(turn["reward"])
    assert len(rewards) == 4
    assert all(any(len(own) > 1 for own in by_agent.values()) for by_agent in rewards.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "agents"),
    [("solver_rewriter_selector", {"team"}), ("solver_rewriter_selector_3", {"solver", "rewriter", "selector"})],
)
def test_solvers_rewriters_and_a_selector(tmp_path: Path, name: str, agents: set[str]) -> None:
    ran = train_shipped(tmp_path, name, "config.data.train_batch_size=4", "config.rollout.n=4",
                        "config.actor.ppo_mini_batch_size=16")  # fmt: skip
    told = 0
    for one in conversations(ran):
        solutions = [turn["response"] for turn in one if turn["node"] == "solver"]
        candidates = list(filter(selection.is_candidate, solutions))
        rewriters = [turn for turn in one if turn["node"] == "rewriter"]
        assert len(solutions) == 3 and len(rewriters) == 3 * bool(candidates)
        for turn in rewriters:
            told += 1
            quoted = "".join(lessons.said("solver", text) for text in candidates)
            problem = turn["prompt"].partition("<|end|>")[0] + "<|end|>"
            assert turn["prompt"] == problem + quoted + "<|rewriter|>"
    assert told and trained(ran) == agents


@pytest.mark.resilience
def test_thinker_and_verifier_take_turns_until_a_final_answer(tmp_path: Path) -> None:
    ran = train_shipped(tmp_path, "thinker_verifier", *SMALL, ABLE)
    for one in conversations(ran):
        rounds = one[-1]["num_rounds"]
        order = [turn["node"] for turn in one]
        assert order == (["thinker", "verifier"] * rounds)[: len(order)], "an answer of the thinker's ends its round"
        ended = [not is_open(turn["response"]) for turn in one]
        assert not any(ended[:-1]) and (ended[-1] or rounds == 3)
        assert {turn["reward"] for turn in one if turn["round"] == rounds - 1} == {one[-1]["trajectory_reward"]}
        for before, turn in pairwise(one):
            if turn["node"] == "verifier":
                said = list(before["response_ids"])
                assert turn["prompt"].endswith("<|checker|>")
                assert said in (list(turn["prompt_ids"])[-len(said) - 1 - cut : -1 - cut] for cut in (0, 1))
    assert {one[-1]["num_rounds"] for one in conversations(ran)} > {1}
    assert trained(ran) == {"thinker", "verifier"}
    row, judged = ran.rows[0], [turn for turn in ran.turns() if turn["node"] == "verifier"]
    assert row["reward/verdict/verifier/count"] == len(judged)
    answers = sum(row[f"reward/verdict/verifier/answer/{truth}"] for truth in ("answer", "doubt"))
    assert answers == pytest.approx(sum(not is_open(turn["response"]) for turn in judged) / len(judged))
    assert row["trajectory/ended_early"] == pytest.approx(
        row["role/thinker/ended_early"] + row["role/verifier/ended_early"]
    )


@pytest.mark.slow
def test_a_diamond_is_credited_by_the_order_of_time(tmp_path: Path) -> None:
    flat = ("config.algorithm.lam_agent=0.5", "config.algorithm.norm_adv=none", "config.trainer.critic_warmup=0")
    ran = train_shipped(tmp_path, "parallel_team", *MANY, "config.critic.ppo_mini_batch_size=16", *flat)
    for first, second, joiner in conversations(ran):
        quoted = lessons.said("thinker", first["response"]) + lessons.said("thinker", second["response"])
        assert joiner["prompt"].endswith(quoted + "<|joiner|>")
        for turn in (first, second):
            if turn["response_ids"] and joiner["response_ids"]:
                expected = joiner["values"][0] - turn["values"][-1] + 0.5 * joiner["advantages"][0]
                assert turn["advantages"][-1] == pytest.approx(expected, abs=1e-5)
    assert trained(ran) == {"first", "second", "joiner"}
    assert {path.name for path in ran.checkpoint.glob("critic_*")} == {"critic_first"}


@pytest.mark.slow
def test_each_of_a_diamond_is_paid_for_what_the_team_would_lose_without_it(tmp_path: Path) -> None:
    small = ("config.data.train_batch_size=8", "config.actor.ppo_mini_batch_size=8")
    quick = ("config.critic.ppo_mini_batch_size=8", "config.trainer.critic_warmup=0", "config.trainer.total_steps=1")
    ran = train_shipped(tmp_path, "parallel_team_credit", *small, *quick)
    assert trained(ran) == {"first", "second", "joiner"}
    paid = {name: [turn["reward"] for turn in ran.of(name)] for name in ("first", "second", "joiner")}
    for name, own in paid.items():
        assert set(own) <= {-1.0, 0.0, 1.0}
        assert ran.series(f"credit/mean/{name}")[0] == pytest.approx(sum(own) / len(own))
    assert ran.series("ledger/extra") == [8 * 3], "once more without each agent"
    for turn in ran.turns():
        if turn["response_ids"]:
            assert turn["returns"][-1] == pytest.approx(turn["reward"], abs=1e-5), "nothing comes from another agent"


@pytest.mark.resilience
def test_a_frozen_opponent_stays_what_it_was(tmp_path: Path) -> None:
    ran = train_shipped(tmp_path, "frozen_opponent", *SMALL, ABLE)
    assert all(counts(one) == {"opponent": 1, "solver": 1} for one in conversations(ran))
    assert trained(ran) == {"solver"}
    assert {turn["policy_version"] for turn in ran.of("opponent", "step_000002")} == {0}
    assert {turn["policy_version"] for turn in ran.of("solver", "step_000002")} != {0}


@pytest.mark.resilience
@pytest.mark.parametrize(("name", "agents"), [("adversarial", {"player"}), ("adversarial_2", {"solver", "proposer"})])
def test_a_proposer_and_a_solver_have_opposed_rewards(tmp_path: Path, name: str, agents: set[str]) -> None:
    ran = train_shipped(tmp_path, name, *MANY, ABLE)
    kinds = Counter()
    for proposer, *solver in conversations(ran):
        kinds[len(solver)] += 1
        for turn in solver:
            assert turn["prompt"] == f"<|user|>{lessons.QUESTION}{proposer['response']} =<|end|><|solver|>"
            assert proposer["reward"] + turn["reward"] == 1.0
        assert solver or proposer["reward"] == -1.0
    assert kinds[0] and kinds[1] and trained(ran) == agents


@pytest.mark.slow
@pytest.mark.parametrize("cycle", [None, 1])
def test_patient_and_doctor_have_models_and_rewards_of_their_own(tmp_path: Path, cycle: int | None) -> None:
    tiny = "{seed: 1, lesson_steps: 1, demo_steps: 20, hidden_size: 16, num_layers: 1, batch_size: 16}"
    nodes = () if cycle is None else ("patient_train", "doctor_train")
    turns = [f"nodes.{node}.agent_options.train_cycle={cycle}" for node in nodes]
    ran = train_shipped(tmp_path, "co_evolution", *SMALL, f"agent_groups.1.model.recipe_kwargs={tiny}", *turns)
    for patient, doctor in conversations(ran):
        assert doctor["prompt"] == lessons.said("patient", patient["response"]) + "<|doctor|>"
    sizes = {name: len(ran.weights(f"agent_{name}")["model.norm.weight"]) for name in ("patient", "doctor")}
    assert sizes == {"patient": 16, "doctor": 32}
    updates = {name: [norm is not None for norm in ran.series(f"agent_{name}/actor/grad_norm")] for name in sizes}
    assert (
        updates
        == {
            None: {"patient": [True, True], "doctor": [True, True]},
            1: {"patient": [False, True], "doctor": [True, False]},
        }[cycle]
    )
