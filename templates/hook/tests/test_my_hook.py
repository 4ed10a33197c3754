"""my_hook on a tokenizer of one id for each byte."""

from pathlib import Path

from dagrl.workflow.plugins import load_module

hook = load_module("my_hook.py", Path(__file__).resolve().parents[1])


class Bytes:
    def encode(self, text, add_special_tokens=True):
        return list(text.encode())

    def decode(self, ids, skip_special_tokens=False):
        return bytes(ids).decode()


def test_the_instruction_stands_before_the_prompt_and_the_observation_behind_it():
    assert bytes(hook.pre_process(Bytes(), list(b"1 + 1?"), None, instruction="Do: ")) == b"Do: 1 + 1?"
    assert bytes(hook.pre_process(Bytes(), list(b"1 + 1?"), list(b" wrong"), instruction="")) == b"1 + 1? wrong"


def test_only_the_last_line_of_an_answer_is_handed_on():
    assert bytes(hook.post_process(Bytes(), list(b"1 + 1?"), list(b"let me see\nit is 2\n"))) == b"1 + 1?\nit is 2"
