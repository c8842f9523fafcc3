"""Mutations of pins, one rule each, which histories of pinned reads must detect."""

from __future__ import annotations

from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.reading.pins import StoredPin
from smq_operator.cleanup import reader_pins as cleanup
from smq_operator.cleanup import retention
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.cleanup.reader_pins import PinnedFiles
from smq_storage.tables import pinned_reads

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def delete_files_that_a_pin_covers(patch: Patch) -> None:
    """Retention leaves the files that a living pin covers."""
    patch.setattr(PinnedFiles, "covers", lambda self, number: False)


@mutation
def read_the_index_before_the_pin_is_created(patch: Patch) -> None:
    """A reader creates its pin first, and plans from an index that it reads then."""
    create, read = pinned_reads.create_pin, pinned_reads.read_topic_files
    planned: list[Any] = []

    def create_pin(store: Any, topic: str, uid: str, *args: Any) -> None:
        planned.append(read(store, topic, uid, (), args[-1]))
        removed = pinned_reads.sealed_index.load(store, topic, uid).removed
        create(store, topic, uid, *args[:3], removed, *args[4:])

    patch.setattr(pinned_reads, "create_pin", create_pin)
    patch.setattr(pinned_reads, "read_topic_files", lambda *args: planned.pop())


@mutation
def end_a_pin_without_a_compare_and_swap(patch: Patch) -> None:
    """A leader ends a pin by a compare-and-swap, so that a renewal at the same time either wins or fails."""
    patch.setattr(cleanup, "end_pin", lambda *args: True)


@mutation
def let_the_leaders_clock_end_pins(patch: Patch) -> None:
    """Only the filer's time says whether a pin lives."""
    original = retention.end_expired_pins
    delete = retention.delete_files

    def delete_files(store: Any, topic: Any, clocks: ClockReading, *args: Any) -> Any:
        patch.setattr(
            retention, "end_expired_pins", lambda store, topic, now, *rest: original(store, topic, clocks.leader, *rest)
        )
        return delete(store, topic, clocks, *args)

    patch.setattr(retention, "delete_files", delete_files)


@mutation
def renew_a_pin_for_ever(patch: Patch) -> None:
    """A pin protects nothing beyond the cap of its age, however often it is renewed."""
    patch.setattr(StoredPin, "expires_at", lambda self, max_age: self.renewed_at + self.pin.lifetime)


@mutation
def count_the_age_from_the_last_renewal(patch: Patch) -> None:
    """A renewal does not make a pin younger."""
    patch.setattr(StoredPin, "created_at", property(lambda self: self.renewed_at))


@mutation
def cover_what_was_removed_before(patch: Patch) -> None:
    """A pin does not cover what was removed before it, so that readers that follow each other keep nothing for ever."""
    patch.setattr(StoredPin, "covers", lambda self, number: True)


@mutation
def forget_the_filers_time_of_a_removal(patch: Patch) -> None:
    """The age of a removal is the smaller one of what both clocks say."""
    patch.setattr(retention, "age_of_removal", lambda segment, clocks: clocks.leader - segment.removed_at)
