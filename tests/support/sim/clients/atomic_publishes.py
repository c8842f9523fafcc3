"""Publishers of atomic publishes in the simulation. The leaders' part is in ``leaders.publish_completer``.

Rows are uploads, as those of producers that publish by reference, so brokers check and a collector deletes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from smq_core.errors import InvalidRequest, ProducerFenced, SmqError, StoreStateUnknown
from smq_core.invariants import Message
from smq_core.model.atomic_publish import AtomicFile
from smq_core.model.keyspace import partition_of
from support.sim.clients import uploads
from support.sim.clients.uploads import FOLDER, UploadedFile
from support.sim.engine.world import MS, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.atomic import AtomicHistory


class SimulatedPublisher:
    """One client that publishes the versions ``start .. stop - 1`` of an app, each in one to three files."""

    def __init__(self, history: AtomicHistory, app: str, start: int, stop: int, dice: Random) -> None:
        self.history = history
        self.app = app
        self.version = start
        self.stop = stop
        self.name = self.owner = history.world.unique(f"{app}-")
        self.process = Process(history.world, self.name, self.name)
        self.done = False
        self._dice = dice
        self.process.start(self._run())

    def _run(self) -> Steps:
        try:
            yield from self._call("claim", self.app, self.owner)
            while self.version < self.stop:
                yield self._dice.randint(0, 500) * MS
                self.history.publishes.results[(yield from self._publish())] += 1
                self.version += 1
        except ProducerFenced:
            self.history.publishes.fenced += 1
            self.history.world.note(self.name, "", f"is fenced at version {self.version}")
        self.done = True

    def _publish(self) -> Steps:
        """Publishes the version, again from the upload on if that took too long, and waits until it is complete."""
        files = yield from self._upload()
        request = self.history.world.unique("request")
        self.history.publishes.requested(request, self.owner)
        while True:
            try:
                result = yield from self._call("commit", self.app, self.owner, self.version, request, files)
            except InvalidRequest:
                files = yield from self._upload()
            else:
                if result is not None:
                    return result

    def _call(self, method: str, *args: Any) -> Steps:
        """Repeats the call until a leader has answered it. Raises ProducerFenced."""
        while True:
            address = self._dice.choice(list(self.history.completers))
            try:
                return (yield self.history.network.call(self.process, address, method, *args))
            except (ProducerFenced, InvalidRequest):
                raise
            except SmqError:
                yield self._dice.randint(20, 300) * MS

    def _upload(self) -> Steps:
        world, found = self.history.world, []
        for number in range(self._dice.randint(1, 3)):
            producer = world.unique(f"{self.app}.{self.version}.{number}.")
            keys = [f"k{self._dice.randrange(8)}" for _ in range(self._dice.randint(1, 12))]
            partitions = self.history.settings.partitions
            messages = [
                Message(producer, serial, key, partition_of(key.encode(), partitions), world.now)
                for serial, key in enumerate(keys)
            ]
            age = self._dice.choice([0, 0, 0, uploads.MAX_AGE - self._dice.randint(50, 1500) * MS])
            found.append((yield from upload(self.history, self.process, messages, age)))
        return tuple(found)


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
            return AtomicFile(name, etag, len(rows), len(rows), min(times), max(times))
