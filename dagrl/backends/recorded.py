"""Answers that were given before, given again; what was never answered goes to another generator."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from dagrl.backends.base import Generator
from dagrl.types import Completion, FinishReason, GenerationRequest, Metrics, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One answer and what it was an answer to."""

    prompt_ids: tuple[int, ...]
    completion: Completion


def recording_of(turn: Turn) -> Recording:
    """What was said in a turn."""
    completion = Completion(
        token_ids=turn.response_ids,
        logprobs=turn.rollout_logprobs,
        finish_reason=turn.finish_reason,
        policy_version=turn.policy_version,
    )
    return Recording(prompt_ids=turn.prompt_ids, completion=completion)


class MuteGenerator:
    """Answers everything with nothing."""

    async def generate(self, request: GenerationRequest) -> Completion:
        return Completion(token_ids=(), logprobs=(), finish_reason=FinishReason.STOP, policy_version=0)

    def begin_batch(self) -> None:
        return None

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def metrics(self) -> Metrics:
        return {}

    async def close(self) -> None:
        return None


class RecordedGenerator:
    """Knows a request by its seed."""

    def __init__(self, recordings: Mapping[int, Recording], live: Generator) -> None:
        self._recordings = recordings
        self._live = live
        self.num_recorded = 0
        """Answers given as they were."""
        self.num_generated = 0
        """Answers that `live` gave."""
        self.num_other_prompts = 0
        """Answers given as they were to a prompt that is not what it was."""

    async def generate(self, request: GenerationRequest) -> Completion:
        recording = self._recordings.get(request.seed)
        if recording is None:
            self.num_generated += 1
            return await self._live.generate(request)
        self.num_recorded += 1
        self.num_other_prompts += recording.prompt_ids != request.prompt_ids
        return recording.completion

    def begin_batch(self) -> None:
        self._live.begin_batch()

    def away(self) -> AbstractContextManager[None]:
        return self._live.away()

    def metrics(self) -> Metrics:
        return self._live.metrics()

    async def close(self) -> None:
        await self._live.close()
