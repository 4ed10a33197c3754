"""The hooks of workflows/marft, with the tokenizer that the workflow's model has."""

import pytest

from tests.workflows.files import shipped

process, recipe, teaching = map(shipped, ("marft/process.py", "small_model/marft.py", "small_model/teaching.py"))
TOKENIZER = teaching.build_tokenizer(recipe.SYLLABUS.roles, recipe.SYLLABUS.phrases)
PROBLEM = "<|user|>State the final answer to the following arithmetic problem: 7 + 5 - 8 =<|end|>"


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


def text(token_ids: list[int]) -> str:
    return str(TOKENIZER.decode(token_ids))


def reasoner_closes(prompt: str, response: str) -> str:
    return text(process.post_process(TOKENIZER, ids(prompt), ids(response), header="<|reasoner|>"))


def actor_closes(prompt: str, response: str) -> str:
    return text(
        process.post_process(TOKENIZER, ids(prompt), ids(response), header="<|actor|>", forget_from="<|reasoner|>")
    )


def test_the_first_agent_speaks_after_the_problem_and_its_cue() -> None:
    assert text(process.pre_process(TOKENIZER, ids(PROBLEM), None, cue="<|reasoner|>")) == PROBLEM + "<|reasoner|>"


def test_the_verdict_stands_between_transcript_and_cue() -> None:
    given = process.pre_process(TOKENIZER, ids(PROBLEM), ids("The answer is wrong."), cue="<|actor|>")
    assert text(given) == PROBLEM + "The answer is wrong.<|actor|>"


def test_the_reasoners_turn_is_closed_once() -> None:
    whole = PROBLEM + "<|reasoner|>7 + 5 = 12 - 8 = 4<|end|>"
    assert reasoner_closes(PROBLEM, "7 + 5 = 12 - 8 = 4<|end|>") == whole
    assert reasoner_closes(PROBLEM, "7 + 5 = 12 - 8 = 4") == whole


def test_the_actors_answer_replaces_the_working() -> None:
    after = actor_closes(PROBLEM + "<|reasoner|>about 9<|end|>", "\\boxed{9}<|end|>")
    assert after == PROBLEM + "<|actor|>\\boxed{9}<|end|>"


def test_only_the_last_working_is_forgotten_and_none_need_be_there() -> None:
    kept = PROBLEM + "<|reasoner|>about 9<|end|>"
    assert actor_closes(kept + "<|reasoner|>about 8<|end|>", "\\boxed{8}<|end|>") == (
        kept + "<|actor|>\\boxed{8}<|end|>"
    )
    assert actor_closes(PROBLEM, "\\boxed{8}<|end|>") == PROBLEM + "<|actor|>\\boxed{8}<|end|>"


def test_an_empty_response_still_makes_a_closed_turn() -> None:
    assert reasoner_closes(PROBLEM, "") == PROBLEM + "<|reasoner|><|end|>"


def test_what_an_agent_was_given_is_never_changed_in_place() -> None:
    prompt, response = ids(PROBLEM), ids("about 9<|end|>")
    before = (list(prompt), list(response))
    process.pre_process(TOKENIZER, prompt, ids("The answer is wrong."), cue="<|reasoner|>")
    process.post_process(TOKENIZER, prompt, response, header="<|reasoner|>")
    assert (prompt, response) == before


def test_the_chat_templates_cue_is_replaced_by_the_agents_own() -> None:
    given = process.pre_process(
        TOKENIZER, ids(PROBLEM + "<|assistant|>"), None, cue="<|reasoner|>", generation_prompt="<|assistant|>"
    )
    assert text(given) == PROBLEM + "<|reasoner|>"


@pytest.mark.parametrize("sentence", ["7 + 5 = 12 - 8 = 4", "\\boxed{-13}", "Grüße, 漢字 and 1,000.5", "about -7"])
def test_the_tokenizer_writes_any_text(sentence: str) -> None:
    assert text(ids(sentence)) == sentence


def test_the_chat_template_gives_the_layout_of_the_lessons() -> None:
    question = PROBLEM.removeprefix("<|user|>").removesuffix("<|end|>")
    message = [{"role": "user", "content": question}]
    assert TOKENIZER.apply_chat_template(message, add_generation_prompt=True, tokenize=False) == PROBLEM
    assert len(ids(PROBLEM)) == 9
