"""Publishers of atomic publishes in the simulation. The leaders' part is in ``leaders.publish_completer``.

They use the client library's own ``AtomicPublisher``. Rows are uploads, as those of producers that publish by
reference, so brokers check and a collector deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from smq.delivery import StagedFile
from smq.producing.atomic_publisher import AtomicPublisher
from smq_core.errors import ProducerFenced, SmqError, StoreStateUnknown, Unavailable
from smq_core.invariants import Message
from smq_core.model.atomic_publish import AtomicFile
from smq_core.model.keyspace import partition_of
from support.sim.clients import uploads
from support.sim.clients.uploads import FOLDER, UploadedFile
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import MS, SECOND, Future, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.atomic import AtomicHistory

TIMEOUT_SECONDS = 10.0


class SimulatedPublisher:
    """One program that publishes ``stop - start`` versions of an app, each in one to three files.

    They are ``start .. stop - 1``, or each is the one after the last version, if the app's programs count up from it.
    A call that failed is repeated with the same version and rows.
    """

    def __init__(self, history: AtomicHistory, app: str, start: int, stop: int, dice: Random) -> None:
        self.history = history
        self.app = app
        self.version = start
        self.stop = stop
        self.counts_up = app in history.counted_apps
        self.name = history.world.unique(f"{app}-")
        self.process = Process(history.world, self.name, self.name)
        self.done = False
        self._dice = dice
        self._view: Any = SimpleNamespace(name=history.topic.name, snapshot=SimpleNamespace(topic=history.topic))
        self._publisher = AtomicPublisher(_LeaderCalls(self, dice))  # type: ignore[arg-type]
        self._publisher._owner = self.name  # the same one in each run of the history
        self._loop = VirtualLoop(self.process)
        history.loops.append(self._loop)
        self.process.start(self._run())

    def _run(self) -> Steps:
        try:
            while self.version < self.stop:
                yield self._dice.randint(0, 500) * MS
                version = self.version
                if self.counts_up:
                    last = yield from self._repeat(self._publisher.last_version, self._view, self.app, TIMEOUT_SECONDS)
                    version = (last or 0) + 1
                yield from self._publish(version)
                self.version += 1
        except ProducerFenced:
            self.history.publishes.was_fenced(self.app, self.name)
            self.history.world.note(self.name, "", f"is fenced at version {self.version}")
        self.done = True

    def _publish(self, version: int) -> Steps:
        """Publishes the version, again from the upload on after an error, and waits until it is complete."""
        rows = [self._draw_rows(version, number) for number in range(self._dice.randint(1, 3))]
        while True:
            files = []
            for messages in rows:
                age = self._dice.choice([0, 0, 0, uploads.MAX_AGE - self._dice.randint(50, 1500) * MS])
                files.append(_staged((yield from upload(self.history, self.process, messages, age))))
            publish = partial(self._publisher.publish, staged=files)
            try:
                receipt = yield self._do(publish, self._view, self.app, version, lambda _: [], TIMEOUT_SECONDS)
            except ProducerFenced:
                raise
            except SmqError as error:
                self.history.world.note(self.name, "", f"version {version} failed: {error.message}")
                yield self._dice.randint(20, 300) * MS
            else:
                self.history.publishes.returned(self, receipt, [message for each in rows for message in each])
                return

    def _repeat(self, call: Callable[..., Any], *args: Any) -> Steps:
        """Repeats the call until it has a result. Raises ProducerFenced."""
        while True:
            try:
                return (yield self._do(call, *args))
            except ProducerFenced:
                raise
            except SmqError:
                yield self._dice.randint(20, 300) * MS

    def _do(self, call: Callable[..., Any], *args: Any) -> Future:
        """A blocking call of the client library."""

        async def work() -> Any:
            return await self._loop.run_in_executor(None, call, *args)

        return self._loop.start(work())

    def _draw_rows(self, version: int, number: int) -> list[Message]:
        world, partitions = self.history.world, self.history.settings.partitions
        producer = world.unique(f"{self.app}.{version}.{number}.")
        keys = [f"k{self._dice.randrange(8)}" for _ in range(self._dice.randint(1, 12))]
        return [
            Message(producer, serial, key, partition_of(key.encode(), partitions), world.now)
            for serial, key in enumerate(keys)
        ]


class _LeaderCalls:
    """Stands in for the stub of publishes: calls any leader, again until one answers or the time is over."""

    def __init__(self, publisher: SimulatedPublisher, dice: Random) -> None:
        self._publisher = publisher
        self._history = publisher.history
        self._dice = dice

    def ClaimApp(self, request: Any, timeout: float) -> Any:
        return self._call("claim_app", request, timeout)

    def PublishAtomically(self, request: Any, timeout: float) -> Any:
        self._history.publishes.requested(request.request, request.owner)
        return self._call("publish_atomically", request, timeout)

    def _call(self, method: str, request: Any, timeout: float) -> Any:
        here, world = VirtualThread.current(), self._history.world
        until = world.now + min(round(timeout * SECOND), self._dice.choice([1, 5, 10]) * SECOND)
        while True:
            address = self._dice.choice(list(self._history.completers))
            try:
                return here.wait(self._history.network.call(self._publisher.process, address, method, request))
            except Unavailable:
                if world.now >= until:
                    raise
            here.wait(self._dice.randint(20, 300) * MS)


def _staged(file: AtomicFile) -> StagedFile:
    return StagedFile(
        name=file.upload,
        etag=file.etag,
        rows=file.rows,
        bytes=file.bytes,
        timestamp_min=file.timestamp_min,
        timestamp_max=file.timestamp_max,
        schema_version=0,
    )


def upload(history: AtomicHistory, process: Process, messages: Sequence[Message], age: int = 0) -> Steps:
    """Writes the rows in the order of their partitions, under a new name. Returns the file.

    It is backdated by ``age``, because a history is shorter than uploads may get old.
    """
    rows = tuple(sorted(messages, key=lambda m: m.partition))
    while True:
        name = history.world.unique("atomic")
        try:
            etag = yield history.store.put(process, FOLDER + name, UploadedFile(rows, history.world.now - age), None)
        except (StoreStateUnknown, SmqError):
            yield 100 * MS  # under another name, since a late PUT may still be applied
        else:
            history.publishes.uploaded(name, rows)
            times = [m.sent_at for m in rows]
            return AtomicFile(
                upload=name,
                etag=etag,
                rows=len(rows),
                bytes=len(rows),
                timestamp_min=min(times),
                timestamp_max=max(times),
            )
