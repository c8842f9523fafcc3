"""The consumer as a program sees it: batches of segments, in an order that keeps every key's."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from smq.batch import Batch
from smq.fetching import Fetcher, Plan, wait_all
from smq.inbox import Failed, Gone, Inbox, Item, Rows
from smq.losses import data_lost
from smq.membership import Membership
from smq.starting import begin, check_start
from smq_core.dag import Reader, latest_of, nodes_of
from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_core.model import SealedSegment
from smq_proto.v1 import leader_pb2 as lpb

if TYPE_CHECKING:
    from smq.leader import LeaderLink
    from smq.view import Known, TopicView

log = logging.getLogger("smq")

TICK = 0.1
REFRESH_AGAIN_AFTER = 0.5
ASK_AGAIN_FOR_MISSING = 3
PAUSE_FOR_MISSING = 0.15
AUTO_COMMIT_EVERY = 1.0

Start = Literal["earliest", "latest"] | datetime | Mapping[str, int]


class Consumer:
    """Made by :meth:`smq.Client.consumer`. For one thread at a time; iterate it, or call ``poll``.

    A segment is read only when all its predecessors have been read to their ends, so every key's messages come in the
    order in which they were sent, through splits, merges and failovers.
    """

    def __init__(
        self,
        view: TopicView,
        leader: LeaderLink,
        *,
        group: str | None,
        start: Start,
        on_loss: Literal["fail", "skip"],
        auto_commit: bool,
        max_bytes: int,
        prefetch_bytes: int,
    ) -> None:
        check_start(start, group)
        if on_loss not in ("fail", "skip"):
            raise InvalidRequest(f'on_loss is "fail" or "skip", not {on_loss!r}')
        if max_bytes < 1 or prefetch_bytes < 1:
            raise InvalidRequest("max_bytes and prefetch_bytes are more than 0")
        if auto_commit and group is None:
            raise InvalidRequest("auto_commit needs a group")
        self._view = view
        self._leader = leader
        self._group = group
        self._skip_losses = on_loss == "skip"
        self._auto_commit = auto_commit
        self._max_bytes = max_bytes
        self._inbox: Inbox[Fetcher] = Inbox(prefetch_bytes)
        # Guards what follows; the inbox's own condition, so that one wait sees both.
        self._changed = self._inbox.changed
        self._reader = Reader()
        self._sealed: dict[str, SealedSegment] = {}
        self._ends: dict[str, int] = {}
        self._fetchers: dict[str, Fetcher] = {}
        self._stopped: list[Fetcher] = []
        self._lost: set[tuple[str, int, int | None]] = set()
        self._losses: list[SmqError] = []
        self._missing: set[str] = set()
        self._ask_for_losses = group is not None
        self._asked_for_losses = False
        self._uncommitted: dict[str, int] = {}
        self._working_on: str | None = None
        self._ordinal = random.randrange(1 << 16)
        self._stale = False
        self._closed = False
        self._last_commit = time.monotonic()
        self._end = threading.Event()
        if isinstance(start, Mapping):
            view.catch_up(latest_of(start))
        self._refresh()
        self._since = begin(view, self._reader, start, self._sealed.values(), self._ends) if group is None else 0
        # What counted as read from the start on: its losses are not this reader's.
        self._before: set[str] = set()
        if start != "earliest":
            self._before = {s for s in self._sealed if self._reader.is_read(s)}
        self._membership: Membership | None = None
        with self._changed:
            self._take_losses()
        if group is None:
            self._fetch_readable()
        else:
            self._membership = Membership(leader, view.name, group, str(start), self._assigned)
        view.listen(self._layout_changed)
        self._keeper = threading.Thread(target=self._keep, name=f"smq-consumer-{view.name}", daemon=True)
        self._keeper.start()

    def poll(self, timeout: float | None = None) -> Batch | None:
        """The next batch, or None when none came within ``timeout`` seconds (None: no limit).

        Raises DataLost (``on_loss="fail"``), UnknownTopic when the topic was deleted, InvalidRequest when closed.
        """
        self._done_with_last()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                if self._closed:
                    raise InvalidRequest("the consumer is closed")
                if self._losses and not self._skip_losses:
                    raise self._losses.pop(0)
                self._losses.clear()
                found = self._inbox.take(self._max_bytes)
                if found is None:
                    self._raise_what_ended_it()
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    self._changed.wait(left)
                    continue
            batch = self._hand_out(*found)
            if batch is not None:
                return batch

    def __iter__(self) -> Iterator[Batch]:
        """Batches without end, until the consumer is closed."""
        while not self._closed:
            batch = self.poll()
            if batch is not None:
                yield batch

    def commit(self, positions: Mapping[str, int] | None = None) -> dict[str, int]:
        """Commits for the group: the given positions, or everything handed out so far. Returns what was committed.

        Segments that went to another member meanwhile are left out: it reads them again from the last commit. Raises
        InvalidRequest without a group, Unavailable when no leader answers.
        """
        if self._membership is None:
            raise InvalidRequest("a consumer without a group has nothing to commit to: give it a group")
        with self._changed:
            wanted = dict(self._uncommitted if positions is None else positions)
        if not wanted:
            return {}
        committed = self._membership.commit(wanted)
        with self._changed:
            for segment, offset in wanted.items():
                if self._uncommitted.get(segment, -1) <= offset:
                    self._uncommitted.pop(segment, None)
            ended = any(segment not in self._fetchers for segment in committed)
            if self._working_on not in self._uncommitted:
                self._working_on = None
            free = self._working_on is None
        self._last_commit = time.monotonic()
        if free:
            self._membership.released()
        if ended:
            self._membership.beat()  # successors may be readable now
        return committed

    @property
    def positions(self) -> dict[str, int]:
        """How far this consumer has handed out, ``{segment: next offset}``."""
        with self._changed:
            return dict(self._reader.committed())

    @property
    def assignment(self) -> frozenset[str]:
        """The segments that this consumer reads now."""
        with self._changed:
            return frozenset(self._fetchers)

    def at_end(self) -> bool:
        """True when all that was durable when last heard of has been handed out. A moment later there may be more."""
        with self._changed:
            if self._stale or (self._membership is not None and not self._membership.joined):
                return False
            return all(
                f.heard and not f.may_end() and self._position(s) >= f.watermark for s, f in self._fetchers.items()
            )

    def close(self) -> None:
        """Leaves the group (after a last commit with ``auto_commit``) and ends all reading. Repeatable."""
        self._close(commit=self._auto_commit)

    def _close(self, commit: bool) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._view.unlisten(self._layout_changed)
        self._end.set()
        if self._membership is not None:
            if commit:
                self._try_commit()
            self._membership.leave()
        with self._changed:
            fetchers = [*self._fetchers.values(), *self._stopped]
            self._fetchers = {}
        for fetcher in fetchers:
            fetcher.stop()
        self._keeper.join(5)
        wait_all(fetchers, 5)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What the program failed on is not done: another member shall have it.
        self._close(commit=self._auto_commit and error is None)

    # ---- handing out

    def _done_with_last(self) -> None:
        """The program asks for more: it is done with the batch that it had."""
        if self._membership is None:
            return
        self._working_on = None
        due = self._membership.holding or time.monotonic() - self._last_commit >= AUTO_COMMIT_EVERY
        if self._auto_commit and due:
            self._try_commit()
        self._membership.released()

    def _raise_what_ended_it(self) -> None:
        if self._membership is not None and self._membership.failure is not None:
            raise self._membership.failure
        gone = self._view.deleted
        if gone is not None:
            raise gone

    def _try_commit(self) -> None:
        try:
            self.commit()
        except SmqError as error:
            log.warning("the positions of group %s could not be committed yet: %s", self._group, error.message)

    def _hand_out(self, fetcher: Fetcher, item: Item) -> Batch | None:
        if isinstance(item, Failed):
            raise item.error
        segment = fetcher.segment
        with self._changed:
            if self._fetchers.get(segment) is not fetcher:
                return None  # taken away meanwhile
            if isinstance(item, Rows):
                self._reader.advance(segment, item.end)
                if self._membership is not None:
                    self._uncommitted[segment] = item.end
                    self._working_on = segment
                return Batch(item.table, segment, item.first, self._reader.committed())
            if isinstance(item, Gone):
                self._lose(segment, item.start, item.stop)
                self._reader.advance(segment, item.stop if item.stop is not None else item.start)
                return None
            self._segment_ended(segment, item.end)
        self._fetch_readable()
        return None

    def _segment_ended(self, segment: str, end: int) -> None:
        if segment not in self._reader.nodes:
            self._reader.update(nodes_of(self._sealed.values(), self._view.known.layout))
        if segment in self._reader.nodes:
            self._reader.ended(segment, end)
        self._take_losses()
        self._reader.advance(segment, end)
        self._retire(segment)
        if self._membership is not None:
            self._membership.beat()

    def _position(self, segment: str) -> int:
        return self._reader.positions.get(segment, 0)

    def _take_losses(self) -> None:
        for loss in self._reader.losses:
            # Of a segment that is gone altogether nobody knows any more how far it went.
            self._lose(loss.segment, loss.start, loss.stop if loss.stop > loss.start else None)
        self._reader.losses.clear()

    def _lose(self, segment: str, start: int, stop: int | None) -> None:
        """Notes a loss, each once."""
        if any(s == segment and a <= start and (b is None or (stop or a) <= b) for s, a, b in self._lost):
            return
        self._lost.add((segment, start, stop))
        self._changed.notify_all()
        log.warning("messages of %s are gone: %s..%s", segment, start, stop)
        self._losses.append(data_lost(segment, start, stop))

    # ---- what to read

    def _fetch_readable(self) -> None:
        """Without a group: starts reading what may be read now."""
        if self._membership is not None or self._group is not None:
            return
        with self._changed:
            for sealed in self._sealed.values():
                # One that was lost whole has nothing to be fetched.
                whole = sealed.end == 0 and sealed.lost_from is not None
                if whole and sealed.name not in self._before and self._reader.is_read(sealed.name):
                    self._lose(sealed.name, 0, sealed.lost_to)
            for segment in self._reader.readable():
                if segment not in self._fetchers and not self._closed:
                    self._fetch(segment)

    def _fetch(self, segment: str) -> None:
        plan = Plan(segment, self._position(segment), self._sealed.get(segment), self._since)
        self._fetchers[segment] = Fetcher(self._view, self._inbox, plan, self._max_bytes, self._ordinal)
        self._ordinal += 1

    def _assigned(self, positions: Mapping[str, int]) -> bool:
        """In a group: takes in what this member may read.

        True: something was taken away that the program works on, or that is still to be committed for it.
        """
        with self._changed:
            for segment in [s for s in self._fetchers if s not in positions]:
                self._stale = True  # another member has it now, or retention has removed it
                self._retire(segment)
            for segment, position in positions.items():
                if segment in self._fetchers and position > self._position(segment):
                    self._retire(segment)  # another member had it in between and came further
                if segment not in self._fetchers and not self._closed and not self._read_to_its_end(segment):
                    self._reader.positions[segment] = position
                    self._fetch(segment)
            if self._auto_commit:
                return any(segment not in positions for segment in self._uncommitted)
            gone = self._working_on is not None and self._working_on not in positions
            return gone and self._working_on in self._uncommitted

    def _retire(self, segment: str) -> None:
        fetcher = self._fetchers.pop(segment)
        fetcher.stop()
        self._stopped = [f for f in self._stopped if f.alive] + [fetcher]

    def _read_to_its_end(self, segment: str) -> bool:
        """It is still assigned only because the end is not committed yet."""
        node = self._reader.nodes.get(segment)
        return node is not None and node.end is not None and self._uncommitted.get(segment) == node.end

    def _layout_changed(self, known: Known) -> None:
        self._stale = True

    def _keep(self) -> None:
        """The keeper's thread: gives up what is silent, learns of new segments."""
        retry_at = 0.0
        while not self._end.wait(TICK):
            now = time.monotonic()
            with self._changed:
                fetchers = list(self._fetchers.values())
            for fetcher in fetchers:
                fetcher.check(now)
            if self._view.deleted is not None:
                with self._changed:
                    self._changed.notify_all()
            if self._stale and now >= retry_at:
                self._stale = False
                try:
                    self._refresh()
                    self._fetch_readable()
                except SmqError as error:
                    log.info("the history of %s: %s", self._view.name, error.message)
                    self._stale, retry_at = True, now + REFRESH_AGAIN_AFTER
            if self._ask_for_losses and now >= retry_at and self._membership is not None and self._membership.joined:
                self._ask_for_losses = False
                try:
                    self._tell_losses_of_the_group()
                except SmqError as error:
                    log.info("the losses of group %s: %s", self._group, error.message)
                    self._ask_for_losses, retry_at = True, now + REFRESH_AGAIN_AFTER

    def _tell_losses_of_the_group(self) -> None:
        """What retention removed before the group had read it. What is older than its last commit was told before."""
        request = lpb.PositionsRequest(topic=self._view.name, group=self._group or "")
        reply: lpb.GroupPositions = self._leader.call("Positions", request)
        with self._changed:
            for loss in reply.lost:
                start = max(loss.start, self._position(loss.segment))
                if loss.old and not self._asked_for_losses:
                    self._lost.add((loss.segment, loss.start, loss.stop))
                elif start < loss.stop:
                    self._lose(loss.segment, start, loss.stop)
            self._asked_for_losses = True

    def _refresh(self) -> None:
        """Learns the DAG: the layout first, then the index, which has what left the layout.

        A predecessor that neither has was removed by retention, or the index that was told is an old one: it is asked
        for again. Raises Unavailable when it stays old.
        """
        layout = self._view.known.layout
        past = self._view.past()
        for _ in range(ASK_AGAIN_FOR_MISSING):
            if not past.unexplained(layout) - self._missing or self._end.wait(PAUSE_FOR_MISSING):
                break
            past = self._view.past()
        else:
            if past.removed is not None:
                raise Unavailable(f"the history of {self._view.name} that was told is older than its layout")
            self._missing |= past.unexplained(layout)
        nodes = nodes_of(past.sealed.values(), layout)
        with self._changed:
            self._ends = {**{name: s.end for name, s in self._sealed.items()}, **past.ends}
            self._sealed = dict(past.sealed)
            for segment in [s for s in self._reader.nodes if s not in nodes]:
                self._removed(segment)
            self._reader.update(nodes)
            self._take_losses()

    def _removed(self, segment: str) -> None:
        """Retention has removed a segment; what this reader had not read of it yet is lost to it.

        What a group had still to read the leader knows; what this member was handed out beyond the end, only it.
        """
        end = self._ends.get(segment)
        if self._group is None:
            self._reader.removed(segment, end)
        else:
            self._ask_for_losses = True
            if end is not None:
                self._reader.ended(segment, end)
            del self._reader.nodes[segment]
        if segment in self._fetchers:
            self._retire(segment)
