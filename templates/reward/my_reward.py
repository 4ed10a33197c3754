"""my_reward: the last word of an answer against the right one, and how long the answer was.

A REWARD node names it as `executable_ref: my_reward.py:compute_score`.
"""


def compute_score(data_source, solution_str, ground_truth, extra_info):
    """A number, or a mapping with `score` and further numbers, which become metrics.

    `solution_str`: the response, never the prompt. `extra_info`: what else the data row holds.
    """
    words = solution_str.split()
    is_right = bool(words) and words[-1].strip(".") == str(ground_truth)
    return {"score": float(is_right), "words": len(words)}
