"""Several generators as one: each agent group is answered by its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from dagrl.backends.base import Generator
from dagrl.types import Completion, GenerationRequest, Metrics


class RoutedGenerator:
    def __init__(self, by_group: Mapping[int, Generator]) -> None:
        self._by_group = dict(by_group)
        self._all = list({id(generator): generator for generator in by_group.values()}.values())

    async def generate(self, request: GenerationRequest) -> Completion:
        return await self._by_group[request.agent_group].generate(request)

    def begin_batch(self) -> None:
        for generator in self._all:
            generator.begin_batch()

    @contextmanager
    def away(self) -> Iterator[None]:
        with ExitStack() as stack:
            for generator in self._all:
                stack.enter_context(generator.away())
            yield

    def metrics(self) -> Metrics:
        return {name: value for generator in self._all for name, value in generator.metrics().items()}

    async def close(self) -> None:
        for generator in self._all:
            await generator.close()
