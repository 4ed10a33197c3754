"""Usage: what nodes have used, counted where it is used, so that nothing is missed that a fault throws away."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counts since the last `take`."""

    prompt_tokens: Counter[int] = field(default_factory=Counter)
    """By agent group: tokens that were generated from."""
    generated_tokens: Counter[int] = field(default_factory=Counter)
    """By agent group, those of trajectories that failed later included."""
    env_calls: int = 0
    """Calls of `reset` and `step`, of every environment object."""
    hook_calls: int = 0
    """Calls of `pre_process`, `post_process` and `when`."""
    judge_calls: int = 0
    """Calls of the function of a REWARD node."""
    lost_branches: int = 0
    """Branches of `num_parallel` that failed where others of their node spoke."""

    def add(self, other: Usage) -> None:
        """Counts what `other` did too."""
        self.prompt_tokens.update(other.prompt_tokens)
        self.generated_tokens.update(other.generated_tokens)
        self.env_calls += other.env_calls
        self.hook_calls += other.hook_calls
        self.judge_calls += other.judge_calls
        self.lost_branches += other.lost_branches

    def take(self) -> Usage:
        """What was counted, and begins to count anew."""
        taken = Usage(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            env_calls=self.env_calls,
            hook_calls=self.hook_calls,
            judge_calls=self.judge_calls,
            lost_branches=self.lost_branches,
        )
        self.prompt_tokens, self.generated_tokens = Counter(), Counter()
        self.env_calls = self.hook_calls = self.judge_calls = self.lost_branches = 0
        return taken
