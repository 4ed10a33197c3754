"""Nodes and user code under pdb: a stop where a node begins and where the user's own functions do, a look at faults."""

from __future__ import annotations

import bdb
import inspect
import pdb  # noqa: T100 - what is asked for
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dagrl.errors import DagrlError, origin_of
from dagrl.experience import Experience
from dagrl.nodes.base import LearnNode
from dagrl.types import Metrics


class Debugged:
    """A learn node that pdb stops in before its first line; `own` are functions of the user's to stop in too."""

    def __init__(self, node: LearnNode, own: Sequence[Any]) -> None:
        self.node = node.node
        self._inner = node
        self._own = own

    def run(self, experience: Experience, step: int) -> Metrics:
        debugger = pdb.Pdb(nosigint=True)
        for function in self._own:
            code = inspect.unwrap(function).__code__
            debugger.set_break(code.co_filename, code.co_firstlineno, funcname=code.co_name)
        metrics = debugger.runcall(self._inner.run, experience, step)
        assert metrics is not None, "pdb gives back what the node gave"
        return metrics


@contextmanager
def post_mortem() -> Iterator[None]:
    """Where the block fails, pdb looks at the frame that raised: the user's, if it was user code."""
    try:
        yield
    except Exception as error:
        origin = origin_of(error)
        if isinstance(origin, bdb.BdbQuit):
            raise DagrlError("the debugger was left before all was done", how="`c` lets it go on") from None
        traceback.print_exception(origin)
        pdb.post_mortem(origin.__traceback__)
        raise
