"""From a primary's broker to a follower's: one stream for the small messages of all segments that they share.

What is ready at one moment goes out as one message, which the follower answers with one reply. So a message that
touches many segments costs two writes and two reads, and idle segments cost nothing but the stream's heartbeat. The
next message waits for the reply to the last one, at most 20 ms, and takes in what comes meanwhile. If several clients
write, it also waits for the spacing that ``message_spacing`` says.

A small message is written by whoever made it ready: the thread that has appended, or the one that reads the replies.
The stream's own thread does it if there is more (docs/threads.md).
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterable

import pyarrow as pa
import structlog

from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.replication.shared_link import NoPart, OutgoingPart, SharedLink
from smq_broker.replication.stream import (
    HEARTBEAT_SECONDS,
    INITIAL_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_HOLD_SECONDS,
    UPDATE_DELAY_SECONDS,
    ConnectFlight,
    ReplicationStream,
    connect,
)
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.errors import SegmentSealed, SmqError
from smq_core.model.entities import Replica
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, error_from_pb
from smq_storage.process.locks import make_rlock, requires_lock

MAX_MESSAGE_BYTES = 256 << 10
# A message up to this size is written at once. The transport takes 64 KiB that the follower has not read.
MAX_DIRECT_BYTES = 32 << 10
# How long a stream without links stays, because links of other segments may follow.
LINGER_SECONDS = 10.0
NO_SCHEMA = pa.schema([])

log = structlog.get_logger(__name__)


class SharedReplicationStream(ReplicationStream):
    """``run`` it in a thread."""

    def __init__(
        self,
        follower: Replica,
        primary_incarnation: str,
        threads: ThreadSupervisor,
        clients: ActiveClients,
        connect_flight: ConnectFlight = connect,
    ) -> None:
        super().__init__(follower, follower.broker, threads, connect_flight)
        self._primary_incarnation = primary_incarnation
        self._clients = clients
        self._wake = threading.Condition(make_rlock(BrokerLock.STREAM))
        self._numbers = itertools.count(1)
        self._links: dict[int, SharedLink] = {}
        self._ready: dict[SharedLink, None] = {}
        self._progress: dict[SharedLink, float] = {}
        """Links with a new watermark or chain end, and the time to send it without entries; sorted by that time."""
        self._retries: list[tuple[float, int, SharedLink]] = []
        """Links to open again: when, their number, the link."""
        self._heartbeat_at = 0.0
        self._waits_until = 0.0
        """When the thread of this stream looks again without being notified; 0 while it is not waiting."""
        self._empty_since = time.monotonic()
        self._closed = False

    # ---- called by links

    def add(self, link: SharedLink) -> bool:
        """False if the stream has ended."""
        with self._wake:
            if self._closed:
                return False
            self._attach(link)
            self._wake.notify()
        return True

    def mark_ready(self, link: SharedLink, *, wakes: bool) -> None:
        with self._wake:
            self._ready[link] = None
            if wakes:
                self._wake_in_time()

    def can_send_now(self) -> bool:
        return super().can_send_now() and time.monotonic() >= self._spaced_until()

    def mark_progress(self, link: SharedLink) -> None:
        with self._wake:
            if link not in self._progress:
                due = self._progress[link] = time.monotonic() + UPDATE_DELAY_SECONDS
                if self._waits_until > due:
                    self._wake.notify()

    def send_now(self) -> None:
        """Sends what is ready in this thread if it can, or leaves it to the stream's own."""
        if not self._writing.acquire(blocking=False):
            return  # who holds it looks for more afterwards
        try:
            if self.can_send_now():
                self._send(self._take_ready(), MAX_DIRECT_BYTES)
        except Exception as error:
            self._write_error = error  # for the stream's thread, which opens another one
        finally:
            self._writing.release()
            with self._wake:
                if self._write_error is not None:
                    self._wake.notify()
                elif self._ready:
                    self._wake_in_time()

    # ---- connecting

    def run(self) -> None:
        """Replicates until there were no links for a while. Blocks."""
        pause = INITIAL_BACKOFF_SECONDS
        while not self._close_if_empty():
            began = time.monotonic()
            try:
                self._run_stream()
            except SmqError as error:
                log.warning(
                    "follower.disconnected", follower=self._follower.broker, error=error.message, code=error.code
                )
                self._unanswered_since = self._unanswered_since or time.monotonic()
            finally:
                self._reopen_all()
            if time.monotonic() - began > 2.0:
                pause = INITIAL_BACKOFF_SECONDS
            time.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    def fail_links(self) -> None:
        """The thread of this stream has died for good."""
        for link in self._close():
            link.on_death()

    def _close_if_empty(self) -> bool:
        with self._wake:
            if not self._was_empty_for_long():
                return False
            self._closed = True
            return True

    @requires_lock("_wake")
    def _was_empty_for_long(self) -> bool:
        is_empty = not self._links and not self._retries
        return is_empty and time.monotonic() - self._empty_since >= LINGER_SECONDS

    @requires_lock("_wake")
    def _all_links(self) -> list[SharedLink]:
        """Also those that are to be opened again."""
        return [*self._links.values(), *(link for _, _, link in self._retries)]

    @requires_lock("_wake")
    def _take_all_links(self) -> list[SharedLink]:
        """Removes and returns all links."""
        links = self._all_links()
        self._links, self._retries, self._ready, self._progress = {}, [], {}, {}
        return links

    def _close(self) -> list[SharedLink]:
        with self._wake:
            self._closed = True
            links = self._take_all_links()
        for link in links:
            link.detach()
        return links

    @requires_lock("_wake")
    def _attach(self, link: SharedLink) -> None:
        number = next(self._numbers)
        link.attach(self, number)
        self._links[number] = link
        self._ready[link] = None

    def _reopen_all(self) -> None:
        """Lets all links be opened again, on the next stream."""
        with self._wake:
            links = self._all_links()
        for link in links:
            link.state.disconnect()
        with self._wake:
            for link in self._take_all_links():  # more may have come meanwhile
                self._attach(link)

    def _remove(self, link: SharedLink) -> None:
        with self._wake:
            self._links.pop(link.number, None)
            self._ready.pop(link, None)
            self._progress.pop(link, None)
            self._empty_since = time.monotonic()
        link.detach()

    def _hello(self) -> pb.PutOpen:
        return pb.PutOpen(
            protocol=PROTOCOL,
            incarnation=self._follower.incarnation,
            shared_replica=pb.SharedReplicaHello(primary_incarnation=self._primary_incarnation),
        )

    def _schema(self) -> pa.Schema:
        return NO_SCHEMA

    def _is_wanted(self) -> bool:
        with self._wake:
            return bool(self._links or self._retries)

    def _wake_sender(self) -> None:
        with self._wake:
            self._wake.notify()

    # ---- sending

    def _send_loop(self) -> None:
        self._heartbeat_at = time.monotonic() + HEARTBEAT_SECONDS
        while True:
            with self._writing:
                self._raise_write_error()
                if self._stream_error is not None:
                    return
                if self._answered and self._send_due():
                    continue
            with self._wake:
                if self._stream_error is not None or self._write_error is not None:
                    continue
                if self._was_empty_for_long():
                    return
                now = time.monotonic()
                self._waits_until = self._next_due_at(now)
                self._wake.wait(max(0.0, self._waits_until - now))
                self._waits_until = 0.0

    @requires_lock("_writing")
    def _send_due(self) -> bool:
        """Sends the next message if one is due."""
        now = time.monotonic()
        with self._wake:
            self._take_retries(now)
            if self._progress and next(iter(self._progress.values())) <= now:
                self._ready.update(dict.fromkeys(self._progress))  # all of them, so that they share a message
                self._progress = {}
            is_held = now < self._held_until(now)
        links = [] if is_held else self._take_ready()
        confirmed: list[tuple[SharedLink, OutgoingPart]] = []
        beats = now >= self._heartbeat_at
        if beats:
            self._heartbeat_at = now + HEARTBEAT_SECONDS
            with self._wake:
                all_links = list(self._links.values())
            confirmed = [(link, part) for link in all_links if (part := link.credit_part()) is not None]
        return self._send(links, MAX_MESSAGE_BYTES, confirmed, always=beats)

    def _spaced_until(self) -> float:
        return self._sent_at + self._clients.spacing_seconds

    def _held_until(self, now: float) -> float:
        """Until when what is ready waits. After the spacing, the reply to the last message ends the wait sooner."""
        spaced_until = self._spaced_until()
        if now < spaced_until or self._sent == self._answered:
            return spaced_until
        return self._sent_at + MAX_HOLD_SECONDS

    @requires_lock("_wake")
    def _wake_in_time(self) -> None:
        """Wakes the stream's thread, unless it will look in time at what is ready."""
        if self._waits_until > self._held_until(time.monotonic()):
            self._wake.notify()

    def _take_ready(self) -> list[SharedLink]:
        with self._wake:
            links = list(self._ready)
            self._ready = {}
            for link in links:
                self._progress.pop(link, None)
        return links

    @requires_lock("_wake")
    def _take_retries(self, now: float) -> None:
        while self._retries and self._retries[0][0] <= now:
            self._attach(heapq.heappop(self._retries)[2])

    @requires_lock("_wake")
    def _next_due_at(self, now: float) -> float:
        """Until when nothing is due unless somebody notifies."""
        if not self._answered:
            return now + HEARTBEAT_SECONDS
        due = [self._heartbeat_at]
        if self._ready:
            due.append(self._held_until(now))
        if self._progress:
            due.append(next(iter(self._progress.values())))
        if self._retries:
            due.append(self._retries[0][0])
        return min(due)

    @requires_lock("_writing")
    def _send(
        self,
        links: Iterable[SharedLink],
        max_bytes: int,
        also: Iterable[tuple[SharedLink, OutgoingPart]] = (),
        *,
        always: bool = False,
    ) -> bool:
        """Sends what these links have, as one message. False if that is nothing."""
        outgoing = list(also)
        closed: list[int] = []
        missing: list[SharedLink] = []
        size = 0
        for link in links:
            if size >= max_bytes:
                self.mark_ready(link, wakes=False)
                continue
            match link.next_part():
                case OutgoingPart() as found:
                    outgoing.append((link, found))
                    size += found.part.ByteSize()
                    if found.journal_behind:
                        missing.append(link)
                case NoPart.UNWANTED:
                    closed.append(link.number)
                    self._remove(link)
                case NoPart.TOO_LARGE:
                    closed.append(link.number)
                    self._remove(link)
                    link.on_large()
                case NoPart.JOURNAL_BEHIND:
                    missing.append(link)
                case NoPart.NOTHING:
                    pass
        message = pb.SharedReplicationBatch(parts=[it.part for _, it in outgoing])
        for number in closed:
            message.parts.add(link=number, close=True)
        if message.parts or always:
            self._count_sent()
            message.number = self._sent
            self._writer.write_metadata(message.SerializeToString())
        for link in missing:
            link.state.write_missing()
        for link, it in outgoing:  # while the follower writes its own journals
            if it.message is not None and it.message.entries:
                link.state.write_journal(it.message, it.part.header, it.part.rows)
        return bool(message.parts or always or missing)

    # ---- the reading thread

    def _handle(self, body: bytes) -> None:
        reply = parse(pb.SharedReplicationReply, body)
        if reply.HasField("error"):
            raise error_from_pb(reply.error)
        if self._count_answer():
            self._wake_sender()
        for part in reply.parts:
            with self._wake:
                link = self._links.get(part.link)
            if link is not None:
                self._deliver(link, part.reply)
        with self._wake:
            if not self._ready:
                return
        self.send_now()

    def _deliver(self, link: SharedLink, reply: pb.ReplicationReply) -> None:
        try:
            has_more = link.apply(reply)
        except SegmentSealed:
            link.state.log.info("follower.fenced")
            link.on_fenced()  # if this fails, the link is still there, and the follower is asked again
            self._remove(link)
            link.state.disconnect()
        except SmqError as error:
            pause = link.fail(error)
            link.state.disconnect()
            with self._wake:
                self._links.pop(link.number, None)
                heapq.heappush(self._retries, (time.monotonic() + pause, link.number, link))
                self._wake.notify()
        else:
            if has_more:
                self.mark_ready(link, wakes=False)
