"""Pins of readers, as retention respects them: it deletes no file that a living pin covers.

A pin lives until its leader ends it, and the leader ends it when its lifetime after the last renewal is over, or when
it is older than ``--max-pin-age``, both by the filer's time. Because a pin is ended before files are deleted, and by
a compare-and-swap, a reader whose renewal succeeds has all its files.

Pins are listed after the index that says what was removed. A listing may be out of date, by much less than the grace
of removed files. A pin that covers a segment is older than the segment's removal, so the grace makes up for that.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import structlog

from smq_core.model.entities import Micros, Topic
from smq_core.reading.pins import StoredPin
from smq_operator.cleanup.filer_clock import ClockReading
from smq_storage.catalog import paths
from smq_storage.catalog.stored_pins import delete_pin, end_pin, list_pins
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PinnedFiles:
    """The living pins of one topic at ``now``, in microseconds of the filer's time."""

    pins: tuple[StoredPin, ...]
    now: Micros

    def covers(self, number: int) -> bool:
        """Whether a living pin keeps the files of the segment with this number."""
        return any(pin.covers(number) for pin in self.pins)

    def needs_superseded(self, number: int, since: Micros) -> bool:
        """Whether a living pin keeps the chunks of this segment that are superseded since then, by the filer's time."""
        return any(pin.needs_superseded(number, since) for pin in self.pins)

    @property
    def oldest_age(self) -> Micros:
        """0 if there is none."""
        return max((max(0, self.now - pin.created_at) for pin in self.pins), default=0)


def end_expired_pins(
    store: Store, topic: Topic, clocks: ClockReading, max_age: Micros, retry_policy: RetryPolicy
) -> PinnedFiles:
    """Ends the expired pins, and returns the living ones. Raises StoreUnavailable.

    The filer's time of ``clocks`` may be late, and never early.
    """
    filer_now = clocks.filer
    living = []
    for pin in list_pins(store, topic.name, topic.uid):
        if not pin.pin.ended and filer_now < pin.expires_at(max_age, clocks.answers_since):
            living.append(pin)
        elif end_pin(store, topic.name, topic.uid, pin, uuid.uuid4().hex, retry_policy):
            # The listing, or the answer for this pin, may be out of date. The compare-and-swap is not.
            delete_pin(store, topic.name, topic.uid, pin.id)
            log.info("reader_pin.ended", topic=topic.name, pin=pin.id, owner=pin.pin.owner, problem=pin.problem)
        else:
            living.append(pin)
    return PinnedFiles(tuple(living), filer_now)


def has_pins(store: Store, topic: Topic) -> bool:
    """Whether there is any pin that was not ended and deleted."""
    return any(paths.pin_id(o.path) is not None for o in store.list(paths.pins_folder(topic.name, topic.uid)))
