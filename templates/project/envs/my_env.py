"""The environment of the team: one object for each conversation.

dagrl check-env envs/my_env.py:MyEnv --row data/train.jsonl:0 --action x --action b
dagrl play-env envs/my_env.py:MyEnv --row data/train.jsonl:0 --agents 2
"""


class MyEnv:
    """Right when the Writer says the letter that was asked for; `num_tries` tries."""

    def __init__(self, num_tries=2):
        self.left = num_tries

    def reset(self, prompt=None):
        """Called once. May return a first observation: one text, or a list with one for each agent."""

    def step(self, actions, ground_truth):
        """`actions`: what each agent said this round, in agent order. Gives observation, reward, done."""
        self.left -= 1
        is_right = actions[-1].strip() == ground_truth
        return ("right" if is_right else "wrong"), float(is_right), is_right or self.left == 0
