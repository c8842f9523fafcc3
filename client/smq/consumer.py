"""The consumer: reads batches from segments in an order that keeps the order of each key."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from smq.batch import Batch
from smq.consuming.consumer_losses import ConsumerLosses
from smq.consuming.consumer_monitor import MONITOR_INTERVAL_SECONDS, ConsumerMonitor, RepeatedTask
from smq.consuming.consumer_options import ConsumerOptions, check_max_messages, check_positions
from smq.consuming.consumer_runtime import ConsumerRuntime
from smq.consuming.fetching.fetcher import Fetcher, join_all
from smq.consuming.fetching.large_values import LargeValueReader
from smq.consuming.fetching.open_fetchers import FetchSettings, OpenFetchers
from smq.consuming.fetching.prefetch_buffer import FetchedItem, FetchedLoss, FetchedRows, FetchFailed, PrefetchBuffer
from smq.consuming.groups.assigned_reads import AssignedReads
from smq.consuming.groups.ended_segments import EndedSegments
from smq.consuming.groups.group_end import GroupEnd
from smq.consuming.groups.group_membership import GroupMembership
from smq.consuming.groups.member_positions import MemberPositions
from smq.consuming.groups.rebalance_events import RebalanceEvents
from smq.consuming.history_reader import HistoryReader
from smq.consuming.position_search import PositionSearch, micros
from smq.consuming.returned_columns import ReturnedColumns
from smq.consuming.saved_positions import are_doubtful, check_chosen
from smq.consuming.segment_choice import SegmentChoice, check_possible
from smq.consuming.segment_reads import SegmentReads
from smq.forks import track
from smq_core.errors import InvalidRequest, SmqError, StoreUnavailable, is_denial
from smq_core.reading.segment_dag import highest_number
from smq_proto.v1 import groups_pb2
from smq_storage.process.locks import requires_lock

if TYPE_CHECKING:
    from smq.transport.topic_view import TopicSnapshot, TopicView
    from smq_proto.v1.groups_pb2_grpc import GroupsStub

log = logging.getLogger(__name__)

# How long ``close`` waits for its threads. One inside a request to a filer that hangs ends with that request.
CLOSE_SECONDS = 2.0
AUTO_COMMIT_INTERVAL_SECONDS = 1.0


class Consumer:
    """Reads a topic; made by :meth:`smq.Client.consumer`. For one thread at a time: iterate it or call ``poll``.

    A segment is read only after all its predecessors have been read to their ends. Each key's messages therefore come
    in the order in which they were sent, through splits, merges and failovers.
    """

    def __init__(
        self,
        *,
        view: TopicView,
        groups: GroupsStub,
        options: ConsumerOptions,
        changed: threading.Condition | None = None,
        runtime: ConsumerRuntime | None = None,
    ) -> None:
        runtime = runtime or ConsumerRuntime()
        group, start = options.group, options.start
        in_group = group is not None
        self._view = view
        self._groups = groups
        self._group = group
        self._columns = ReturnedColumns(view.snapshot.topic.spec, newest=options.schema == "newest")
        self._options = options
        self._choice = SegmentChoice.of(
            options.segments, options.partitions, group, view.snapshot.topic.spec.partitions
        )
        self._large_values = LargeValueReader(view)
        self._buffer: PrefetchBuffer[Fetcher] = PrefetchBuffer(options.prefetch_bytes, changed)
        # Guards the fields below. It is the buffer's own condition, so that one wait sees changes of both.
        self._changed = self._buffer.changed
        self._events = RebalanceEvents(self._changed, options.on_assigned, options.on_revoked, options.on_segment_end)
        eager = self._large_values if options.large_values == "eager" else None
        fetchers = OpenFetchers(self._buffer, FetchSettings(view, options.max_bytes, eager, runtime.shared_tails))
        self._losses = ConsumerLosses(self._changed, in_group=in_group, skips=options.on_loss == "skip")
        self._reads = SegmentReads(
            view=view, choice=self._choice, fetchers=fetchers, losses=self._losses, in_group=in_group
        )
        self._member = MemberPositions()
        self._ended = EndedSegments(group)
        self._assigned = AssignedReads(
            self._reads, self._member, self._events, commits_by_itself=options.auto_commit is not True
        )
        self._group_end = GroupEnd(view, groups, group) if group is not None else None
        self._searching_end = RepeatedTask(
            f"whether group {group} has read everything is not known",
            self._search_group_end,
            may_run=lambda: self._is_member() and self._group_end is not None and self._group_end.may_search,
        )
        self._history = RepeatedTask(
            f"the history of {view.name} could not be read", self._follow_history, on_failure=self._on_history_failed
        )
        self._loading_losses = RepeatedTask(
            f"the losses of group {group} could not be read",
            self._load_group_losses,
            due=in_group,
            may_run=self._is_member,
        )
        self._monitor = ConsumerMonitor(
            f"smq-consumer-{view.name}",
            self._check_streams,
            (self._history, self._loading_losses, self._searching_end),
            runtime.monitor_thread,
        )
        self._history_reader = HistoryReader(view, self._monitor.wait_for_close)
        self._refresh_failure: StoreUnavailable | None = None
        self._denial: SmqError | None = None
        self._closed = False
        self._last_commit = time.monotonic()
        self._commit_failed = False
        self._membership: GroupMembership | None = None
        if isinstance(start, Mapping):
            view.refresh_from_store(highest_number(start))
        self._refresh()
        known = {*self._reads.sealed, *(it.name for it in view.snapshot.layout.segments)}
        self._choice.check_known(view.name, known)
        if not in_group:
            if isinstance(start, Mapping):
                self._check_saved(start, known)
            self._reads.start_at(start)
        with self._changed:
            self._reads.ignore_losses_before(start)
            self._reads.collect_losses()
        if group is None:
            self._open_readable()
        else:
            begin = start if isinstance(start, str) else self._group_start(start)
            self._membership = GroupMembership(
                groups=groups,
                topic=view.name,
                group=group,
                start=begin,
                on_assignment=self._on_assignment,
                awaited_commits=self._awaited_commits,
            )
        view.add_listener(self._on_layout_changed)
        self._monitor.start()
        track(self)

    def __repr__(self) -> str:
        group = f", group {self._group!r}" if self._group is not None else ""
        return f"<Consumer of {self._view.name}{group}{', closed' if self._closed else ''}>"

    def poll(self, timeout: float | None = None, max_messages: int | None = None) -> Batch | None:
        """Returns the next batch, or None if none came within ``timeout`` seconds (None: no limit).

        It has at most ``max_messages`` messages (None: as the consumer's option says). Calls ``on_revoked`` and
        ``on_assigned`` if the group's assignment has changed.

        Raises DataLost (``on_loss="fail"``), UnknownTopic if the topic was deleted, InvalidRequest if this is closed,
        PermissionDenied and Unauthenticated if a secure release does not let this client read any more.
        """
        check_max_messages(max_messages)
        limit = max_messages if max_messages is not None else self._options.max_messages
        self._finish_last_batch()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._report_rebalance()
            self._commit_if_due()
            with self._changed:
                if self._closed:
                    raise InvalidRequest("the consumer is closed")
                self._losses.raise_next()
                found = None if self._waits_for_losses() else self._buffer.take(self._options.max_bytes, limit)
                if found is None:
                    error = self._terminal_error()
                    if error is not None:
                        raise error
                    if self._events.pending:
                        continue
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    self._changed.wait(self._wait_limit(left))
                    continue
            batch = self._to_batch(*found)
            if batch is not None:
                return batch

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches until the consumer is closed."""
        while not self._closed:
            batch = self.poll()
            if batch is not None:
                yield batch

    def commit(self, positions: Mapping[str, int] | None = None) -> dict[str, int]:
        """Commits the given positions for the group, or everything returned so far. Returns what was committed.

        Segments that have moved to another member are left out; that member reads them again from the last commit. So
        is what was read before an administrator has set the group's positions. Raises InvalidRequest without a group,
        after ``close``, and for a position beyond what was returned; Unavailable if no leader answers.
        """
        if self._membership is None:
            raise InvalidRequest("a consumer without a group cannot commit; pass group to client.consumer()")
        if self._membership.has_left:
            raise InvalidRequest(
                "the consumer is closed, and its group gives its segments to other members: commit before"
            )
        if positions is not None:
            check_positions(positions)
        with self._changed:
            if positions is None:
                wanted = self._member.uncommitted
            else:
                wanted = self._member.committable(positions, self._reads.position)
            reported, epoch = self._losses.to_confirm, self._member.epoch or ""
        if not wanted and not reported:
            return {}
        done = self._membership.commit(wanted, reported, epoch)
        committed = done.positions
        with self._changed:
            self._losses.confirmed(done.losses)
            if self._member.epoch == epoch:
                self._member.commit(wanted, committed)
                self._ended.committed(committed)
                for segment in committed:
                    self._assigned.skip_committed(segment)
            ended = any(segment not in self._reads.fetchers for segment in committed)
            free = not self._member.is_processing
        self._last_commit = time.monotonic()
        if free:
            self._give_up_revoked(self._membership)
        if ended:
            self._membership.heartbeat_now()  # successors may be readable now
        return committed

    def seek(self, positions: Mapping[str, int]) -> None:
        """Continues at these positions, ``{segment: next offset}``; batches that were read ahead are dropped.

        Segments that are not named stay where they are, except that those before a named one count as read, and those
        after it are read again from their beginnings. In a group only assigned segments can be named. Nothing is
        committed by it, and commits never go back: messages that are read again after a seek are committed already, and
        :meth:`smq.Admin.reset_group` sets a group back for all members.

        Raises InvalidRequest, which says what is possible, if a segment has no such offset. Raises Unavailable.
        """
        check_positions(positions)
        with PositionSearch(self._view) as search:
            search.check(positions)
        self._seek(positions)

    def seek_to_time(self, at: datetime) -> None:
        """Continues at the first messages that were appended at or after this time (in UTC, if it has no zone).

        See :meth:`seek`. After the last message, that is the end. Raises Unavailable.
        """
        if not isinstance(at, datetime):
            raise InvalidRequest(f"seek_to_time takes a datetime, not {at!r}")
        with self._changed:
            assigned = list(self._member.assigned)
        with PositionSearch(self._view, self._choice) as search:
            if self._group is None:
                positions = search.resolve(at)
            else:
                positions = {segment: search.offset_at(segment, micros(at)) for segment in assigned}
        self._seek(positions)

    def pause(self, segments: Collection[str] | None = None) -> None:
        """Makes ``poll`` return nothing of these segments (None: all that it reads now) until :meth:`resume`.

        Their messages are read ahead all the same, as far as ``prefetch_bytes`` allow. A segment that moves to another
        member is no longer paused. Raises InvalidRequest for a segment that is not read now.
        """
        with self._changed:
            self._reads.fetchers.pause(self._reading(segments))

    def resume(self, segments: Collection[str] | None = None) -> None:
        """Ends the pause of these segments (None: of all). Raises InvalidRequest for one that is not read now."""
        with self._changed:
            self._reads.fetchers.resume(self._reading(segments))

    @property
    def topic(self) -> str:
        """The full name of the topic."""
        return self._view.name

    @property
    def paused(self) -> frozenset[str]:
        """The segments that are paused."""
        with self._changed:
            return frozenset(self._reads.fetchers.paused)

    @property
    def positions(self) -> dict[str, int]:
        """How far this consumer has returned messages, ``{segment: next offset}``."""
        with self._changed:
            return dict(self._reads.progress.committed())

    @property
    def assignment(self) -> frozenset[str]:
        """The segments that this consumer reads now."""
        with self._changed:
            return frozenset(self._reads.fetchers)

    @property
    def filer_error(self) -> StoreUnavailable | None:
        """Why the filer could not be read last; None if no read waits for it. The read is repeated until it succeeds.

        The message names the filer. The same is logged as a warning, less and less often.
        """
        with self._changed:
            failures = self._reads.fetchers.filer_errors()
            return self._refresh_failure or next(iter(failures), None)

    def at_end(self) -> bool:
        """Whether everything that the replicas last reported as durable has been returned. There may be more since.

        In a group, whether the whole group has read everything: what other members have read counts when they have
        committed it. That is asked in the background, so this is False at first; poll, and call it again.
        """
        with self._changed:
            if self._history.due or (self._membership is not None and not self._membership.joined):
                return False
            at_end = all(
                f.watermark_known
                and not f.may_end()
                and max(self._reads.position(f.segment), f.dropped_upto) >= f.watermark
                for f in self._reads.fetchers.all()
            )
            if self._group_end is None or not at_end:
                return at_end
            # Each call asks for a search, so that the next one has a newer result although this one is used up.
            self._searching_end.due = True
            return self._group_end.is_known(self._own_positions())

    def close(self) -> None:
        """Ends all reading and leaves the group. With ``auto_commit`` it commits the finished batches before.

        A batch is finished when the program has polled again. Repeatable.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = self._reads.closed = True
            self._changed.notify_all()
        self._view.remove_listener(self._on_layout_changed)
        self._monitor.close()
        try:
            if self._membership is not None:
                self._leave_group(self._membership)
        finally:
            self._end_fetchers()

    def _leave_group(self, membership: GroupMembership) -> None:
        try:
            with self._changed:
                self._events.revoke_all()
            self._deliver_events()
            if self._options.auto_commit is True:
                self._try_commit(self._member.finished)
        finally:
            membership.leave()

    def _end_fetchers(self) -> None:
        with self._changed:
            fetchers = self._reads.fetchers.take_all()
        deadline = time.monotonic() + CLOSE_SECONDS
        for fetcher in fetchers:
            fetcher.stop()
        self._monitor.join(CLOSE_SECONDS)
        join_all(fetchers, deadline - time.monotonic())

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- for TopicsConsumer, whose consumers share ``changed``

    def _is_ready(self) -> bool:
        """Whether ``poll(0)`` would return a batch, call a callback or raise."""
        with self._changed:
            if self._closed or self._losses.pending or self._events.pending or self._terminal_error() is not None:
                return True
            return not self._buffer.is_empty and not self._waits_for_losses()

    # ---- returning batches

    def _waits_for_losses(self) -> bool:
        """Whether a new member still has to learn what its group has lost, which comes before the next messages."""
        if self._group is None or self._buffer.is_empty:
            return False
        return self._losses.delay_messages()

    def _wait_limit(self, left: float | None) -> float | None:
        """For how long at most to wait for a change, if the program waits for ``left`` seconds (None: no limit)."""
        limits = [left]
        if self._waits_for_losses():
            limits.append(MONITOR_INTERVAL_SECONDS)
        if self._options.auto_commit is True and self._member.finished:
            limits.append(self._last_commit + AUTO_COMMIT_INTERVAL_SECONDS - time.monotonic())
        return min((max(0.0, it) for it in limits if it is not None), default=None)

    def _commit_if_due(self) -> None:
        """Commits finished batches, as ``auto_commit`` says. A segment that has ended is committed at once."""
        # ``close`` commits by itself.
        if not self._options.auto_commit or self._membership is None or self._closed:
            return
        waited = time.monotonic() - self._last_commit >= AUTO_COMMIT_INTERVAL_SECONDS
        if self._commit_failed and not waited:
            return
        with self._changed:
            finished, ended = self._member.finished, self._ended.ends
        if self._options.auto_commit is not True:
            self._try_commit(ended)
        elif ended or waited or self._membership.revocation_pending:
            self._try_commit(finished)

    def _finish_last_batch(self) -> None:
        """Treats the last batch as done, because the program polls for more."""
        if self._membership is None:
            return
        with self._changed:
            self._member.batch_finished()
        self._commit_if_due()
        self._give_up_revoked(self._membership)

    def _report_rebalance(self) -> None:
        """Calls the program's callbacks. It is done with revoked segments when they have returned."""
        if self._membership is not None and self._events.pending:
            self._deliver_events()
            self._give_up_revoked(self._membership)

    def _give_up_revoked(self, membership: GroupMembership) -> None:
        """Lets others have the revoked segments, unless the program has yet to learn of some."""
        with self._changed:
            if self._events.revocation_pending:
                return
            generation = membership.applied_generation
        membership.acknowledge_revocation(generation)  # not that of an assignment that comes just now

    def _deliver_events(self) -> None:
        while True:
            with self._changed:
                call = self._events.next()
            if call is None:
                return
            call()

    def _terminal_error(self) -> BaseException | None:
        """What ends this consumer: that it may not read any more, the group's failure, or that the topic is gone."""
        if self._denial is not None:
            return self._denial
        if self._membership is not None and self._membership.failure is not None:
            return self._membership.failure
        return self._view.deleted

    def _try_commit(self, positions: Mapping[str, int]) -> None:
        self._commit_failed = False
        try:
            self.commit(positions)
        except SmqError as error:
            self._commit_failed, self._last_commit = True, time.monotonic()
            log.warning("the positions of group %s could not be committed yet: %s", self._group, error.message)

    def _to_batch(self, fetcher: Fetcher, item: FetchedItem) -> Batch | None:
        if isinstance(item, FetchFailed):
            if is_denial(item.error):
                self._denial = item.error
            raise item.error
        segment = fetcher.segment
        with self._changed:
            if not self._reads.fetchers.is_open(fetcher):
                return None  # the segment was revoked meanwhile
            if isinstance(item, FetchedRows):
                self._reads.progress.advance(segment, item.end)
                if self._membership is not None:
                    self._member.batch_returned(segment, item.end)
                return Batch(
                    # Here and not when it was fetched, so that "newest" also holds for what was read ahead.
                    table=self._columns.convert(item.table, self._view.snapshot),
                    segment=segment,
                    first_offset=item.first,
                    positions=self._reads.progress.committed(),
                    topic=self._view.name,
                    _read=self._large_values.read,
                )
            if isinstance(item, FetchedLoss):
                self._losses.record(segment, item.loss, item.file)
                self._reads.progress.advance(segment, item.loss.stop)
                return None
            self._on_segment_end(segment, item.end)
        self._open_readable()
        return None

    @requires_lock("_changed")
    def _on_segment_end(self, segment: str, end: int) -> None:
        self._reads.end(segment, end)
        self._events.ended(segment)
        if self._membership is not None:
            if self._member.segment_ended(segment, end):
                self._ended.add(segment, end, time.monotonic())
                self._events.awaits_commit(segment, end)
            self._membership.heartbeat_now()

    # ---- what to read

    def _check_saved(self, start: Mapping[str, int], known: Collection[str]) -> None:
        check_chosen(start, self._choice, known)
        if are_doubtful(self._view, start, self._reads.sealed, self._reads.removed):
            with PositionSearch(self._view) as search:
                search.check_saved(start)

    def _group_start(self, start: datetime | Mapping[str, int]) -> str | Mapping[str, int]:
        """Where a new group begins. The search is left out for one that has positions already."""
        request = groups_pb2.GetPositionsRequest(topic=self._view.name, group=self._group or "")
        reply: groups_pb2.GroupPositions = self._groups.GetPositions(request)
        if reply.positions:
            return "earliest"
        with PositionSearch(self._view) as search:
            return search.resolve(start)

    def _seek(self, positions: Mapping[str, int]) -> None:
        if positions.keys() - self._reads.progress.nodes.keys():
            self._refresh()
        with self._changed:
            if self._group is None:
                known = self._reads.progress.nodes
                check_possible(positions, known, "is not among those that this consumer reads")
                self._reads.seek(positions)
            else:
                check_possible(positions, self._member.assigned, "is not assigned to this member")
                self._assigned.seek(positions)
                self._ended.read_again(positions)
        self._open_readable()

    @requires_lock("_changed")
    def _reading(self, segments: Collection[str] | None) -> set[str]:
        if segments is None:
            return set(self._reads.fetchers)
        if isinstance(segments, str):
            raise InvalidRequest(f"pass the names of segments in a list, such as [{segments!r}]")
        check_possible(segments, set(self._reads.fetchers), "is not read now")
        return set(segments)

    def _open_readable(self) -> None:
        """Without a group, starts reading the segments that may be read now."""
        if self._group is None:
            with self._changed:
                self._reads.open_readable()

    def _on_assignment(self, positions: Mapping[str, int], epoch: str) -> bool:
        """In a group, applies the segments that this member may read. True as :meth:`AssignedReads.assign` says."""
        with self._changed:
            if self._member.epoch is None:
                self._member.epoch = epoch
            elif self._member.epoch != epoch:
                log.warning(
                    "the positions of group %s of %s were set, or it was deleted, while this member was silent: it "
                    "goes on where the group is now",
                    self._group,
                    self._view.name,
                )
                self._assigned.reset(epoch)
                self._ended.read_again(self._ended.ends)
            self._ended.keep(positions)
            if any(segment not in positions for segment in self._reads.fetchers):
                self._history.due = True  # another member has it now, or retention removed it
            keeps_revoked = self._assigned.assign(positions)
            if self._events.pending:
                self._changed.notify_all()
            return keeps_revoked

    def _awaited_commits(self) -> Mapping[str, int]:
        """Called by the threads that send heartbeats."""
        with self._changed:
            return self._ended.ends

    # ---- called by the monitor

    def _on_layout_changed(self, snapshot: TopicSnapshot) -> None:
        self._history.due = True

    def _check_streams(self, now: float, late_by: float) -> None:
        with self._changed:
            fetchers = self._reads.fetchers.all()
        for fetcher in fetchers:
            fetcher.check_liveness(now, late_by)
        with self._changed:
            warnings = self._ended.warnings(now)
            if self._view.deleted is not None:
                self._changed.notify_all()
        for warning in warnings:
            log.warning("%s", warning)

    def _follow_history(self) -> None:
        self._refresh()
        self._open_readable()
        if self._refresh_failure is not None:
            self._refresh_failure = None
            self._view.filer_health.answered()

    def _on_history_failed(self, error: SmqError, since: float) -> None:
        if isinstance(error, StoreUnavailable):
            self._refresh_failure = error
            self._view.filer_health.failed(error, since)

    def _is_member(self) -> bool:
        return self._membership is not None and self._membership.joined

    @requires_lock("_changed")
    def _own_positions(self) -> dict[str, int]:
        """How far this member has returned messages of the segments that it reads, or whose ends it has to commit."""
        own = {segment: self._reads.position(segment) for segment in self._reads.fetchers}
        return own | self._ended.ends

    def _search_group_end(self) -> None:
        assert self._group_end is not None
        with self._changed:
            own = self._own_positions()
        self._group_end.search(own)

    def _load_group_losses(self) -> None:
        request = groups_pb2.GetPositionsRequest(topic=self._view.name, group=self._group or "")
        reply: groups_pb2.GroupPositions = self._groups.GetPositions(request)
        with self._changed:
            self._losses.record_of_group(reply, self._reads.position)

    def _refresh(self) -> None:
        """Reads the topic's history anew. Raises Unavailable if it stays older than the layout."""
        history, layout = self._history_reader.read()
        with self._changed:
            change = self._reads.update(history, layout)
            if self._group is not None and (change.removed or change.has_new_losses):
                self._loading_losses.due = True
            for segment in change.removed:
                self._events.ended(segment)
