"""What each agent reads, and what is kept of what it said. Both hooks work on token ids.

dagrl try-hook process.py --workflow workflow.yaml --node writer --row data/train.jsonl:0
"""


def pre_process(tokenizer, prompt_id, obs, *, cue):
    """What the agent generates from: the conversation, what the environment said last, and the agent's cue.

    `prompt_id`: ids of the conversation so far. `obs`: ids of what the environment said, or None.
    """
    said = [] if obs is None else tokenizer.encode(" ", add_special_tokens=False) + obs
    return prompt_id + said + tokenizer.encode(cue, add_special_tokens=False)


def post_process(tokenizer, prompt_id, response_id, *, cue):
    """The conversation that the next agent and the next round get."""
    return prompt_id + tokenizer.encode(cue, add_special_tokens=False) + response_id
