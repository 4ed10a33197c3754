"""Between numpy and pyarrow by their buffers alone: pyarrow's own conversions load pandas where it is installed, which
takes longer than to read a file of trajectories and draw it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def numbers(column: pa.ChunkedArray) -> Any:
    """A column of numbers without nulls as an array of numpy."""
    return np.from_dlpack(column.combine_chunks())


def mask(column: pa.ChunkedArray) -> Any:
    """A column of booleans as an array of numpy; null is false."""
    found = np.zeros(len(column), bool)
    found[np.from_dlpack(pc.indices_nonzero(column))] = True
    return found


def taken(table: pa.Table, places: Any) -> pa.Table:
    """The rows at `places`, an array of ints."""
    content = np.ascontiguousarray(places, np.int64)
    return table.take(pa.Array.from_buffers(pa.int64(), len(content), [None, pa.py_buffer(content)]))


def is_text(column: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    """Where a column of texts is `text`; false where it is null."""
    content = text.encode()
    offsets = pa.py_buffer(np.array([0, len(content)], np.int32))
    wanted = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(content)])
    return pc.is_in(column, options=pc.SetLookupOptions(wanted))
