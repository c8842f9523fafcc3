"""Mutations of atomic publishes, one rule each, which histories with atomic publishes must detect."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

from simulation.mutations.mutation_table import MutationTable, Patch
from smq.producing import atomic_publisher
from smq.producing.atomic_publisher import AtomicPublisher, _ClaimedApp
from smq_core.model import atomic_publish
from smq_core.model.atomic_publish import AtomicPublishes, CommitResult, LayoutMark
from smq_core.producing import roll_forward, tried_segments
from smq_operator.api import publishes
from smq_operator.publishing import kept_files
from smq_operator.publishing import tried_segments as operator_reads
from support.sim.leaders import publish_completer
from support.sim.leaders.publish_completer import SimulatedCompleter

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def forget_what_sealed_segments_have(patch: Patch) -> None:
    """A successor gets only the rows that the seal chunks before it do not have."""
    patch.setattr(operator_reads, "last_sequence", lambda producers, app: -1)


@mutation
def take_everything_for_written_before_a_seal(patch: Patch) -> None:
    """A sealed segment has only the batches up to the last sequence in its seal chunk."""

    def last_sequence(producers: Any, app: Any) -> int:
        return 1 << 30

    patch.setattr(operator_reads, "last_sequence", last_sequence)


@mutation
def complete_before_all_segments_have_acked(patch: Patch) -> None:
    """A version is complete when every row is in the log, and not when everything was tried."""
    original = roll_forward.plan_roll_forward

    def plan_roll_forward(files: Any, segments: Any, acked: Any) -> Any:
        plan = original(files, segments, acked)
        return replace(plan, complete=plan.complete or bool(acked))

    patch.setattr(roll_forward, "plan_roll_forward", plan_roll_forward)


@mutation
def look_only_at_segments_that_are_there_now(patch: Patch) -> None:
    """Rows may be in every segment that the layout has had since the commit."""
    original = tried_segments.find_tried_segments

    def find_tried_segments(mark: LayoutMark, layout: Any, entries: Any) -> Any:
        return original(LayoutMark.of(layout), layout, entries)

    patch.setattr(operator_reads, "find_tried_segments", find_tried_segments)


@mutation
def publish_for_any_owner(patch: Patch) -> None:
    """Only the owner of an app publishes."""
    original = atomic_publish.commit_version

    def commit_version(document: AtomicPublishes, app: str, owner: str, *more: Any) -> Any:
        state = document.app(app)
        return original(document, app, state.owner if state is not None else owner, *more)

    patch.setattr(publishes, "commit_version", commit_version)


@mutation
def begin_before_the_last_version_is_complete(patch: Patch) -> None:
    """Version N is complete before version N + 1 begins."""
    original = atomic_publish.commit_version

    def commit_version(document: AtomicPublishes, app: str, owner: str, version: int, *more: Any) -> Any:
        state = document.app(app)
        if state is None or state.version is None or version <= state.version:
            return original(document, app, owner, version, *more)
        free = replace(document, apps=tuple(replace(it, unfinished=None) for it in document.apps))
        return original(free, app, owner, version, *more)

    patch.setattr(publishes, "commit_version", commit_version)


@mutation
def publish_a_version_again(patch: Patch) -> None:
    """A version that is not higher than the last one is already published."""
    original = atomic_publish.commit_version

    def commit_version(document: AtomicPublishes, app: str, owner: str, version: int, *more: Any) -> Any:
        found, result = original(document, app, owner, version, *more)
        if result is not CommitResult.ALREADY_PUBLISHED:
            return found, result
        older = replace(document, apps=tuple(replace(it, version=version - 1) for it in document.apps))
        return original(older, app, owner, version, *more)

    patch.setattr(publishes, "commit_version", commit_version)


@mutation
def write_all_epochs_alike(patch: Patch) -> None:
    """Each publish has its own epoch, so that the sequences of one version are no repeats of another's."""
    original = atomic_publish.commit_version

    def commit_version(document: AtomicPublishes, app: str, *more: Any) -> Any:
        found, result = original(document, app, *more)
        apps = tuple(replace(it, epoch=1) if it.epoch else it for it in found.apps)
        return (found if found is document else replace(found, apps=apps)), result

    patch.setattr(publishes, "commit_version", commit_version)


@mutation
def write_only_what_is_left(patch: Patch) -> None:
    """The ranges of a segment have the same sequences in each attempt: an attempt begins with the first one."""
    original = SimulatedCompleter._write

    def _write(self: Any, app: Any, publish: Any, segment: Any, files: Any, ranges: Any) -> Any:
        tried = self.__dict__.setdefault("tried", set())
        left = ranges[1:] if (app.epoch, segment.name) in tried and len(ranges) > 1 else ranges
        tried.add((app.epoch, segment.name))
        return original(self, app, publish, segment, files, left)

    patch.setattr(SimulatedCompleter, "_write", _write)


@mutation
def write_again_to_a_segment_that_forgets(patch: Patch) -> None:
    """A segment that forgets producers may have rows of a publish although it does not know the producer."""
    original = SimulatedCompleter._stream

    def _stream(self: Any, app: Any, segment: Any, batches: Any, checked_upto: int) -> Any:
        return original(self, app, segment, batches, 1 << 60)

    patch.setattr(SimulatedCompleter, "_stream", _stream)


@mutation
def complete_what_another_leader_has_completed(patch: Patch) -> None:
    """A leader that was paused writes nothing for a publish that is complete, because retention may have removed it."""
    unfinished = SimpleNamespace(unfinished=True, epoch=ANY)
    for read in ("read_publishes", "read_newest_publishes"):
        patch.setattr(operator_reads, read, lambda *args: SimpleNamespace(app=lambda name: unfinished))


@mutation
def remove_segments_while_a_publish_is_unfinished(patch: Patch) -> None:
    """Retention waits for unfinished publishes, because seal chunks tell how far they have come."""
    patch.setattr(kept_files, "has_unfinished_publish", lambda *args: False)


@mutation
def complete_whatever_is_unfinished(patch: Patch) -> None:
    """A leader that was paused completes the publish that it has written, and not the next one."""

    def complete_version(document: AtomicPublishes, app: str, epoch: int, now: int) -> AtomicPublishes:
        state = document.app(app)
        return atomic_publish.complete_version(document, app, state.epoch if state is not None else epoch, now)

    patch.setattr(publish_completer, "complete_version", complete_version)


@mutation
def count_up_from_what_the_client_knows(patch: Patch) -> None:
    """A client asks the leader for the last version each time."""

    def last_version(self: AtomicPublisher, view: Any, app: str, timeout: float) -> int | None:
        claimed = _ClaimedApp(view.snapshot.topic.uid, app, self._owner)
        version = self._claim(view, claimed, False, atomic_publisher.time.monotonic() + timeout)
        return version if version >= 0 else None

    patch.setattr(AtomicPublisher, "last_version", last_version)
