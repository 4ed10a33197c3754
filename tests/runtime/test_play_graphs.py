"""Any play graph: each node speaks once per round, after what it depends on, from what the edges say."""

import hypothesis.strategies as st
from hypothesis import given, settings

from dagrl.environments.runner import EnvRunner
from tests.play_builders import Team, only, play, rollout, workflow


@st.composite
def graphs(draw):
    """Dependencies of up to six nodes, each on earlier ones, and the order in which they stand in the file."""
    count = draw(st.integers(1, 6))
    above = [draw(st.lists(st.integers(0, at - 1), unique=True)) if at else [] for at in range(count)]
    return above, draw(st.permutations(range(count)))


def expected_contexts(above, order, rounds):
    """What each node is given, worked out node by node from the rules."""
    transcripts, contexts, start = {}, {}, "Q"
    say = lambda at: f"[{at}]<|end|>"  # noqa: E731
    last = [at for at in order if not any(at in others for others in above)]
    for round in range(rounds):
        for at in range(len(above)):
            sources = [other for other in order if other in above[at]]
            if not sources:
                context = start
            elif len(sources) == 1:
                context = transcripts[sources[0]]
            else:
                context = start + "".join(say(other) for other in sources)
            contexts[f"n{at}", round] = context
            transcripts[at] = context + say(at)
        start = transcripts[last[0]] if len(last) == 1 else start + "".join(say(other) for other in last)
    return contexts


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(1, 2))
def test_every_graph_is_played_by_its_edges(tmp_path_factory, graph, rounds):
    above, order = graph
    nodes = {at: rollout(f"n{at}", *(f"n{other}" for other in above[at]), group=at) for at in range(len(above))}
    flow = workflow(tmp_path_factory.mktemp("graph"), [nodes[at] for at in order], max_rounds=rounds)
    team = Team(lambda prompt, request: f"[{request.agent_group}]", delay=lambda request: (request.seed % 3) * 0.001)
    trajectory = only(play(flow, team, EnvRunner()))
    seen = {(turn.node_id, turn.round): team.text(turn.agent_group, turn.prompt_ids) for turn in trajectory.turns}
    assert seen == expected_contexts(above, order, rounds)
    for round in range(rounds):
        names = [turn.node_id for turn in trajectory.of_round(round)]
        assert sorted(names) == sorted(f"n{at}" for at in order)
        assert all(names.index(f"n{other}") < names.index(f"n{at}") for at in order for other in above[at])
