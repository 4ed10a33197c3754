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


@pytest.mark.parametrize("name", ["actor_verifier_dapo", "solver_rewriter_selector_dapo"])
def test_each_agent_reads_whole_messages_and_begins_one_of_its_own(name: str, chatml: Any) -> None:
    start, end = chatml.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    problem = chatml.apply_chat_template([{"role": "user", "content": "2 + 2?"}], add_generation_prompt=True)
    for base, node in speakers(name):
        hooks = load_module(str(node.options.process_path), base)
        kwargs = node.options.pre_process_kwargs
        quoted = kwargs.get("quotes", {})
        inputs = {source: [SAID, SAID] for source in quoted}
        ids = hooks.pre_process(chatml, list(problem["input_ids"]), None, inputs=inputs, **kwargs)
        text = chatml.decode(ids)
        assert text.startswith("<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>user\n"), (node.node_id, text)
        assert text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"), (node.node_id, text)
        assert ids.count(start) == ids.count(end) + 1 == 3 + 2 * len(quoted), (node.node_id, text)
        assert text.count("<|im_start|>assistant") == 1 and text.count(SAID) == 2 * len(quoted)
