"""The thread of one lane: opens its stream, sends what waits, opens it again when it breaks."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from smq.cutting import Piece
from smq.stream import SegmentStream
from smq_core.errors import InvalidRequest, NotHeld, NotOpenYet, ProducerFenced, SmqError
from smq_core.producing import Lane, LaneState

if TYPE_CHECKING:
    from smq.engine import Engine

log = logging.getLogger("smq")

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.25


class LaneRunner:
    """Drives one lane. Its fields are guarded by the engine's lock; ``wake`` is a condition on it.

    ``ahead``: its stream is opened once although there is nothing to send yet.
    """

    def __init__(self, engine: Engine, lane: Lane, *, ahead: bool = False) -> None:
        self.engine = engine
        self.lane = lane
        self.wake = threading.Condition(engine.lock)
        self.stream: SegmentStream | None = None
        self.failure: SmqError | None = None
        self.moved_at: float | None = None
        """When it was first known that the segment is being replaced; its outcome is wanted then."""
        self.acked_at = 0.0
        self._ahead = ahead
        self._pause = 0.0
        self._thread = threading.Thread(target=self._run, name=f"smq-lane-{lane.segment.name}", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self.engine.lock:
                if not self._wait_for_work():
                    return
                stream = self.stream = SegmentStream(
                    self.lane.segment,
                    self.engine.uid,
                    self.engine.producer_id,
                    self.engine.epoch,
                    self.engine.schema,
                    self.engine.view.network,
                    self.engine.on_reply,
                    self.engine.on_end,
                )
                self.failure = None
            failure = self._use(stream)
            with self.engine.lock:
                if self.stream is stream:
                    self.stream = None
                    self.lane.broke()
                failure = failure or self.failure
            self._think(failure)

    def _wait_for_work(self) -> bool:
        """Waits, holding the lock, until a stream is to be opened. False: the lane is done, or all is being closed."""
        retry_at = time.monotonic() + self._pause
        while True:
            if self.engine.stopping or self.lane.state is LaneState.DONE:
                return False
            left = retry_at - time.monotonic()
            wanted = self.moved_at is None and (self._ahead or not self.lane.idle)
            if wanted and left <= 0:
                self._ahead = False
                return True
            self.wake.wait(left if wanted and left > 0 else None)

    def _use(self, stream: SegmentStream) -> SmqError | None:
        """Opens the stream and sends until it ends."""
        try:
            stream.open()
        except SmqError as error:
            return stream.end(graceful=False) or error
        graceful = self._send(stream)
        return stream.end(graceful)

    def _send(self, stream: SegmentStream) -> bool:
        free = False
        while True:
            with self.engine.lock:
                while True:
                    if self.stream is not stream:
                        return False
                    if self.engine.stopping or self.lane.state is LaneState.DONE:
                        return True
                    free = free or (not self.lane.idle and self.engine.lanes.may_send(self.lane))
                    sent = self.lane.to_send() if free else None
                    if sent is not None:
                        break
                    self.wake.wait()
            piece = sent.piece
            assert isinstance(piece, Piece)
            try:
                stream.write(sent.sequence, piece.batch)
            except (pa.ArrowException, OSError) as error:
                log.debug("writing to %s failed: %s", stream.segment.name, error)
                return False

    def _think(self, failure: SmqError | None) -> None:
        """After a stream has ended: is there any use in another one, and when?"""
        if isinstance(failure, (ProducerFenced, InvalidRequest)):
            self.engine.fail(failure)
            return
        if self.engine.stopping or self.lane.state is LaneState.DONE:
            return
        if failure is not None:
            log.info("the stream to %s ended: %s", self.lane.segment.name, failure.message)
        if isinstance(failure, (NotOpenYet, NotHeld)):
            self._pause = FIRST_PAUSE
        else:
            self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, self._pause * 2))
            self.engine.could_not_reach(self.lane.segment.primary, failure)

    def opened(self) -> None:
        """The stream works: the next break is a new story."""
        self._pause = 0.0
