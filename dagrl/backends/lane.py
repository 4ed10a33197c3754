"""A lane of the embedded engine: the responses that one set of weights is giving, advanced together token by token."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dagrl.backends.network import Network
from dagrl.backends.packing import plan
from dagrl.backends.prefix_cache import PrefixCache
from dagrl.backends.sampling import RowParams, row_key, row_params, sample, uniforms
from dagrl.backends.slots import SlotStore
from dagrl.backends.stopping import StopTexts
from dagrl.backends.vision import Sight
from dagrl.errors import DagrlError, NumericError
from dagrl.types import Completion, FinishReason, GenerationRequest

_PREFILL_TOKENS = 8192
"""Positions of one forward pass over prompts."""
_ADMIT_SHARE = 0.25
"""New rows join when they are this share of the active ones: a pass over few prompts costs as much as a step."""
_ADMIT_STEPS = 16
"""… or when the first of them has waited so many steps."""


@dataclass(slots=True, eq=False)
class Row:
    """One response being given."""

    request: GenerationRequest
    future: asyncio.Future[Completion]
    limit: int
    """Tokens it may have: `max_tokens`, or what the model's context leaves."""
    stop_ids: frozenset[int]
    texts: StopTexts | None
    sight: Sight | None = None
    """What its prompt shows: such a prompt shares no keys and values with others but those of the same request."""
    version: int = 0
    """Of the policy when it joined."""
    changes: int = 0
    """Of the weights when it joined."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None


class Lane:
    """Waiting and active rows of one policy. Row i of `rows` lies in slot i.

    `policy` is asked for `version` only. `changes` of the network tell when keys and values are out of date.
    """

    def __init__(
        self, network: Network, adapter: str | None, *, name: str, policy: Any, max_rows: int, cache_tokens: int
    ) -> None:
        self.name = name
        self.waiting: deque[Row] = deque()
        self.rows: list[Row] = []
        self.num_passed = 0
        """Passes in a row that the engine made without this lane."""
        self.num_prompt_tokens = 0
        """Of all prompts that were asked for."""
        self.num_computed_tokens = 0
        """Of these, the ones put through the model; the others were copied from a sample or an earlier turn."""
        self._network = network
        self._adapter = adapter
        self._policy = policy
        self._max_rows = max_rows
        self._store = SlotStore(network)
        self._cache = PrefixCache(cache_tokens)
        self._cache_changes = 0
        self._steps_waited = 0
        self._params: RowParams | None = None
        self._lengths = np.zeros(0, dtype=np.int64)
        self._keys = np.zeros(0, dtype=np.uint64)

    @property
    def is_busy(self) -> bool:
        return bool(self.rows or self.waiting)

    @property
    def num_rows(self) -> int:
        """Active and waiting."""
        return len(self.rows) + len(self.waiting)

    @torch.no_grad()
    def step(self) -> bool:
        """Takes in waiting rows if it is time to, or gives every active row its next token; whether any has ended."""
        self._network.use(self._adapter)
        before = self.num_rows
        if self._is_time_to_admit():
            self._admit()
        else:
            self._steps_waited += bool(self.waiting)
            self._decode()
        return self.num_rows < before

    def forget(self) -> None:
        """Drops the keys and values that were kept for later prompts, and counts anew."""
        self._cache.clear()
        self.num_prompt_tokens = self.num_computed_tokens = 0

    def withdraw(self, row: Row) -> None:
        """Gives up a row that nobody waits for any more, between two passes. Does nothing where it is gone already."""
        if row in self.waiting:
            self.waiting.remove(row)
        elif row in self.rows:
            self._free(self.rows.index(row))

    def drain(self) -> list[Row]:
        """Gives up all rows, which stay unanswered, and returns them."""
        given_up = [*self.rows, *self.waiting]
        if given_up:
            self._store.clear()
        self.rows, self._params = [], None
        self.waiting.clear()
        self._lengths, self._keys = self._lengths[:0], self._keys[:0]
        return given_up

    def _is_time_to_admit(self) -> bool:
        room = self._max_rows - len(self.rows)
        if not self.waiting or room == 0:
            return False
        enough = min(room, math.ceil(_ADMIT_SHARE * len(self.rows)))
        return len(self.waiting) >= enough or self._steps_waited >= _ADMIT_STEPS

    def _decode(self) -> None:
        device = self._network.device
        last = torch.tensor([row.tokens[-1] for row in self.rows], device=device)
        lengths = torch.from_numpy(self._lengths).to(device)
        self._store.reserve(len(self.rows), int(self._lengths.max()) + 1)
        hidden = self._store.extend(last[:, None], lengths, 0, self._sights(self.rows))
        self._lengths = self._lengths + 1
        self._give(0, self._network.head.logits(hidden[:, -1]))

    def _admit(self) -> None:
        """Computes the prompts of waiting rows, each different prompt once, and gives the rows their first token.

        They join in the order of their seeds, which is the same however they came.
        """
        self._steps_waited = 0
        changes = self._network.changes[self._adapter]
        if changes != self._cache_changes:
            self._cache.clear()
            self._cache_changes = changes
        count = min(len(self.waiting), self._max_rows - len(self.rows))
        self.waiting = deque(sorted(self.waiting, key=lambda row: row.request.seed))
        rows = list(islice(self.waiting, count))
        for row in rows:
            row.version, row.changes = self._policy.version, changes
        by_prompt: dict[Any, list[Row]] = {}
        for row in rows:
            by_prompt.setdefault((row.request.prompt_ids, row.request.images), []).append(row)
        self._prefill(list(by_prompt.values()))

    def _prefill(self, families: list[list[Row]]) -> None:
        """`families`: rows of one prompt each; the first of each is computed, the others copy it."""
        leaders = [family[0] for family in families]
        prompts = [row.request.prompt_ids for row in leaders]
        known = [self._cache.find(row.request.prompt_ids[:-1]) if row.sight is None else (0, None) for row in leaders]
        rest = torch.tensor([len(prompt) - length for prompt, (length, _) in zip(prompts, known)])
        self.num_prompt_tokens += sum(len(prompt) * len(family) for prompt, family in zip(prompts, families))
        self.num_computed_tokens += int(rest.sum())
        micro_batches = [part.tolist() for part in plan(rest, _PREFILL_TOKENS)]
        order = [index for part in micro_batches for index in part]
        first = len(self.rows)
        self._store.reserve(first + sum(len(family) for family in families), max(map(len, prompts)) + int(rest.max()))
        states: list[Tensor] = []
        for part in micro_batches:
            start = first + sum(map(len, states))
            states.append(self._prefill_part([leaders[i] for i in part], [known[i] for i in part], start))
        self._join([families[i] for i in order], torch.cat(states))

    def _prefill_part(self, rows: Sequence[Row], known: Sequence[tuple[int, Tensor | None]], start: int) -> Tensor:
        """[m, d]: the last hidden state of the prompts of `rows`, which go to slots `start` … behind what is known of
        them."""
        device = self._network.device
        for slot, (_, states) in enumerate(known, start):
            if states is not None:
                self._store.write(slot, states)
        rest = [torch.tensor(row.request.prompt_ids[length:]) for row, (length, _) in zip(rows, known)]
        ids = torch.nn.utils.rnn.pad_sequence(rest, batch_first=True).to(device)
        lengths = torch.tensor([length for length, _ in known], device=device)
        hidden = self._store.extend(ids, lengths, start, self._sights(rows))
        return hidden[torch.arange(len(rest), device=device), torch.tensor([len(ids) - 1 for ids in rest])]

    def _join(self, families: list[list[Row]], states: Tensor) -> None:
        """Makes active the rows of `families`, whose first members lie in the next free slots, in that order."""
        first = len(self.rows)
        leaders = [family[0] for family in families]
        others = [(index, row) for index, family in enumerate(families) for row in family[1:]]
        slot = first + len(leaders)
        for index, family in enumerate(families):
            if len(family) > 1:
                targets = torch.arange(slot, slot + len(family) - 1, device=self._network.device)
                self._store.copy(first + index, targets, len(family[0].request.prompt_ids))
                slot += len(family) - 1
        joined = leaders + [row for _, row in others]
        for _ in joined:
            self.waiting.popleft()
        self.rows += joined
        self._lengths = np.append(self._lengths, [len(row.request.prompt_ids) for row in joined])
        self._keys = np.append(self._keys, np.array([row_key(row.request.seed) for row in joined], dtype=np.uint64))
        self._params = None
        logits = self._network.head.logits(states)
        source = torch.tensor([*range(len(leaders)), *(index for index, _ in others)], device=logits.device)
        self._give(first, logits[source])

    def _give(self, first: int, logits: Tensor) -> None:
        """Draws a token for every row from slot `first` on, from `logits` [n, V], and lets finished rows go."""
        rows = self.rows[first:]
        params = self._row_params(first)
        counts = np.array([len(row.tokens) for row in rows], dtype=np.int64)
        tokens, logprobs = sample(logits, params, uniforms(self._keys[first:], counts))
        if not bool(torch.isfinite(logprobs).all()):
            raise NumericError("the model gave logits that are not finite", where=self.name)
        has_finished = False
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist()):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.finish = _finish(row, token)
            has_finished |= row.finish is not None
        if has_finished:
            self._release()

    def _sights(self, rows: Sequence[Row]) -> list[Sight | None] | None:
        return None if self._network.vision is None else [row.sight for row in rows]

    def _row_params(self, first: int) -> RowParams:
        """Kept from step to step while the same rows are active."""
        if first > 0:
            return row_params([row.request.params for row in self.rows[first:]], self._network.device)
        if self._params is None:
            self._params = row_params([row.request.params for row in self.rows], self._network.device)
        return self._params

    def _release(self) -> None:
        """Answers finished rows, keeps what they computed for later prompts, and closes the gaps between slots."""
        for slot in reversed(range(len(self.rows))):
            row = self.rows[slot]
            if row.finish is None and not row.future.cancelled():
                continue
            self._remember(row, slot)
            _answer(row)
            self._free(slot)

    def _free(self, slot: int) -> None:
        """The last row moves into the gap."""
        last = len(self.rows) - 1
        if slot != last:
            self._store.move(last, slot, int(self._lengths[last]))
            self.rows[slot], self._lengths[slot] = self.rows[last], self._lengths[last]
            self._keys[slot] = self._keys[last]
        self.rows.pop()
        self._lengths, self._keys, self._params = self._lengths[:last], self._keys[:last], None

    def _remember(self, row: Row, slot: int) -> None:
        """The keys and values of a finished row: of everything but the last token, which was never put in."""
        length = int(self._lengths[slot])
        is_stale = row.changes != self._network.changes[self._adapter]
        if is_stale or row.sight is not None or not self._cache.accepts(length):
            return
        ids = (*row.request.prompt_ids, *row.tokens)[:length]
        self._cache.add(ids, self._store.read(slot, length))


def check_prompt(request: GenerationRequest, context: float, name: str) -> int:
    """Tokens the response may have; raises DagrlError where the prompt is empty or leaves no room."""
    length = len(request.prompt_ids)
    if length == 0:
        raise DagrlError("the prompt is empty", where=name)
    if length >= context:
        raise DagrlError(
            f"the prompt has {length} tokens and the model's context ends at {context:.0f}",
            where=name,
            how="shorten prompts or lower rollout.max_context_len",
        )
    return int(min(request.params.max_tokens, context - length))


def _finish(row: Row, token: int) -> FinishReason | None:
    if token in row.stop_ids or (row.texts is not None and row.texts.are_found(row.tokens)):
        return FinishReason.STOP
    return FinishReason.LENGTH if len(row.tokens) >= row.limit else None


def _answer(row: Row) -> None:
    if row.future.done() or row.finish is None:
        return
    row.future.set_result(
        Completion(
            token_ids=tuple(row.tokens),
            logprobs=tuple(row.logprobs),
            finish_reason=row.finish,
            policy_version=row.version,
        )
    )
