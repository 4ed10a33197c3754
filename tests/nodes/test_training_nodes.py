"""TRAIN_ACTOR and TRAIN_CRITIC against padded float64 code with autograd; layouts, sharing, order of updates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dagrl.algorithms import AdaptiveKL, FixedKL
from dagrl.backends.base import PolicyModel, ValueModel
from dagrl.experience import Experience, collate
from dagrl.nodes.objectives import objective_of
from dagrl.nodes.train_actor import TrainActorNode
from dagrl.nodes.train_critic import TrainCriticNode
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.kinds import Column, NodeKind
from dagrl.workflow.sections import ActorSpec, CriticSpec
from tests.bigram_models import BigramCritic, BigramPolicy
from tests.node_builders import node
from tests.stream_builders import trajectory, turn

VOCABULARY = 6
LR = 0.5


def table(seed: int) -> Tensor:
    return torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def played(num_agents: int = 2, count: int = 6) -> Experience:
    """Ragged turns of several agents and rounds, with every column filled at random."""
    generator = torch.Generator().manual_seed(7)

    def ids(number: int) -> list[int]:
        return torch.randint(0, VOCABULARY, (number,), generator=generator).tolist()

    trajectories = [
        trajectory(
            str(index),
            [
                turn(agent, round, ids(1 + (index + agent) % 4), prompt=ids(2))
                for round in range(1 + index % 2)
                for agent in range(num_agents)
            ],
        )
        for index in range(count)
    ]
    experience = collate(trajectories)
    every = torch.arange(len(experience.turns))
    for column in (Column.OLD_LOGPROBS, Column.REF_LOGPROBS):
        experience.write(column, every, -torch.rand(experience.num_tokens, generator=generator) * 2 - 0.5)
    for column in (Column.ADVANTAGES, Column.RETURNS, Column.VALUES):
        experience.write(column, every, torch.randn(experience.num_tokens, generator=generator))
    return experience


def actor_node(policy, *, groups=(0,), algorithm=None, actor=None, kl=None):
    spec = node(
        NodeKind.TRAIN_ACTOR,
        groups=groups,
        algorithm=AlgorithmSpec(**(algorithm or {})),
        actor=ActorSpec(**(actor or {})),
    )
    controller = FixedKL(spec.actor.kl_loss_coef) if kl is None else kl
    loss = objective_of(spec.algorithm)
    return TrainActorNode(spec, policy, policy_loss=loss, kl_controller=controller, loss_horizon=32, seed=1)


def padded(experience: Experience, turns: list[int], column: Column) -> Tensor:
    parts = [experience.read(column, torch.tensor([index])).double() for index in turns]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)


def naive_actor_table(experience, start: Tensor, turns: list[int], *, mode, low, high, dual, entropy_coef, kl_coef):
    """One SGD step on the bigram table, written with padding, masks and float64."""
    weights = start.double().clone().requires_grad_()
    sequences = experience.sequences
    logprob_rows, entropy_rows = [], []
    for index in turns:
        begin, end = int(sequences.offsets[index]), int(sequences.offsets[index + 1])
        ids, first = sequences.input_ids[begin:end], int(sequences.prompt_lens[index])
        logits = torch.log_softmax(weights[ids[first - 1 : -1]], -1)
        logprob_rows.append(logits[torch.arange(len(ids) - first), ids[first:]])
        entropy_rows.append(-(logits.exp() * logits).sum(-1))
    pad = torch.nn.utils.rnn.pad_sequence
    logprobs, entropy = pad(logprob_rows, batch_first=True), pad(entropy_rows, batch_first=True)
    mask = pad([torch.ones(len(row), dtype=torch.float64) for row in logprob_rows], batch_first=True)
    old, ref = padded(experience, turns, Column.OLD_LOGPROBS), padded(experience, turns, Column.REF_LOGPROBS)
    advantages = padded(experience, turns, Column.ADVANTAGES)
    ratio = (logprobs - old).exp()
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - low, 1 + high))
    loss = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
    kl = (ref - logprobs).exp() - (ref - logprobs) - 1
    total = loss - entropy_coef * entropy + kl_coef * kl
    if mode == "token-mean":
        value = (total * mask).sum() / mask.sum()
    elif mode == "seq-mean-token-sum":
        value = (total * mask).sum(1).mean()
    elif mode == "seq-mean-token-mean":
        value = ((total * mask).sum(1) / mask.sum(1)).mean()
    else:
        value = (total * mask).sum(1).mean() / 32
    value.backward()
    return (weights - LR * weights.grad).detach()


@pytest.mark.parametrize("micro", [1, 2, 100])
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_an_update_equals_naive_padded_code_whatever_the_micro_batches(mode, micro):
    experience = played()
    policy = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=micro)
    assert isinstance(policy, PolicyModel)
    spec = {
        "entropy_coeff": 0.01,
        "use_kl_loss": True,
        "kl_loss_coef": 0.05,
        "clip_ratio_low": 0.1,
        "clip_ratio_high": 0.3,
    }
    metrics = actor_node(policy, algorithm={"loss_agg_mode": mode}, actor=spec).run(experience, 0)
    turns = experience.turns_of([0]).tolist()
    expected = naive_actor_table(
        experience, table(1), turns, mode=mode, low=0.1, high=0.3, dual=3.0, entropy_coef=0.01, kl_coef=0.05
    )
    assert torch.allclose(policy.table.detach().double(), expected, atol=1e-5)
    assert metrics["optimizer_steps"] == 1


@pytest.mark.parametrize("micro", [1, 2, 100])
def test_m2po_chooses_over_the_whole_batch_whatever_the_micro_batches(micro):
    experience = played()
    experience.write(Column.ROLLOUT_LOGPROBS, torch.arange(len(experience.turns)), experience.columns["old_logprobs"])
    policy = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=micro)
    algorithm = {"policy_loss": "m2po", "m2_threshold": 0.3}
    metrics = actor_node(policy, algorithm=algorithm, actor={"old_logprobs": "rollout"}).run(experience, 0)
    turns = experience.turns_of([0])
    weights = table(1).double().requires_grad_()
    sequences = experience.select(turns)
    rows = []
    for first, last, length in zip(sequences.offsets, sequences.offsets[1:], sequences.prompt_lens):
        ids = sequences.input_ids[first:last]
        rows.append(torch.log_softmax(weights[ids[length - 1 : -1]], -1).gather(1, ids[length:, None])[:, 0])
    log_ratio = torch.cat(rows) - experience.read(Column.ROLLOUT_LOGPROBS, turns).double()
    advantages = experience.read(Column.ADVANTAGES, turns).double()
    region = ((log_ratio * advantages) > 0).nonzero().flatten().tolist()
    before, kept = float(log_ratio[region].detach().square().mean()), torch.ones(len(log_ratio))
    while region and log_ratio[region].square().mean() > 0.3:
        kept[region.pop(int(log_ratio[region].abs().argmax()))] = 0.0
    assert 0 < kept.sum() < len(kept)
    (-advantages * kept * log_ratio.exp()).mean().backward()
    assert torch.allclose(policy.table.detach().double(), (weights - LR * weights.grad).detach(), atol=1e-5)
    assert metrics["m2_masked"] == pytest.approx(1 - float(kept.mean()))
    assert metrics["m2_before"] == pytest.approx(before, rel=1e-5)
    assert metrics["m2_after"] <= 0.3 and 0 < metrics["m2_region"] < 1


def test_an_agent_learns_from_its_own_turns_only():
    experience = played(num_agents=3)
    before = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=4)
    actor_node(before, groups=(1,)).run(experience, 0)
    other = experience.turns_of([0, 2])
    experience.write(Column.ADVANTAGES, other, 100 * experience.read(Column.ADVANTAGES, other))
    after = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=4)
    actor_node(after, groups=(1,)).run(experience, 0)
    assert torch.equal(before.table, after.table)


def test_epochs_and_minibatches_are_counted_in_trajectories_and_repeat_for_the_same_seed():
    def trained():
        policy = BigramPolicy(table(1), lr=0.1, turns_per_micro_batch=4)
        metrics = actor_node(policy, actor={"ppo_epochs": 3, "ppo_mini_batch_size": 4}).run(played(count=10), 5)
        return policy.table.detach(), metrics

    (first, metrics), (second, _) = trained(), trained()
    assert metrics["optimizer_steps"] == 3 * math.ceil(10 / 4)
    assert torch.equal(first, second)


def test_target_kl_stops_the_epochs_and_says_so():
    policy = BigramPolicy(table(1), lr=50.0, turns_per_micro_batch=100)
    experience = played()
    turns = experience.turns_of([0])
    experience.write(Column.OLD_LOGPROBS, turns, policy.score(experience.select(turns)).logprobs)
    metrics = actor_node(policy, actor={"ppo_epochs": 8, "target_kl": 0.01}).run(experience, 0)
    assert metrics["early_stop"] == 1
    assert 1 < metrics["optimizer_steps"] < 8


def test_the_adaptive_controller_of_the_kl_loss_moves_towards_its_target():
    policy = BigramPolicy(table(1), lr=0.0, turns_per_micro_batch=100)
    controller = AdaptiveKL(0.1, target=1e-6, horizon=100)
    training = actor_node(policy, actor={"use_kl_loss": True}, kl=controller)
    training.run(played(), 0)
    assert training.state_dict()["coef"] == pytest.approx(0.1 * (1 + 0.2 * 6 / 100))


def test_an_agent_without_turns_is_left_alone():
    policy = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=100)
    assert actor_node(policy, groups=(5,)).run(played(), 0) == {"skipped": 1.0}
    assert policy.version == 0


@pytest.mark.parametrize("normalisation", ["sum", "mean"])
def test_a_response_as_one_action_has_one_ratio(normalisation):
    experience = played()
    policy = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=2)
    algorithm = {"action_level": True, "action_logprob": normalisation}
    actor_node(policy, algorithm=algorithm, actor={"clip_ratio_c": None}).run(experience, 0)
    weights = table(1).double().requires_grad_()
    losses = []
    for index in experience.turns_of([0]).tolist():
        one = torch.tensor([index])
        sequences = experience.select(one)
        ids, first = sequences.input_ids, int(sequences.prompt_lens[0])
        logprobs = torch.log_softmax(weights[ids[first - 1 : -1]], -1)[torch.arange(len(ids) - first), ids[first:]]
        difference = logprobs - experience.read(Column.OLD_LOGPROBS, one).double()
        ratio = (difference.sum() if normalisation == "sum" else difference.mean()).exp()
        advantage = experience.read(Column.ADVANTAGES, one).double()[-1]
        losses.append(torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)))
    torch.stack(losses).mean().backward()
    assert torch.allclose(policy.table.detach().double(), (weights - LR * weights.grad).detach(), atol=1e-5)


def test_sequential_updates_weigh_the_second_agent_with_the_first_ones_ratio():
    """HAPPO by hand: agent 1's advantages in each round are multiplied by agent 0's new / old probability there."""
    experience = played()
    first, second = (BigramPolicy(table(seed), lr=LR, turns_per_micro_batch=3) for seed in (1, 2))
    for agent, policy in enumerate((first, second)):
        turns = experience.turns_of([agent])
        experience.write(Column.OLD_LOGPROBS, turns, policy.score(experience.select(turns)).logprobs)
    sequential = {"update_order": "sequential", "sequential_cap": 1e6}
    actor_node(first, groups=(0,), algorithm=sequential).run(experience, 0)
    weighted = played()
    for column in (Column.OLD_LOGPROBS, Column.ADVANTAGES):
        weighted.columns[column] = experience.columns[column].clone()
    own = experience.turns
    for index in experience.turns_of([1]).tolist():
        same = (own.trajectory == own.trajectory[index]) & (own.round == own.round[index]) & (own.agent_group == 0)
        spoken = same.nonzero().flatten()
        new = first.score(experience.select(spoken)).logprobs
        factor = float((new - experience.read(Column.OLD_LOGPROBS, spoken)).sum().exp())
        one = torch.tensor([index])
        weighted.write(Column.ADVANTAGES, one, factor * experience.read(Column.ADVANTAGES, one))
    expected = BigramPolicy(table(2), lr=LR, turns_per_micro_batch=3)
    actor_node(expected, groups=(1,)).run(weighted, 0)
    actor_node(second, groups=(1,), algorithm=sequential).run(experience, 0)
    assert torch.allclose(second.table, expected.table, atol=1e-6)
    plain = BigramPolicy(table(2), lr=LR, turns_per_micro_batch=3)
    actor_node(plain, groups=(1,)).run(experience_without_new(experience), 0)
    assert not torch.allclose(second.table, plain.table, atol=1e-4)


def experience_without_new(experience: Experience) -> Experience:
    del experience.columns[Column.NEW_LOGPROBS], experience.written[Column.NEW_LOGPROBS]
    return experience


def critic_node(critic, *, groups, **spec):
    return TrainCriticNode(node(NodeKind.TRAIN_CRITIC, groups=groups, critic=CriticSpec(**spec)), critic, seed=1)


@pytest.mark.parametrize("num_agents", [1, 2, 3])
def test_a_shared_critics_joint_update_equals_one_update_on_the_concatenated_batch(num_agents):
    experience = played(num_agents=num_agents)
    values = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(3))
    critic = BigramCritic(values, lr=LR, turns_per_micro_batch=2)
    assert isinstance(critic, ValueModel)
    critic_node(critic, groups=tuple(range(num_agents)), cliprange_value=0.5).run(experience, 0)
    weights = values.double().requires_grad_()
    losses = []
    for agent in range(num_agents):
        for index in experience.turns_of([agent]).tolist():
            one = torch.tensor([index])
            sequences = experience.select(one)
            predicted = weights[sequences.input_ids[int(sequences.prompt_lens[0]) - 1 : -1]]
            old, returns = (experience.read(column, one).double() for column in (Column.VALUES, Column.RETURNS))
            clipped = old + (predicted - old).clamp(-0.5, 0.5)
            losses.append(0.5 * torch.maximum((predicted - returns) ** 2, (clipped - returns) ** 2))
    torch.cat(losses).mean().backward()
    assert torch.allclose(critic.table.detach().double(), (weights - LR * weights.grad).detach(), atol=1e-5)
    assert critic.version == 1


def test_turns_that_are_not_trained_do_not_move_the_weights():
    experience = played()
    experience.turns.is_trained[:] = False
    policy = BigramPolicy(table(1), lr=LR, turns_per_micro_batch=2)
    critic = BigramCritic(torch.zeros(VOCABULARY), lr=LR, turns_per_micro_batch=2)
    assert actor_node(policy).run(experience, 0) == {"skipped": 1.0}
    assert critic_node(critic, groups=(0, 1)).run(experience, 0) == {"skipped": 1.0}
