"""MyEnv: a guessing game in which an agent is told whether to go up or down."""


class MyEnv:
    """Right when the last agent says the whole number that the problem hides; `num_tries` tries.

    One object is made for each trajectory. Methods may be `async`; `close(self)` may be added and is called at the end.
    """

    def __init__(self, num_tries=3):
        self.left = num_tries

    def reset(self, prompt=None):
        """Called once. Gives a first observation: None, one text, or a list with one for each agent."""
        return "I think of a whole number."

    def step(self, actions, ground_truth):
        """`actions`: response texts of this round, one for each agent. Gives observation, reward, done."""
        self.left -= 1
        guess = actions[-1].strip()
        if guess == str(ground_truth):
            return "right", 1.0, True
        return self._hint(guess, int(ground_truth)), 0.0, self.left == 0

    def _hint(self, guess, number):
        if not guess.lstrip("-").isdigit():
            return "that is no whole number"
        return "higher" if int(guess) < number else "lower"
