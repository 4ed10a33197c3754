"""GAE of agents that speak at the same time: numbers by hand, a recursion written out, the chain as a special case."""

from __future__ import annotations

import random

import pytest
import torch

from dagrl.algorithms import Links, TurnLayout, gae, marft_gae

Row = tuple[int, int, int, int]
"""response length, trajectory, round, stage"""


def layout_of(rows: list[Row]) -> TurnLayout:
    lens, trajectory, round_, stage = torch.tensor(rows, dtype=torch.int64).T.contiguous()
    agents = torch.arange(len(rows)) % 3
    return TurnLayout(response_lens=lens, trajectory=trajectory, round=round_, agent_group=agents, stage=stage)


def recursion(
    rows: list[Row], rewards: list[float], values: list[float], bootstrap: list[float], links: Links, *, shares=True
) -> list[float]:
    """Advantage of every token, from the last moment of each trajectory back to its first. `shares`: a reward counts
    for all turns of its moment."""
    starts, at = [], 0
    for row in rows:
        starts.append(at)
        at += row[0]
    found = [0.0] * at
    for trajectory in {row[1] for row in rows}:
        own = [turn for turn, row in enumerate(rows) if row[1] == trajectory and row[0]]
        keys = sorted({rows[turn][2:] for turn in own})
        moments = [[turn for turn in own if rows[turn][2:] == key] for key in keys]
        for place in reversed(range(len(moments))):
            for turn in moments[place]:
                others = [one for one in moments[place] if one != turn]
                bonus = shares * sum(sum(rewards[starts[one] : starts[one] + rows[one][0]]) for one in others)
                if place + 1 < len(moments):
                    after = [starts[one] for one in moments[place + 1]]
                    is_agent_link = keys[place][0] == keys[place + 1][0]
                    gamma, lam = (links.gamma_agent, links.lam_agent) if is_agent_link else (links.gamma, links.lam)
                    value = sum(values[one] for one in after) / len(after)
                    carried = sum(found[one] for one in after) / len(after)
                else:
                    gamma, lam, value, carried = links.gamma, 0.0, bootstrap[trajectory], 0.0
                for token in reversed(range(starts[turn], starts[turn] + rows[turn][0])):
                    delta = rewards[token] + bonus + gamma * value - values[token]
                    found[token] = delta + gamma * lam * carried
                    bonus, gamma, lam = 0.0, links.gamma_token, links.lam_token
                    value, carried = values[token], found[token]
    return found


def test_a_diamond_worked_by_hand() -> None:
    """Two speak at once, the third joins them and is right: neither of the first two is the other's future."""
    layout = layout_of([(1, 0, 0, 0), (2, 0, 0, 0), (1, 0, 0, 1)])
    rewards, values = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([0.2, 0.3, 0.5, 0.6])
    links = Links(gamma=1.0, lam=1.0, gamma_agent=0.9, lam_agent=0.5)
    advantages, returns = marft_gae(rewards, values, layout, torch.zeros(1), links)
    joiner = 1.0 - 0.6
    last_of_second = 0.9 * 0.6 - 0.5 + 0.45 * joiner
    expected = [0.9 * 0.6 - 0.2 + 0.45 * joiner, 0.5 - 0.3 + last_of_second, last_of_second, joiner]
    torch.testing.assert_close(advantages, torch.tensor(expected))
    torch.testing.assert_close(returns, advantages + values)


def test_with_all_links_1_the_return_is_the_teams_from_the_moment_on() -> None:
    rows = [(1, 0, 0, 0), (1, 0, 0, 1), (2, 0, 0, 1), (1, 0, 1, 0)]
    rewards = torch.tensor([0.0, 0.25, 0.0, 0.5, 1.0])
    _, returns = marft_gae(rewards, torch.rand(5), layout_of(rows), torch.zeros(1), Links(gamma=1.0, lam=1.0))
    torch.testing.assert_close(returns, torch.tensor([1.75, 1.75, 1.75, 1.75, 1.0]))


def test_the_place_in_the_file_of_agents_that_speak_at_once_means_nothing() -> None:
    rows, rewards, values = [(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 1)], torch.rand(3), torch.rand(3)
    links, swap = Links(gamma=0.9, lam=0.8, lam_agent=0.7), torch.tensor([1, 0, 2])
    one, _ = marft_gae(rewards, values, layout_of(rows), torch.zeros(1), links)
    other, _ = marft_gae(rewards[swap], values[swap], layout_of(rows), torch.zeros(1), links)
    torch.testing.assert_close(one[swap], other)


@pytest.mark.parametrize("seed", range(20))
def test_any_stream_agrees_with_the_recursion(seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        (draw.randint(0, 3), trajectory, round_, draw.randint(0, 2))
        for trajectory in range(3)
        for round_ in range(draw.randint(1, 3))
        for _ in range(draw.randint(1, 4))
    ]
    layout = layout_of(rows)
    rewards, values = torch.rand(layout.num_tokens), torch.rand(layout.num_tokens)
    bootstrap, parts = torch.rand(3), [draw.random() for _ in range(6)]
    links = Links(**dict(zip(("gamma", "lam", "gamma_agent", "lam_agent", "gamma_token", "lam_token"), parts)))
    advantages, _ = marft_gae(rewards, values, layout, bootstrap, links)
    expected = recursion(rows, rewards.tolist(), values.tolist(), bootstrap.tolist(), links)
    torch.testing.assert_close(advantages, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_one_after_another_it_is_the_chain_and_at_action_level_too() -> None:
    rows = [(2, 0, 0, 0), (1, 0, 0, 1), (3, 0, 1, 0), (0, 0, 1, 1), (2, 1, 0, 0)]
    staged = layout_of(rows)
    plain = TurnLayout(
        response_lens=staged.response_lens,
        trajectory=staged.trajectory,
        round=staged.round,
        agent_group=staged.agent_group,
    )
    inputs, links = (torch.rand(8), torch.rand(8)), Links(gamma=0.9, lam=0.8, gamma_agent=0.7, lam_agent=0.6)
    for action_level in (False, True):
        one, other = (
            marft_gae(*inputs, layout, torch.rand(2, generator=torch.Generator().manual_seed(0)), links,
                      action_level=action_level)[0]
            for layout in (staged, plain)
        )  # fmt: skip
        assert torch.equal(one, other)


def test_at_action_level_a_diamond_has_one_number_for_each_response() -> None:
    layout = layout_of([(2, 0, 0, 0), (3, 0, 0, 0), (2, 0, 0, 1)])
    advantages, _ = marft_gae(
        torch.rand(7), torch.rand(7), layout, torch.zeros(1), Links(gamma=1.0, lam=0.9), action_level=True
    )
    assert [len(set(part.tolist())) for part in advantages.split([2, 3, 2])] == [1, 1, 1]


# Each agent by itself


def branches(rows: list[Row], agents: list[int]) -> TurnLayout:
    lens, trajectory, round_, stage = torch.tensor(rows, dtype=torch.int64).T.contiguous()
    return TurnLayout(
        response_lens=lens, trajectory=trajectory, round=round_, agent_group=torch.tensor(agents), stage=stage
    )


def test_a_branch_of_an_agent_has_its_own_reward_and_nothing_of_the_others() -> None:
    """Three branches at once, two tokens in the second: rewards 1, 0 and 0.5."""
    layout = branches([(1, 0, 0, 0), (2, 0, 0, 0), (1, 0, 0, 0)], [0, 0, 0])
    rewards, values = torch.tensor([1.0, 0.0, 0.0, 0.5]), torch.tensor([0.2, 0.3, 0.4, 0.6])
    links = Links(gamma=0.9, lam=0.8, gamma_agent=0.7, lam_agent=0.6, gamma_token=1.0, lam_token=0.5)
    advantages, returns = gae(rewards, values, layout, torch.zeros(1), links)
    second = 0.0 - 0.4
    torch.testing.assert_close(advantages, torch.tensor([0.8, (0.4 - 0.3) + 0.5 * second, second, -0.1]))
    torch.testing.assert_close(returns, advantages + values)
    alone, _ = gae(torch.tensor([9.0, 0.0, 0.0, 9.0]), values, layout, torch.zeros(1), links)
    assert torch.equal(alone[1:3], advantages[1:3])


def test_what_an_agent_says_after_its_branches_comes_after_each_of_them_and_another_agents_does_not() -> None:
    """Two branches of agent 0, a turn of agent 1, then agent 0 once more, in the same round and in the next."""
    layout = branches([(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 1), (1, 0, 0, 2), (1, 0, 1, 0)], [0, 0, 1, 0, 0])
    rewards, values = torch.tensor([0.5, 0.0, 7.0, 0.0, 1.0]), torch.tensor([0.1, 0.2, 0.9, 0.3, 0.4])
    links = Links(gamma=0.9, lam=0.8, gamma_agent=0.7, lam_agent=0.6)
    advantages, _ = gae(rewards, values, layout, torch.tensor([0.5]), links)
    last = 1.0 + 0.9 * 0.5 - 0.4
    choice = 0.9 * 0.4 - 0.3 + 0.9 * 0.8 * last
    expected = [
        0.5 + 0.7 * 0.3 - 0.1 + 0.42 * choice,
        0.0 + 0.7 * 0.3 - 0.2 + 0.42 * choice,
        7.0 + 0.9 * 0.5 - 0.9,
        choice,
        last,
    ]
    torch.testing.assert_close(advantages, torch.tensor(expected))


def test_branches_that_speak_again_are_followed_by_the_mean_of_the_next_round() -> None:
    layout = branches([(1, 0, 0, 0), (1, 0, 0, 0), (1, 0, 1, 0), (1, 0, 1, 0)], [0, 0, 0, 0])
    rewards, values = torch.tensor([0.0, 0.0, 1.0, 0.0]), torch.zeros(4)
    _, returns = gae(rewards, values, layout, torch.zeros(1), Links(gamma=0.5, lam=1.0))
    torch.testing.assert_close(returns, torch.tensor([0.25, 0.25, 1.0, 0.0]))


@pytest.mark.parametrize("seed", range(10))
def test_any_agents_stream_agrees_with_the_recursion(seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        (draw.randint(0, 3), trajectory, round_, draw.randint(0, 2))
        for trajectory in range(3)
        for round_ in range(draw.randint(1, 3))
        for _ in range(draw.randint(1, 5))
    ]
    agents = [draw.randint(0, 1) for _ in rows]
    layout = branches(rows, agents)
    rewards, values = torch.rand(layout.num_tokens), torch.rand(layout.num_tokens)
    bootstrap, parts = torch.rand(3), [draw.random() for _ in range(6)]
    links = Links(**dict(zip(("gamma", "lam", "gamma_agent", "lam_agent", "gamma_token", "lam_token"), parts)))
    advantages, _ = gae(rewards, values, layout, bootstrap, links)
    for agent in (0, 1):
        own = [row for row, speaker in zip(rows, agents) if speaker == agent]
        tokens = torch.tensor([speaker == agent for row, speaker in zip(rows, agents) for _ in range(row[0])])
        mine, worth = rewards[tokens].tolist(), values[tokens].tolist()
        expected = recursion(own, mine, worth, bootstrap.tolist(), links, shares=False)
        torch.testing.assert_close(advantages[tokens], torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_at_action_level_each_branch_is_one_action() -> None:
    layout = branches([(2, 0, 0, 0), (3, 0, 0, 0), (1, 0, 0, 1)], [0, 0, 0])
    rewards, values = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.5]), torch.tensor([0.2, 9.0, 0.3, 9.0, 9.0, 0.4])
    links = Links(gamma=1.0, lam=1.0, gamma_agent=0.5, lam_agent=0.5)
    advantages, _ = gae(rewards, values, layout, torch.zeros(1), links, action_level=True)
    after = 0.5 * 0.4 + 0.25 * 0.1
    torch.testing.assert_close(
        advantages, torch.tensor([1.0 - 0.2 + after] * 2 + [-0.3 + after] * 3 + [0.1])
    )  # fmt: skip
