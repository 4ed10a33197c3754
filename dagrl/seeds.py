"""Seeds: every random draw of a run comes from a number derived from what it is for, never from a shared stream."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from `parts`, such as (run seed, step, task id, sample, node id, round, branch).

    The same parts give the same seed on every machine; different parts give independent ones (BLAKE2b).
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
