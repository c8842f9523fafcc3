"""Appends a Kafka batch to a segment, and waits until it is durable, or certainly not in the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from smq_broker.kafka.executor import LoopCalls
from smq_broker.rows.payloads import Payload, PayloadSpan, compact
from smq_broker.segments.hosted_segment import HostedSegment, ReplicationLink
from smq_core.errors import Overloaded, SegmentSealed, SmqError
from smq_core.replica.log_entries import Ack, Entry, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState

# How soon a batch is tried again that waits for memory, or for the segment to open.
RETRY_SECONDS = 0.02


class BatchAppend:
    """The append of one batch. The segment calls it under its lock, as an ``AckSink``."""

    __slots__ = ("_calls", "_done", "_entry", "_hosted", "_offset")

    def __init__(self, hosted: HostedSegment, calls: LoopCalls, loop: asyncio.AbstractEventLoop) -> None:
        self._hosted = hosted
        self._calls = calls
        self._done: asyncio.Future[int] = loop.create_future()
        self._entry: Entry | None = None
        self._offset = 0
        """The Kafka offset of its first record, once it has been appended."""

    async def append(self, batch: IncomingBatch, deadline: float) -> None:
        """Returns once the batch is in the log, or is known to be there. Await ``offset`` then.

        ``deadline`` is in monotonic seconds. Raises what ``SegmentReplica.append`` raises, and Overloaded.
        """
        while not self._try(batch):
            if time.monotonic() >= deadline:
                raise Overloaded(f"{self._hosted.name} takes no more batches at present: send this one again later")
            await asyncio.sleep(RETRY_SECONDS)

    async def offset(self, deadline: float) -> int:
        """The Kafka offset of the batch, when it is durable. Raises SegmentSealed if it is not in the log, Overloaded
        if that is not known in time, and Unavailable.
        """
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, deadline - time.monotonic())):
                return await self._done
        except TimeoutError:
            raise Overloaded(f"{self._hosted.name} has not acked a batch in time: send it again") from None
        finally:
            with self._hosted.lock:
                self._hosted.streams.discard(self)

    async def finish(self, deadline: float) -> None:
        """Waits until the segment does not need this object any more."""
        with suppress(SmqError):
            await self.offset(deadline)

    def _try(self, batch: IncomingBatch) -> bool:
        hosted = self._hosted
        with hosted as machine:
            if machine.state is ReplicaState.WAITING:
                hosted.recheck_predecessors.set()
                return False
            if machine.state is ReplicaState.OPEN and not hosted.memory.reserve(batch.nbytes):
                return False
            self._entry = machine.append(self, batch, hosted.clock.now())
            hosted.streams.add(self)
            spans: list[PayloadSpan] = []
            links: list[ReplicationLink] = []
            if self._entry is not None:
                self._offset = machine.partition_end(batch.partition_min) - batch.rows
                payload = batch.payload
                assert isinstance(payload, Payload)
                block, first = payload.location
                hosted.histogram.count(block, first, batch)
                spans = [(payload, batch.rows)] if block.is_small else []
                links = hosted.links_to_send_now()
            full = hosted.compactor.add(spans)
        for link in links:
            link.send_now()
        if full is not None:
            compact(full)
        return True

    # ---- called by the segment, under its lock

    def acked(self, acks: list[Ack]) -> None:
        offset = acks[0].first_offset
        assert offset is not None
        self._hosted.streams.discard(self)  # also if nobody waits any more, because the client has disconnected
        self._post(lambda: self._done.set_result(offset))

    def wake(self) -> None:
        """The segment has another state. Only its outcome decides about a batch that is not acked."""
        outcome, entry = self._hosted.machine.outcome, self._entry
        if outcome is None:
            return
        if entry is None or entry.end > outcome.end:
            self.fail(SegmentSealed(f"{self._hosted.name} is sealed: send the batch to its successor"))
            return
        self._post(lambda: self._done.set_result(self._offset))

    def fail(self, error: SmqError) -> None:
        self._post(lambda: self._done.set_exception(error))

    def _post(self, resolve: Callable[[], None]) -> None:
        self._calls.post(lambda: None if self._done.done() else resolve())
