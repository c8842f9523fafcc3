"""Reads of many files of a topic that take long: a pin keeps the files until the read has ended.

The order is what makes a pin safe, so one function keeps it, :meth:`PinnedReads.begin`:

1. Read the index: what it says is removed is not covered.
2. Create the pin.
3. Read index and layout again, and plan from these. They are never older than the first reading.

Whatever the second reading names was not removed before the pin existed, so the leader keeps it. A reader that reads
the index first and creates its pin then may plan a file that is deleted between the two.

Times are in microseconds. Nothing here starts a thread: a caller that reads for long calls :meth:`PinnedRead.keep` at
least once in each third of the lifetime, as :meth:`PinnedRead.read_range` does for each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from smq_core.errors import DataLost, StoreUnavailable, UnknownTopic
from smq_core.model.entities import Layout, Micros
from smq_core.model.interval_set import EMPTY, IntervalSet, union
from smq_core.reading.pins import DEFAULT_LIFETIME
from smq_core.reading.segment_dag import index_is_stale, layout_is_stale
from smq_storage.catalog import layouts, sealed_index
from smq_storage.catalog.sealed_index import Index
from smq_storage.catalog.stored_pins import create_pin, delete_pin, renew_pin
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment

REREAD_SECONDS = 0.05
DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class TopicFiles:
    """Index and layout of a topic, neither of which is older than the other."""

    topic: str
    uid: str
    index: Index
    layout: Layout

    def segments(self) -> list[StoredSegment]:
        """Where the files of all segments are: first the sealed ones in the order of the index, then the others."""
        sealed = {entry.name: StoredSegment.of(self.topic, self.uid, entry) for entry in self.index.entries}
        living = {it.name: StoredSegment(topic=self.topic, uid=self.uid, name=it.name) for it in self.layout.segments}
        return [*sealed.values(), *(it for name, it in living.items() if name not in sealed)]


class PinnedReads:
    """Begins pinned reads in one store.

    ``new_id`` returns a unique id for each call. ``clock`` is a monotonic clock in microseconds; it only says when a
    renewal is due.
    """

    def __init__(
        self, store: Store, new_id: Callable[[], str], clock: Callable[[], Micros], retry_policy: RetryPolicy
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._clock = clock
        self._retry_policy = retry_policy

    def begin(self, topic: str, uid: str, owner: str, lifetime: Micros = DEFAULT_LIFETIME) -> PinnedRead:
        """Pins the topic's files, and then reads what there is. Release the pin when the read has ended.

        ``owner`` is shown to administrators. Raises InvalidRequest, UnknownTopic (no layout), StoreUnavailable and
        StoreStateUnknown. An unreleased pin ends by itself.
        """
        store, policy = self._store, self._retry_policy
        removed = sealed_index.load(store, topic, uid).removed
        pin_id, began = self._new_id(), self._clock()
        create_pin(store, topic, uid, pin_id, owner, lifetime, removed, self._new_id(), policy)
        read = PinnedRead(
            store=store,
            pin_id=pin_id,
            topic=topic,
            uid=uid,
            lifetime=lifetime,
            began=began,
            new_id=self._new_id,
            clock=self._clock,
            retry_policy=policy,
        )
        try:
            read.files = read_topic_files(store, topic, uid, removed, policy)
        except BaseException:
            with read:
                raise
        return read


class PinnedRead:
    """A read under a pin. ``files`` is what there was after the pin was created. Use it in one thread, as a context."""

    files: TopicFiles

    def __init__(
        self,
        *,
        store: Store,
        pin_id: str,
        topic: str,
        uid: str,
        lifetime: Micros,
        began: Micros,
        new_id: Callable[[], str],
        clock: Callable[[], Micros],
        retry_policy: RetryPolicy,
    ) -> None:
        self.pin_id = pin_id
        self._store = store
        self._at = topic, uid, pin_id
        self._interval = lifetime // 3
        self._renewed_at = began
        self._new_id = new_id
        self._clock = clock
        self._retry_policy = retry_policy

    def keep(self) -> None:
        """Renews the pin if a third of its lifetime is over.

        Raises PinExpired if the pin has ended: then begin the read again. Raises StoreUnavailable.
        """
        now = self._clock()
        if now - self._renewed_at >= self._interval:
            renew_pin(self._store, *self._at, self._new_id(), self._retry_policy)
            self._renewed_at = now

    def read_range(
        self, segment: StoredSegment, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """As ``read_range``, and renews the pin meanwhile.

        Raises PinExpired instead of DataLost if a file is gone because the pin has ended.
        """
        try:
            for found in read_range(self._store, segment, start, stop, columns):
                yield found
                self.keep()
        except DataLost as error:
            self.explain(error)

    def explain(self, error: DataLost) -> None:
        """Raises PinExpired if the pin has ended, which explains that a file is gone, and ``error`` otherwise.

        Raises StoreUnavailable.
        """
        # What a read of the pin returns may be out of date. A renewal is not.
        renew_pin(self._store, *self._at, self._new_id(), self._retry_policy)
        raise error

    def release(self) -> None:
        """Lets the leader delete the files. Raises StoreUnavailable; the pin ends by itself then."""
        delete_pin(self._store, *self._at)

    def __enter__(self) -> PinnedRead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(StoreUnavailable):  # the pin ends by itself, and the read has its own outcome
            self.release()


def read_topic_files(
    store: Store,
    topic: str,
    uid: str,
    removed: IntervalSet = EMPTY,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> TopicFiles:
    """Reads until index and layout match, and the index is not older than the one that said what is ``removed``.

    Raises UnknownTopic (no layout), and StoreUnavailable also if they do not match before the policy's time ends.
    """
    deadline = retry_policy.clock() + retry_policy.timeout_seconds
    while True:
        index = sealed_index.load(store, topic, uid)
        found = layouts.read_layout(store, topic, uid)
        if found is None:
            raise UnknownTopic(f"topic {topic} with the uid {uid} has no layout in the filer", topic=topic)
        known = found[0], index.entries, index.removed
        is_old = union(index.removed, removed) != index.removed
        if not (is_old or index_is_stale(*known) or layout_is_stale(*known)):
            return TopicFiles(topic, uid, index, found[0])
        if retry_policy.clock() > deadline or retry_policy.wait(REREAD_SECONDS):
            raise StoreUnavailable(f"index and layout of {topic} do not match yet: try again")
