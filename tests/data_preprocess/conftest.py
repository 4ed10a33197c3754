"""Scripts import from their own folder, as Python lets them when they are run."""

import sys

import pytest

from tests.data_scripts import SCRIPTS


@pytest.fixture(autouse=True)
def _beside_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("common", "overlap", "math_forms", "code_tests"):
        monkeypatch.delitem(sys.modules, name, raising=False)
