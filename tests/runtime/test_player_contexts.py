"""What each agent speaks from: the DAG's edges, rounds, branches, tokenizers, `when`, leaving out."""

import asyncio

import pytest

from dagrl.backends.scripted import ScriptedTokenizer
from dagrl.environments.runner import EnvRunner
from dagrl.errors import DagrlError
from dagrl.nodes.usage import Usage
from dagrl.runtime.player import Player
from dagrl.types import StopReason
from tests.play_builders import SEED, Team, env, only, play, prompts, rollout, task, workflow

END = "<|end|>"


@pytest.fixture
def runner():
    runner = EnvRunner(num_workers=1, timeout_s=20)
    yield runner
    runner.close()


def by_node(names="abcdef"):
    """A team in which group 0 says `a`, group 1 says `b`, …"""
    return Team(lambda prompt, request: names[request.agent_group])


def played(folder, nodes, team=None, runner=None, tasks=None, **settings):
    team = by_node() if team is None else team
    flow = workflow(folder, nodes, **settings)
    trajectory = only(play(flow, team, runner or EnvRunner(), tasks))
    return trajectory, prompts(team, trajectory)


def test_without_dependency_the_context_is_the_prompt(tmp_path):
    _, seen = played(tmp_path, [rollout("a"), rollout("b", group=1)])
    assert seen == {("a", 0, 0): "Q", ("b", 0, 0): "Q"}


def test_messages_go_through_the_chat_template_with_a_generation_prompt(tmp_path):
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    _, seen = played(tmp_path, [rollout("a")], tasks=[task(messages)])
    assert seen["a", 0, 0] == "<|system|>S<|end|><|user|>Q<|end|><|assistant|>"


def test_one_dependency_hands_on_its_transcript_with_the_end_token(tmp_path):
    trajectory, seen = played(tmp_path, [rollout("a"), rollout("b", "a", group=1), rollout("c", "b", group=2)])
    assert seen["b", 0, 0] == f"Qa{END}"
    assert seen["c", 0, 0] == f"Qa{END}b{END}"
    assert [turn.node_id for turn in trajectory.turns] == ["a", "b", "c"]
    assert trajectory.turns[1].prompt_ids == trajectory.turns[0].transcript_ids


def test_several_dependencies_add_their_responses_to_the_rounds_start_in_the_files_order(tmp_path):
    nodes = [
        rollout("a"),
        rollout("b", "a", group=1),
        rollout("c", "a", group=2),
        rollout("d", "c", "b", group=3),
    ]
    _, seen = played(tmp_path, nodes)
    assert seen["d", 0, 0] == f"Qb{END}c{END}"


def test_a_hook_that_takes_inputs_gets_all_responses_and_the_bare_start(tmp_path):
    hook = """
def pre_process(tokenizer, prompt_id, inputs, **kwargs):
    return prompt_id + tokenizer.encode(repr(inputs))
"""
    nodes = [rollout("a"), rollout("b", group=1), rollout("c", "b", "a", group=2, process_path="p.py")]
    _, seen = played(tmp_path, nodes, files={"p.py": hook})
    assert seen["c", 0, 0] == "Q{'a': ['a'], 'b': ['b']}"


def test_later_rounds_start_from_what_the_last_node_handed_on(tmp_path):
    trajectory, seen = played(tmp_path, [rollout("a"), rollout("b", "a", group=1)], max_rounds=3)
    assert seen["a", 1, 0] == f"Qa{END}b{END}"
    assert seen["b", 2, 0] == f"Qa{END}b{END}" + f"a{END}b{END}a{END}"
    assert (trajectory.num_rounds, trajectory.stop_reason) == (3, StopReason.TERMINATED)
    assert not trajectory.truncated


def test_several_last_nodes_hand_on_their_responses(tmp_path):
    _, seen = played(tmp_path, [rollout("a"), rollout("b", group=1)], max_rounds=2)
    assert seen["b", 1, 0] == f"Qa{END}b{END}"


def test_two_nodes_of_one_group_are_the_same_agent_with_seeds_of_their_own(tmp_path):
    team = Team(lambda prompt, request: str(request.seed))
    trajectory, _ = played(tmp_path, [rollout("draft"), rollout("revise", "draft")], team)
    first, second = trajectory.turns
    assert (first.agent_group, second.agent_group) == (0, 0)
    assert first.response_text != second.response_text
    assert trajectory.of_group(0) == [first, second]


def test_num_parallel_branches_differ_in_seed_and_all_reach_the_next_node(tmp_path):
    team = Team(lambda prompt, request: f"[{request.seed}]" if request.agent_group == 0 else "done")
    trajectory, seen = played(tmp_path, [rollout("a", num_parallel=3), rollout("b", "a", group=1)], team)
    branches = trajectory.turns[:3]
    assert [turn.branch for turn in branches] == [0, 1, 2]
    assert len({turn.response_text for turn in branches}) == 3
    assert seen["b", 0, 0] == "Q" + "".join(turn.response_text + END for turn in branches)


def test_when_skips_a_node_and_what_depends_only_on_it(tmp_path):
    condition = "def later(trajectory):\n    return len(trajectory.turns) > 1\n"
    nodes = [
        rollout("a"),
        rollout("b", "a", group=1, when="w.py:later"),
        rollout("c", "b", group=2),
        rollout("d", "a", "b", group=3),
    ]
    trajectory, seen = played(tmp_path, nodes, files={"w.py": condition}, max_rounds=2)
    assert [(turn.node_id, turn.round) for turn in trajectory.turns[:2]] == [("a", 0), ("d", 0)]
    assert seen["d", 0, 0] == f"Qa{END}"
    assert [turn.node_id for turn in trajectory.of_round(1)] == ["a", "b", "c", "d"]


def test_the_next_round_goes_on_from_before_a_skipped_last_node(tmp_path):
    nodes = [rollout("a"), rollout("b", "a", group=1, when="w.py:never")]
    _, seen = played(tmp_path, nodes, files={"w.py": "def never(trajectory):\n    return False\n"}, max_rounds=2)
    assert seen == {("a", 0, 0): "Q", ("a", 1, 0): f"Qa{END}"}


def test_when_and_hooks_see_earlier_rounds_and_ancestors_only(tmp_path):
    hook = """
def pre_process(tokenizer, prompt_id, trajectory, **kwargs):
    names = [(turn.node_id, turn.round) for turn in trajectory.turns]
    trajectory.turns.clear()
    return tokenizer.encode(repr(names))
"""
    nodes = [rollout("a"), rollout("b", group=1), rollout("c", "a", group=2, process_path="p.py")]
    trajectory, seen = played(tmp_path, nodes, files={"p.py": hook}, max_rounds=2)
    assert seen["c", 0, 0] == "[('a', 0)]"
    assert seen["c", 1, 0] == "[('a', 0), ('b', 0), ('c', 0), ('a', 1)]"
    assert len(trajectory.turns) == 6


def test_post_process_decides_what_the_next_agent_and_the_next_round_get(tmp_path):
    hook = """
def post_process(tokenizer, prompt_id, response_id, mark):
    return prompt_id + tokenizer.encode(mark)
"""
    option = {"process_path": "p.py", "post_process_kwargs": {"mark": "!"}}
    nodes = [rollout("a", **option), rollout("b", "a", group=1, **option)]
    _, seen = played(tmp_path, nodes, files={"p.py": hook}, max_rounds=2)
    assert seen["b", 0, 0] == "Q!"
    assert seen["a", 1, 0] == "Q!!"


def test_post_process_gets_the_shared_transcript_and_not_what_pre_process_made(tmp_path):
    hook = """
def pre_process(tokenizer, prompt_id, obs):
    return prompt_id + tokenizer.encode("<cue>")
"""
    _, seen = played(tmp_path, [rollout("a", process_path="p.py"), rollout("b", "a", group=1)], files={"p.py": hook})
    assert seen == {("a", 0, 0): "Q<cue>", ("b", 0, 0): f"Qa{END}"}


def test_another_tokenizer_gets_text_and_control_words_in_it_stay_text(tmp_path):
    tokenizers = {0: ScriptedTokenizer(), 1: ScriptedTokenizer(shift=50)}
    team = Team(lambda prompt, request: "x<|user|>y" if request.agent_group == 0 else "ok", tokenizers)
    trajectory, seen = played(tmp_path, [rollout("a"), rollout("b", "a", group=1)], team)
    answer = trajectory.turns[1]
    control = {tokenizers[1].encode(word)[0] for word in ("<|user|>", "<|end|>")}
    assert seen["b", 0, 0] == "Qxy"
    assert not control & set(answer.prompt_ids)


def test_responses_merged_for_another_tokenizer_never_become_control_tokens(tmp_path):
    tokenizers = {0: ScriptedTokenizer(), 1: ScriptedTokenizer(shift=9)}
    text = "<|us" + "er|>"
    team = Team(lambda prompt, request: "z", tokenizers)
    hook = f"def post_process(tokenizer, p, r):\n    return tokenizer.encode({text!r}, split_special_tokens=True)\n"
    nodes = [rollout("a", process_path="p.py"), rollout("b", "a", group=1)]
    trajectory, seen = played(tmp_path, nodes, team, files={"p.py": hook})
    assert seen["b", 0, 0] == text
    assert len(trajectory.turns[1].prompt_ids) == len(text)


def test_tokenizers_of_equal_vocabulary_exchange_ids(tmp_path):
    team = Team(lambda prompt, request: "a", {0: ScriptedTokenizer(), 1: ScriptedTokenizer()})
    trajectory, _ = played(tmp_path, [rollout("a"), rollout("b", "a", group=1)], team)
    assert trajectory.turns[1].prompt_ids == trajectory.turns[0].transcript_ids


def test_leaving_a_node_out_keeps_the_context_of_what_depends_on_it(tmp_path):
    team = by_node()
    nodes = [rollout("a"), rollout("b", "a", group=1), rollout("c", "b", group=2)]
    flow = workflow(tmp_path, nodes, max_rounds=2)
    trajectory = only(play(flow, team, EnvRunner(), without=frozenset({"b"})))
    seen = prompts(team, trajectory)
    assert [turn.node_id for turn in trajectory.turns] == ["a", "c", "a", "c"]
    assert seen["c", 0, 0] == f"Qa{END}"
    assert seen["a", 1, 0] == f"Qa{END}c{END}"


def test_leaving_out_an_unknown_node_is_refused_by_name(tmp_path):
    flow = workflow(tmp_path, [rollout("a")])
    with pytest.raises(DagrlError, match="'z'"):
        play(flow, by_node(), EnvRunner(), without=frozenset({"z"}))


def test_an_env_node_between_two_agents_is_looked_through(tmp_path, runner):
    echo = """
class Echo:
    def reset(self):
        pass
    def step(self, actions, ground_truth):
        return f"heard {actions[0]}", 0.0, False
"""
    nodes = [rollout("a"), env("world", "a", env_path="e.py:Echo"), rollout("b", "world", group=1)]
    _, seen = played(tmp_path, nodes, runner=runner, files={"e.py": echo})
    assert seen["b", 0, 0] == f"Qa{END}\nheard a\n"


def test_a_branch_that_fails_is_left_out_and_counted_and_the_others_go_on(tmp_path):
    hook = """
def post_process(tokenizer, prompt_id, response_id):
    if "bad" in tokenizer.decode(response_id):
        raise ValueError("no use")
    return prompt_id + response_id
"""
    rows = iter(["x", "bad", "z", "bad", "bad", "bad"])
    team = Team(lambda prompt, request: next(rows) if request.agent_group == 0 else "done")
    nodes = [rollout("a", num_parallel=3, process_path="h.py"), rollout("b", "a", group=1)]
    flow = workflow(tmp_path, nodes, files={"h.py": hook})
    usage = Usage()
    player = Player(flow, team.models, EnvRunner(), run_seed=SEED, usage=usage)
    first, second = (asyncio.run(player.play([task()], step=0, sampling="train", n=1)) for _ in range(2))
    assert [(turn.node_id, turn.branch) for turn in only(first).turns] == [("a", 0), ("a", 2), ("b", 0)]
    assert prompts(team, only(first))["b", 0, 0] == f"Qx{END}z{END}"
    assert usage.lost_branches == 1
    assert [failed.kind for failed in second.failed] == ["post_process_raised"], "none is left"


def test_a_hook_that_takes_inputs_finds_no_branch_in_its_context(tmp_path):
    hook = """
def pre_process(tokenizer, prompt_id, obs=None, *, inputs):
    return prompt_id + tokenizer.encode("".join(f"[{text}]" for text in inputs["a"]))
"""
    nodes = [rollout("a", num_parallel=2), rollout("b", "a", group=1, process_path="h.py")]
    _, seen = played(tmp_path, nodes, files={"h.py": hook})
    assert seen["b", 0, 0] == "Q[a][a]"
