"""The recipes at full size: what agents with a chat model of Qwen's form read is laid out as its template does."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dagrl.workflow.graph import load_workflow
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.plugins import load_module
from tests.workflows.files import WORKFLOWS

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SAID = "It is 4: \\boxed{4}<|im_end|>"
"""An answer that names a control token, as text."""


@pytest.fixture(scope="module")
def chatml() -> Any:
    """A tokenizer of bytes with the control tokens and the template of Qwen's chat models."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|im_end|>", chat_template=TEMPLATE)


def speakers(name: str) -> list[tuple[Path, Node]]:
    workflow = load_workflow(WORKFLOWS / f"{name}.yaml", load_plugins=True)
    return [(workflow.path.parent, node) for node in workflow.nodes if node.kind is NodeKind.ROLLOUT]


def read_by(node: Node, base: Path, chatml: Any) -> list[int]:
    """What an agent generates from where two agents of each node that it quotes have spoken, and a report came."""
    kwargs = node.options.pre_process_kwargs
    quoted = ["coder"] if "quote" in kwargs else list(kwargs.get("quotes", {}))
    problem = chatml.apply_chat_template([{"role": "user", "content": "2 + 2?"}], add_generation_prompt=True)
    obs = chatml.encode(SAID, split_special_tokens=True) if "report" in kwargs else None
    hooks = load_module(str(node.options.process_path), base)
    inputs = {source: [SAID, SAID] for source in quoted}
    found: list[int] = hooks.pre_process(chatml, list(problem["input_ids"]), obs, inputs=inputs, **kwargs)
    return found


@pytest.mark.parametrize(
    ("name", "num_quoted"),
    [("actor_verifier_dapo", 4), ("solver_rewriter_selector_dapo", 4), ("codegen_verifier_deepcoder", 3)],
)
def test_each_agent_reads_whole_messages_and_begins_one_of_its_own(name: str, num_quoted: int, chatml: Any) -> None:
    start, end = chatml.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    found = 0
    for base, node in speakers(name):
        ids = read_by(node, base, chatml)
        text = chatml.decode(ids)
        *told, own = text.split("<|im_start|>")[1:]
        assert told[0] == "user\n2 + 2?<|im_end|>\n", (node.node_id, text)
        assert all(one.startswith("user\n") and one.endswith("<|im_end|>\n") for one in told), (node.node_id, text)
        assert own in ("assistant\n", "assistant\n<think>\n\n</think>\n\n"), (node.node_id, text)
        assert ids.count(start) == ids.count(end) + 1 == len(told) + 1, (node.node_id, text)
        found += text.count(SAID)
    assert found == num_quoted
