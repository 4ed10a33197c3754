"""The model of workflows/marft.yaml: what its lessons say, whose problems they are, that it is made the same twice."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.workflows.files import WORKFLOWS, shipped

recipe, sums = shipped("small_model/marft.py"), shipped("small_model/sums.py")


def held_out_questions() -> set[str]:
    return {row["prompt"][0]["content"] for row in pq.read_table(WORKFLOWS / "marft/data/test.parquet").to_pylist()}


def test_every_held_out_question_is_one_that_lessons_keep_off() -> None:
    assert all(sums.is_held_out(question) for question in held_out_questions())


def test_no_lesson_shows_a_held_out_problem() -> None:
    held_out, rng = held_out_questions(), random.Random(0)
    for _ in range(2000):
        assert f"{sums.QUESTION}{sums.draw_problem(rng, 3, 5)} =" not in held_out


@pytest.mark.parametrize(
    ("problem", "work"),
    [("7 + 5 - 8", "7 + 5 = 12 - 8 = 4"), ("0 - 9 - 9", "0 - 9 = -9 - 9 = -18"), ("3 - 3", "3 - 3 = 0")],
)
def test_work_without_slips_is_right(problem: str, work: str) -> None:
    assert sums.worked_sum(problem, random.Random(0), 0.0) == work


def test_a_slip_is_carried_on() -> None:
    work = sums.worked_sum("1 + 1 + 1", random.Random(0), 1.0)
    first, second = (int(part.split(" ")[0]) for part in work.split(" = ")[1:])
    assert abs(first - 2) in (1, 2, 10) and abs(second - first - 1) in (1, 2, 10)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("7 + 5 = 12 - 8 = 4", "4"),
        ("1 - 9 = -8", "-8"),
        ("about -3", "-3"),
        ("It is the sum of 1 + 2", None),
        ("", None),
    ],
)
def test_the_number_a_reasoner_arrived_at(said: str, number: str | None) -> None:
    assert recipe.last_total(said) == number


def test_demonstrators_come_in_the_stated_shares() -> None:
    rng = random.Random(0)
    said = [recipe.reasoner_says("7 + 5 - 8", rng) for _ in range(4000)]
    acted = [recipe.actor_says("7 + 5 - 8", "about 99", rng) for _ in range(4000)]
    shares = [
        sum(" = " in text for text in said),
        sum(text.startswith("about ") for text in said),
        acted.count("\\boxed{99}"),
        acted.count("\\boxed{8}"),
        acted.count("The answer is 99"),
    ]
    # Five standard deviations of a share of 4,000 draws are 0.04.
    assert [share / 4000 for share in shares] == pytest.approx([0.3, 0.4, 0.3, 0.4, 0.3], abs=0.04)


def test_the_recipe_makes_a_folder_that_loads_and_the_same_one_twice(tmp_path: Path) -> None:
    told: list[float] = []
    for name in ("a", "b"):
        options = {"lesson_steps": 2, "demo_steps": 1, "batch_size": 2}
        recipe.make(tmp_path / name, lambda share, _: told.append(share), **options)
    first, second = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("a", "b"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert told[:4] == [0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert tokenizer.eos_token == "<|end|>" and tokenizer.pad_token == "<|pad|>"
    assert tokenizer.decode(tokenizer.encode("7 + 5 =", add_special_tokens=False)) == "7 + 5 ="


def test_making_leaves_torchs_random_state_and_threads_alone(tmp_path: Path) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    recipe.make(tmp_path, lambda share, doing: None, lesson_steps=1, demo_steps=1, batch_size=2)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
