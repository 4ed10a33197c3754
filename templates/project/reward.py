"""How an answer is scored. The reward node of workflow.yaml names `compute_score`."""


def compute_score(data_source, solution_str, ground_truth, extra_info):
    """1.0 for the right letter, else 0.0.

    `solution_str` is the last agent's response, never the prompt. A mapping with `score` and further numbers may be
    given back as well; the further numbers become metrics.
    """
    return float(solution_str.strip() == ground_truth)
