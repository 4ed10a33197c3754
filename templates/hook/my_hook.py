"""my_hook: an instruction before the prompt, and only the last line of an answer handed on.

Both functions work on token ids; either may be left out. A node names this file as `agent_options.process_path`.
"""


def pre_process(tokenizer, prompt_id, obs, *, instruction="Think step by step.\n"):
    """The ids that the agent generates from.

    `prompt_id`: ids of the problem, or of the conversation so far. `obs`: ids of what the environment said, or None. A
    parameter named `inputs` would get `{node_id: [response text, ...]}`, one named `trajectory` the trajectory so far.
    """
    said = [] if obs is None else obs
    return tokenizer.encode(instruction, add_special_tokens=False) + prompt_id + said


def post_process(tokenizer, prompt_id, response_id):
    """The conversation that the next agent and the next round get."""
    last_line = tokenizer.decode(response_id, skip_special_tokens=True).strip().rpartition("\n")[2]
    return prompt_id + tokenizer.encode("\n" + last_line, add_special_tokens=False)
