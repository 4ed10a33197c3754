"""GAE through all agents and for each by itself, against an O(n^2) definition and numbers worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dagrl.algorithms.gae import gae, marft_gae
from dagrl.algorithms.layout import TurnLayout
from dagrl.algorithms.links import Links
from dagrl.errors import DagrlError

Row = tuple[int, int, int, int]
"""response length, trajectory, round, agent group"""


def layout_of(rows: list[Row]) -> TurnLayout:
    columns = torch.tensor(rows, dtype=torch.int64).reshape(-1, 4).T.contiguous()
    return TurnLayout(response_lens=columns[0], trajectory=columns[1], round=columns[2], agent_group=columns[3])


# --- The definition: every advantage is a sum over all later tokens of its stream.


def tokens_by_stream(rows: list[Row], chained: bool) -> list[list[tuple[int, Row]]]:
    """Stream position and row of the tokens of each trajectory, or of each agent in each trajectory."""
    streams: dict[object, list[tuple[int, Row]]] = {}
    position = 0
    for row in rows:
        length, trajectory, _, agent = row
        for _ in range(length):
            streams.setdefault(trajectory if chained else (trajectory, agent), []).append((position, row))
            position += 1
    return list(streams.values())


def link_after(here: tuple[int, Row], there: tuple[int, Row], last_of_turn: set[int], links: Links):
    """Discount and lambda between two neighbouring tokens of a stream."""
    if here[0] not in last_of_turn:
        return links.gamma_token, links.lam_token
    if here[1][2] == there[1][2]:
        return links.gamma_agent, links.lam_agent
    return links.gamma, links.lam


def definition(
    rows: list[Row],
    rewards: list[float],
    values: list[float],
    bootstrap: list[float],
    links: Links,
    chained: bool,
) -> list[float]:
    last_of_turn, end = set(), 0
    for row in rows:
        end += row[0]
        last_of_turn.add(end - 1)
    advantages = [0.0] * len(values)
    for stream in tokens_by_stream(rows, chained):
        deltas, decays = [], []
        for i, (position, row) in enumerate(stream):
            if i + 1 < len(stream):
                gamma, lam = link_after(stream[i], stream[i + 1], last_of_turn, links)
                next_value = values[stream[i + 1][0]]
            else:
                gamma, lam, next_value = links.gamma, 0.0, bootstrap[row[1]]
            deltas.append(rewards[position] + gamma * next_value - values[position])
            decays.append(gamma * lam)
        for i, (position, _) in enumerate(stream):
            factor = 1.0
            for j in range(i, len(stream)):
                advantages[position] += factor * deltas[j]
                factor *= decays[j]
    return advantages


def definition_of_actions(
    rows: list[Row],
    rewards: list[float],
    values: list[float],
    bootstrap: list[float],
    links: Links,
    chained: bool,
) -> list[float]:
    """The definition on one token for each response, copied to the response's tokens."""
    starts = [sum(row[0] for row in rows[:i]) for i in range(len(rows))]
    spoken = [(row, start) for row, start in zip(rows, starts) if row[0] > 0]
    of_actions = definition(
        [(1, *row[1:]) for row, _ in spoken],
        [sum(rewards[start : start + row[0]]) for row, start in spoken],
        [values[start] for _, start in spoken],
        bootstrap,
        links,
        chained,
    )
    return [advantage for advantage, (row, _) in zip(of_actions, spoken) for _ in range(row[0])]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], Tensor, Tensor, Tensor, Links]:
    """Ragged batches of 1, 2, 3 or 5 agents with silent agents, empty turns, and truncated trajectories."""
    num_agents = draw(st.sampled_from([1, 2, 3, 5]))
    num_trajectories = draw(st.integers(1, 4))
    rows = []
    for trajectory in range(num_trajectories):
        for round_ in range(draw(st.integers(1, 3))):
            lens = draw(st.lists(st.integers(0, 4), min_size=num_agents, max_size=num_agents))
            speakers = [a for a in range(num_agents) if draw(st.integers(0, 4)) > 0] or [0]
            rows += [(lens[agent], trajectory, round_, agent) for agent in speakers]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    num_tokens = sum(row[0] for row in rows)
    rewards, values = torch.randn(2, num_tokens, generator=generator)
    truncated = torch.rand(num_trajectories, generator=generator) < 0.5
    bootstrap = torch.randn(num_trajectories, generator=generator) * truncated
    factors = draw(st.lists(st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0]), min_size=6, max_size=6))
    names = ("gamma", "lam", "gamma_agent", "lam_agent", "gamma_token", "lam_token")
    return rows, rewards, values, bootstrap, Links(**dict(zip(names, factors)))


@pytest.mark.parametrize(("estimate", "chained"), [(marft_gae, True), (gae, False)])
@pytest.mark.parametrize(("action_level", "slow_way"), [(False, definition), (True, definition_of_actions)])
@given(batch=batches())
@settings(max_examples=60, deadline=None)
def test_equals_the_definition_on_ragged_batches(
    estimate: Callable[..., tuple[Tensor, Tensor]],
    chained: bool,
    action_level: bool,
    slow_way: Callable[..., list[float]],
    batch: tuple[list[Row], Tensor, Tensor, Tensor, Links],
) -> None:
    rows, rewards, values, bootstrap, links = batch
    advantages, returns = estimate(rewards, values, layout_of(rows), bootstrap, links, action_level=action_level)
    expected = slow_way(rows, rewards.tolist(), values.tolist(), bootstrap.tolist(), links, chained)
    assert advantages.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    if not action_level:
        assert returns.tolist() == pytest.approx((torch.tensor(expected) + values).tolist(), rel=1e-5, abs=1e-6)
    assert advantages.dtype == returns.dtype == torch.float32


# --- Golden numbers of reference/field.md 5.6.

G1_VALUES = torch.tensor([0.2, 0.3, 0.5, 0.4, 0.6, 0.7])
G1_REWARDS = torch.tensor([0.0, 0.0, 0.1, 0.0, 0.0, 1.0])
G1_ROWS = [(1, 0, round_, agent) for round_ in range(2) for agent in range(3)]


@pytest.mark.parametrize("action_level", [False, True])
@pytest.mark.parametrize(
    ("gamma", "lam", "bootstrap", "expected"),
    [
        (0.99, 0.95, 0.0, [0.731772, 0.674930, 0.510292, 0.546829, 0.375150, 0.300000]),
        (1.0, 1.0, 0.0, [0.9, 0.8, 0.6, 0.6, 0.4, 0.3]),
        (0.99, 0.95, 0.8, [1.314571, 1.294600, 1.169165, 1.247384, 1.120026, 1.092000]),
    ],
)
def test_golden_g1_three_agents_two_rounds(
    gamma: float, lam: float, bootstrap: float, expected: list[float], action_level: bool
) -> None:
    advantages, _ = marft_gae(
        G1_REWARDS,
        G1_VALUES,
        layout_of(G1_ROWS),
        torch.tensor([bootstrap]),
        Links.uniform(gamma, lam),
        action_level=action_level,
    )
    assert advantages.tolist() == pytest.approx(expected, abs=1e-6)


def test_golden_g2_two_agents_with_tokens() -> None:
    advantages, _ = marft_gae(
        torch.tensor([0.0, 0.0, 0.2, 0.0, 1.0]),
        torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]),
        layout_of([(3, 0, 0, 0), (2, 0, 0, 1)]),
        torch.zeros(1),
        Links.uniform(1.0, 0.95),
    )
    assert advantages.tolist() == pytest.approx([0.958741, 0.903937, 0.846250, 0.575, 0.5], abs=1e-6)


# --- Hand cases.


@pytest.mark.parametrize("num_agents", [1, 2, 3])
@pytest.mark.parametrize("num_rounds", [1, 3])
def test_undiscounted_reward_of_one_gives_every_token_return_one(num_agents: int, num_rounds: int) -> None:
    rows = [(2 + agent, 0, round_, agent) for round_ in range(num_rounds) for agent in range(num_agents)]
    layout = layout_of(rows)
    values = torch.rand(layout.num_tokens, generator=torch.Generator().manual_seed(1))
    rewards = torch.zeros(layout.num_tokens)
    rewards[-1] = 1.0
    advantages, returns = marft_gae(rewards, values, layout, torch.zeros(1), Links.uniform(1.0, 1.0))
    assert returns.tolist() == pytest.approx([1.0] * layout.num_tokens, abs=1e-6)
    assert advantages.tolist() == pytest.approx((1.0 - values).tolist(), abs=1e-6)


def test_chained_reward_reaches_the_first_agent_and_unchained_does_not() -> None:
    layout = layout_of([(2, 0, 0, 0), (2, 0, 0, 1)])
    inputs = (torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.zeros(4), layout, torch.zeros(1))
    assert marft_gae(*inputs, Links(gamma=1.0, lam=1.0))[0].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert gae(*inputs, Links(gamma=1.0, lam=1.0))[0].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_each_kind_of_link_has_its_own_discount() -> None:
    rows = [(2, 0, 0, 0), (1, 0, 0, 1), (1, 0, 1, 0)]
    links = Links(gamma=0.5, lam=1.0, gamma_agent=0.1, lam_agent=1.0, gamma_token=0.9, lam_token=1.0)
    rewards = torch.tensor([0.0, 0.0, 0.0, 1.0])
    _, returns = marft_gae(rewards, torch.zeros(4), layout_of(rows), torch.zeros(1), links)
    assert returns.tolist() == pytest.approx([0.9 * 0.1 * 0.5, 0.1 * 0.5, 0.5, 1.0])


def test_same_agent_twice_in_a_round_is_an_agent_link_of_its_own_stream() -> None:
    rows = [(1, 0, 0, 0), (1, 0, 0, 1), (1, 0, 0, 0), (1, 0, 1, 0)]
    links = Links(gamma=0.5, lam=1.0, gamma_agent=0.1, lam_agent=1.0)
    rewards = torch.tensor([0.0, 0.0, 0.0, 1.0])
    _, returns = gae(rewards, torch.zeros(4), layout_of(rows), torch.zeros(1), links)
    assert returns.tolist() == pytest.approx([0.1 * 0.5, 0.0, 0.5, 1.0])


def test_nothing_flows_between_trajectories() -> None:
    layout = layout_of([(2, 0, 0, 0), (2, 1, 0, 0)])
    rewards = torch.tensor([0.0, 0.0, 0.0, 1.0])
    advantages, _ = marft_gae(rewards, torch.zeros(4), layout, torch.zeros(2), Links(gamma=1.0, lam=1.0))
    assert advantages.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_reward_at_every_token_is_counted() -> None:
    rewards = torch.tensor([-0.1, -0.2, -0.3, 1.0])
    layout = layout_of([(2, 0, 0, 0), (2, 0, 0, 1)])
    _, returns = marft_gae(rewards, torch.zeros(4), layout, torch.zeros(1), Links(gamma=1.0, lam=1.0))
    assert returns.tolist() == pytest.approx([0.4, 0.5, 0.7, 1.0])


def test_truncated_end_bootstraps_with_the_round_discount_past_empty_turns() -> None:
    layout = layout_of([(1, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0)])
    links = Links(gamma=0.5, lam=1.0, gamma_agent=0.1)
    _, returns = marft_gae(torch.zeros(1), torch.tensor([0.3]), layout, torch.tensor([0.8]), links)
    assert returns.tolist() == pytest.approx([0.4])


@pytest.mark.parametrize("estimate", [marft_gae, gae])
@pytest.mark.parametrize("action_level", [False, True])
def test_trajectories_of_empty_turns_have_no_tokens(
    estimate: Callable[..., tuple[Tensor, Tensor]], action_level: bool
) -> None:
    links = Links(gamma=1.0, lam=1.0)
    layout = layout_of([(0, 0, 0, 0), (1, 1, 0, 0), (0, 2, 0, 1), (0, 2, 1, 0)])
    advantages, _ = estimate(torch.ones(1), torch.zeros(1), layout, torch.zeros(3), links, action_level=action_level)
    assert advantages.tolist() == [1.0]
    for rows in ([], [(0, 0, 0, 0)]):
        empty = layout_of(rows)
        nothing = estimate(
            torch.zeros(0), torch.zeros(0), empty, torch.zeros(len(rows)), links, action_level=action_level
        )
        assert [column.shape for column in nothing] == [(0,), (0,)]


def test_long_trajectories_keep_float32_accuracy() -> None:
    num_tokens = 50_000
    layout = layout_of([(num_tokens, 0, 0, 0)])
    rewards = torch.full((num_tokens,), 0.1)
    _, returns = marft_gae(rewards, torch.zeros(num_tokens), layout, torch.zeros(1), Links(gamma=1.0, lam=1.0))
    reward = float(rewards[0])
    assert float(returns[0]) == pytest.approx(num_tokens * reward, rel=1e-7)
    assert float(returns[num_tokens // 2]) == pytest.approx(num_tokens // 2 * reward, rel=1e-7)


# --- Faults.


@pytest.mark.parametrize(
    ("num_rewards", "num_values", "num_bootstrap", "words"),
    [(1, 2, 1, "rewards"), (2, 3, 1, "values"), (2, 2, 2, "bootstrap")],
)
def test_wrong_lengths_are_refused_by_name(num_rewards: int, num_values: int, num_bootstrap: int, words: str) -> None:
    inputs = torch.zeros(num_rewards), torch.zeros(num_values)
    for estimate in (marft_gae, gae):
        with pytest.raises(DagrlError, match=words):
            estimate(*inputs, layout_of([(2, 0, 0, 0)]), torch.zeros(num_bootstrap), Links(gamma=1.0, lam=1.0))


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_discount_outside_zero_to_one_is_refused(bad: float) -> None:
    with pytest.raises(DagrlError, match="lam_agent"):
        Links(gamma=1.0, lam=1.0, lam_agent=bad)
