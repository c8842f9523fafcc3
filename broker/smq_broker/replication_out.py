"""From a primary to one follower: one Flight stream, reopened when it breaks, for as long as the segment is open.

Two threads for each link: this one writes what waits, the other reads the follower's replies. The link has a
connection of its own, so that a stuck one can be given up without harm to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.batches import MAX_MESSAGE
from smq_broker.held import Held
from smq_broker.payloads import rows_of
from smq_core.entries import ReplicationMessage
from smq_core.errors import NotHeld, SegmentSealed, SmqError, Unavailable, WrongIncarnation
from smq_core.model import Replica
from smq_core.replica import State
from smq_proto.flight import from_flight, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, error_from_pb

HEARTBEAT = 1.0
NEWS_AFTER = 0.02
SILENT_AFTER = 0.5
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5

# A write to a peer that does not read any more can be ended by the transport only: a ping each second, and the
# connection is given up when none is answered for a second. The peer's replies to our heartbeats keep it from
# taking the pings for an attack.
CONNECTION = [
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class FollowerLink:
    """Keeps one follower of one segment fed. ``fenced`` is called when the follower turns out to be fenced."""

    def __init__(self, held: Held, follower: Replica, fenced: Callable[[Held], None]) -> None:
        self._held = held
        self._follower = follower
        self._fenced = fenced
        self._log = held.log.bind(follower=follower.broker)
        self._broken: SmqError | None = None
        self._sent = 0
        self._answered = 0
        self._news_at: float | None = None
        self._credit = 0
        self.rests = False
        self._unheard_since: float | None = None

    @property
    def incarnation(self) -> str:
        return self._follower.incarnation

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"to-{self._follower.broker}", daemon=True).start()

    def silent(self) -> bool:
        """True when the follower owes an answer for 500 ms or more."""
        since = self._unheard_since
        return since is not None and time.monotonic() - since > SILENT_AFTER

    # ---- connecting

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._held.machine.state in (State.WAITING, State.OPEN):
            began = time.monotonic()
            try:
                self._session()
            except SegmentSealed:
                self._log.info("follower.fenced")
                self._fenced(self._held)
                return
            except SmqError as error:
                level = self._log.debug if isinstance(error, NotHeld) else self._log.warning
                level("follower.stream_broke", error=error.message, code=error.code)
                if isinstance(error, WrongIncarnation):
                    pause = LONGEST_PAUSE
                # One that does not hold the segment yet has answered all the same.
                answered = isinstance(error, NotHeld)
                self._unheard_since = None if answered else self._unheard_since or time.monotonic()
            except Exception:
                self._log.exception("follower.stream_failed")
            with self._held as machine:
                machine.follower_lost(self.incarnation)
            if time.monotonic() - began > 2.0:
                pause = FIRST_PAUSE
            self._held.fenced.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _session(self) -> None:
        """One stream, until it breaks (raises SmqError) or the segment ends."""
        self._broken = None
        self._sent, self._answered = 1, 0
        self._unheard_since = self._unheard_since or time.monotonic()
        client = fl.connect(f"grpc://{self._follower.address}", generic_options=CONNECTION)
        hello = pb.PutOpen(
            protocol=PROTOCOL,
            segment=self._held.name,
            incarnation=self.incarnation,
            replica=pb.ReplicaHello(primary_incarnation=self._held.incarnation),
            uid=self._held.topic.uid,
        )
        descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
        try:
            writer, reader = client.do_put(descriptor, self._held.wire.message)
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error) from error
        replies = threading.Thread(target=self._read, args=(reader,), name="replies", daemon=True)
        replies.start()
        try:
            self._feed(writer)
        except (pa.ArrowException, OSError) as error:
            replies.join()
            raise self._closed(writer, error) from error
        else:
            self._finish(writer, replies)
        if self._broken is not None and not (isinstance(self._broken, _Ended) and self._held.fenced.is_set()):
            raise self._broken

    def _finish(self, writer: Any, replies: threading.Thread) -> None:
        """In this order: closing a writer while its replies are being read would hang."""
        try:
            writer.done_writing()
            replies.join()
            writer.close()
        except (pa.ArrowException, OSError) as error:
            if self._broken is None or isinstance(self._broken, _Ended):
                self._broken = from_flight(error)

    def _closed(self, writer: Any, error: BaseException) -> SmqError:
        """The real reason for which a write failed: what the follower said, or what closing tells."""
        if self._broken is not None and not isinstance(self._broken, _Ended):
            return self._broken
        try:
            writer.close()
        except (pa.ArrowException, OSError) as reason:
            return from_flight(reason)
        return from_flight(error)

    # ---- the writing thread

    def _feed(self, writer: Any) -> None:
        held = self._held
        while True:
            with held.lock:
                message = self._next()
                while message is None:
                    if self._broken is not None or held.machine.state not in (State.WAITING, State.OPEN):
                        return
                    message = self._wait() or self._next()
            if self._sent == self._answered:
                self._unheard_since = time.monotonic()
            self._sent += 1
            metadata = _encode(message)
            if message.entries:
                writer.write_with_metadata(rows_of(message.entries), metadata)
            else:
                writer.write_metadata(metadata)

    def _next(self) -> ReplicationMessage | None:
        """What waits for the follower: entries at once, mere news 20 ms after the last message. Lock held."""
        machine = self._held.machine
        kind = machine.replication_waits(self.incarnation)
        now = time.monotonic()
        if kind == "entries":
            self._news_at = now + NEWS_AFTER
        elif kind == "news":
            self._news_at = self._news_at or now + NEWS_AFTER
            if now < self._news_at:
                return None
            self._news_at = None
        else:
            if self._news_at is not None and now >= self._news_at:
                self._news_at = None
            return None
        return machine.replication_for(self.incarnation, max_bytes=MAX_MESSAGE)

    def _wait(self) -> ReplicationMessage | None:
        """Until something may wait for the follower; a heartbeat when nothing did for a second. Lock held.

        Soon after a message this looks for news by itself; only one that rests has to be woken for mere news.
        """
        if self._news_at is not None:
            self._held.grown.wait(max(0.001, self._news_at - time.monotonic()))
            return None
        self.rests = True
        woken = self._held.grown.wait(HEARTBEAT)
        self.rests = False
        if woken or not self._answered:
            return None
        machine = self._held.machine
        credit = machine.credit_kept(self.incarnation)
        return ReplicationMessage(0, (), machine.watermark, machine.chain_end, credit)

    # ---- the reading thread

    def _read(self, reader: Any) -> None:
        try:
            while (body := reader.read()) is not None:
                self._heard(parse(pb.ReplicationReply, body))
            self._break(_Ended("the follower ended the stream"))
        except SmqError as error:
            self._break(error)
        except (pa.ArrowException, OSError) as error:
            self._break(from_flight(error))

    def _heard(self, reply: pb.ReplicationReply) -> None:
        if reply.HasField("error"):
            raise error_from_pb(reply.error)
        first = not self._answered
        self._answered += 1
        self._unheard_since = None if self._answered >= self._sent else time.monotonic()
        with self._held as machine:
            if first:
                machine.follower_connected(self.incarnation, reply.end, reply.credit)
                self._held.grown.notify_all()
                self._held.room.notify_all()
                self._log.info("follower.connected", end=reply.end, credit=reply.credit)
            else:
                if reply.credit and reply.credit != self._credit:
                    machine.follower_grants(self.incarnation, reply.credit)
                    self._held.room.notify_all()
                machine.follower_acked(self.incarnation, reply.end)
            self._credit = reply.credit or self._credit

    def _break(self, error: SmqError) -> None:
        with self._held.lock:
            if self._broken is None:
                self._broken = error
            self._held.grown.notify_all()


class _Ended(Unavailable):
    """The stream ended without a reason; closing it may tell one."""


def _encode(message: ReplicationMessage) -> bytes:
    return pb.ReplicationBatch(
        base_offset=message.base_offset,
        entries=[
            pb.ReplicationBatch.Entry(
                producer=entry.batch.id.producer,
                epoch=entry.batch.id.epoch,
                sequence=entry.batch.id.sequence,
                rows=entry.batch.rows,
                appended=entry.appended,
                partition_min=entry.batch.partition_min,
                partition_max=entry.batch.partition_max,
            )
            for entry in message.entries
        ],
        watermark=message.watermark,
        chain_end=message.chain_end,
        credit=message.credit,
    ).SerializeToString()
