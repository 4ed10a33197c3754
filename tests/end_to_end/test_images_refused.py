"""Images where nobody can read them: one clear message, no traceback."""

from __future__ import annotations

import pytest

from dagrl.errors import DagrlError
from tests.small_teams import train

SHOWING = """
import numpy as np

class Calling:
    def __init__(self, rounds=1):
        pass

    def reset(self, prompt=None):
        return np.zeros((4, 4, 3), dtype=np.uint8)

    def step(self, actions, ground_truth):
        return None, 0.0, True
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("rollout.env_text=response", "is shown an image, and its model reads text alone"),
        ("rollout.env_text=transcript", "a transcript that environments rewrite holds texts alone"),
    ],
)
def test_an_image_that_nobody_can_read_ends_the_run(tmp_path, option, message):
    with pytest.raises(DagrlError, match=message):
        train(tmp_path, option, files={"environment.py": SHOWING})
