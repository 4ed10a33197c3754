"""EnvRunner: environments in processes that can be killed, spoken to from any event loop.

A call that runs out of time taints its process: it gets no new environments and is killed when its others are closed,
or after a grace; at once where it keeps the others from running. A process that dies takes its environments along. All
are replaced.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dagrl.environments import wire
from dagrl.environments.process import Worker
from dagrl.environments.protocol import EnvAnswer, EnvRequest, Seats
from dagrl.errors import UserCodeError

_T = TypeVar("_T")
_GRACE_FACTOR = 5.0
"""A tainted process with living environments is killed after so many time limits."""


class RemoteEnv:
    """One environment object in a worker process."""

    def __init__(self, runner: EnvRunner, worker: Worker, env_id: int) -> None:
        self._runner = runner
        self._worker = worker
        self._env_id = env_id
        self._is_lost = False

    async def reset(self, offers: Mapping[str, Any], seats: Seats) -> EnvAnswer:
        """Calls `reset` with what it names of `offers`."""
        return await self._ask(wire.Reset(offers=offers, seats=seats))

    async def step(self, request: EnvRequest) -> EnvAnswer:
        return await self._ask(wire.Step(request=request))

    async def close(self) -> None:
        """Calls the environment's own `close`, unless a call of it never came back."""
        await self._runner.on_loop(self._runner.close_env(self._worker, self._env_id, is_lost=self._is_lost))

    async def _ask(self, body: wire.Reset | wire.Step) -> EnvAnswer:
        try:
            answer = await self._runner.on_loop(self._runner.call(self._worker, self._env_id, body))
        except UserCodeError as error:
            self._is_lost = error.kind in ("timeout", "worker_died")
            raise
        assert answer is not None, "only close and open answer nothing"
        return answer


class EnvRunner:
    """A pool of worker processes. Its own thread runs its clock, so a busy caller does not make environments late."""

    def __init__(
        self,
        *,
        num_workers: int = 2,
        timeout_s: float = 60.0,
        grace_s: float | None = None,
    ) -> None:
        """`grace_s`: how long the others in a process that holds a call without end may go on; 5 time limits."""
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._grace_s = _GRACE_FACTOR * timeout_s if grace_s is None else grace_s
        self._workers: list[Worker] = []
        self._retired: list[Worker] = []
        self._env_ids = itertools.count()
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._graces: set[asyncio.Task[None]] = set()
        self.num_replaced = 0
        """Processes that died or were killed, so far."""

    async def warm(self, classes: Sequence[tuple[str, Path]]) -> None:
        """Starts all processes and loads `classes` (`file.py:Class`, and the folder it is found from) in each.

        What cannot be loaded is told when an object of it is asked for.
        """
        await self.on_loop(self._warm(classes))

    async def open(self, ref: str, base: Path, kwargs: Mapping[str, Any], *, is_alone: bool = False) -> RemoteEnv:
        """Makes one object of the class that `ref` (`file.py:Class`) names, in the least busy process.

        `is_alone`: in a process of its own, where it harms nobody and nobody harms it.
        """
        return await self.on_loop(self._open(wire.Open(ref=ref, base=base, kwargs=dict(kwargs)), is_alone=is_alone))

    def close(self) -> None:
        """Kills all processes. May be called twice, and from any thread."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._kill_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    async def on_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs `work` on the runner's own event loop and awaits it from the caller's."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running_loop()))

    async def call(self, worker: Worker, env_id: int, body: wire.Body) -> EnvAnswer | None:
        """One call into a worker, with the time limit."""
        try:
            return await worker.call(env_id, body, self._timeout_s)
        finally:
            if worker.is_tainted and worker in self._workers:
                self._retire(worker)

    async def close_env(self, worker: Worker, env_id: int, *, is_lost: bool) -> None:
        try:
            if not is_lost and not worker.is_dead:
                await self.call(worker, env_id, wire.Close())
        finally:
            self._leave(worker, env_id)

    async def _warm(self, classes: Sequence[tuple[str, Path]]) -> None:
        await self._least_busy()
        for worker in list(self._workers):
            for ref, base in classes:
                env_id = next(self._env_ids)
                with suppress(UserCodeError):
                    await self.call(worker, env_id, wire.Load(ref=ref, base=base))
                    await self.call(worker, env_id, wire.Close())

    async def _open(self, body: wire.Open, *, is_alone: bool) -> RemoteEnv:
        worker = await (self._single_use() if is_alone else self._least_busy())
        env_id = next(self._env_ids)
        worker.envs.add(env_id)
        try:
            await self.call(worker, env_id, body)
        except BaseException:
            self._leave(worker, env_id)
            raise
        return RemoteEnv(self, worker, env_id)

    async def _least_busy(self) -> Worker:
        async with self._starting:
            while len(self._workers) < self._num_workers:
                worker = Worker(self._forget)
                await worker.start()
                self._workers.append(worker)
        return min(self._workers, key=lambda worker: len(worker.envs))

    async def _single_use(self) -> Worker:
        worker = Worker(self._forget, is_single_use=True)
        self._retired.append(worker)
        await worker.start()
        return worker

    def _leave(self, worker: Worker, env_id: int) -> None:
        worker.envs.discard(env_id)
        if (worker.is_tainted or worker.is_single_use) and not worker.envs:
            worker.kill()

    def _retire(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._retired.append(worker)
        grace = asyncio.get_running_loop().create_task(self._kill_later(worker))
        self._graces.add(grace)
        grace.add_done_callback(self._graces.discard)

    async def _kill_later(self, worker: Worker) -> None:
        await asyncio.sleep(self._grace_s)
        worker.kill()

    def _forget(self, worker: Worker) -> None:
        self.num_replaced += not worker.is_single_use
        self._workers = [one for one in self._workers if one is not worker]
        self._retired = [one for one in self._retired if one is not worker]

    async def _kill_all(self) -> None:
        for grace in self._graces:
            grace.cancel()
        for worker in [*self._workers, *self._retired]:
            worker.kill()
        await asyncio.sleep(0)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._starting = asyncio.Lock()
            self._thread = threading.Thread(target=self._loop.run_forever, name="dagrl-environments", daemon=True)
            self._thread.start()
        return self._loop
