"""The link from a segment to one follower over a stream that all segments with this follower's broker share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from smq_broker.replication.link_state import LinkState
from smq_broker.replication.stream import INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, UNRESPONSIVE_AFTER_SECONDS
from smq_broker.rows.batches import MAX_MESSAGE_BYTES
from smq_broker.rows.payloads import rows_as_batch, small_batch_of
from smq_broker.rows.replication_messages import encode_header
from smq_core.errors import NotHosted, SmqError, WrongIncarnation
from smq_core.replica.log_entries import ReplicationMessage
from smq_proto.v1 import data_pb2 as pb


class NoPart(Enum):
    """Why a link has nothing to send."""

    NOTHING = "nothing"
    JOURNAL_BEHIND = "journal behind"
    TOO_LARGE = "too large"
    """It has more to send than a shared stream takes."""
    UNWANTED = "unwanted"
    """The segment is fenced or sealed."""


@dataclass(frozen=True, slots=True)
class OutgoingPart:
    """``message`` is None in a part that opens the segment."""

    part: pb.SharedReplicationBatch.Part
    message: ReplicationMessage | None = None
    journal_behind: bool = False
    """Whether the journal lacks entries that are not in the message, because the follower has them already."""


class LinkedStream(Protocol):
    """The stream, as its links see it. All calls may be made under a segment's lock."""

    def mark_ready(self, link: SharedLink, *, wakes: bool) -> None: ...

    def mark_progress(self, link: SharedLink) -> None: ...

    def can_send_now(self) -> bool: ...

    def send_now(self) -> None: ...

    def unresponsive(self) -> bool: ...


class SharedLink:
    """``on_fenced`` is called when the follower replies that it is fenced.

    ``on_death`` is called when the thread of the stream has died for good. ``on_large`` is called when the segment
    needs its own stream.
    """

    def __init__(
        self,
        state: LinkState,
        on_fenced: Callable[[], None],
        on_large: Callable[[], None],
        on_death: Callable[[], None],
    ) -> None:
        self.state = state
        self.on_fenced = on_fenced
        self.on_large = on_large
        self.on_death = on_death
        self.number = 0
        """On its stream; a new one each time the segment is opened there."""
        self._stream: LinkedStream | None = None
        self._is_announced = False
        self._is_open = False
        self._credit = 0
        """What the follower was told that its credit is."""
        self._shares_until = 0.0
        self._failing_since: float | None = None
        self._pause = INITIAL_BACKOFF_SECONDS

    # ---- called by the segment

    @property
    def incarnation(self) -> str:
        return self.state.incarnation

    def unresponsive(self) -> bool:
        stream, failing_since = self._stream, self._failing_since
        if stream is not None and stream.unresponsive():
            return True
        return failing_since is not None and time.monotonic() - failing_since > UNRESPONSIVE_AFTER_SECONDS

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None:
        stream = self._stream
        if stream is None:
            return
        if grown:
            stream.mark_ready(self, wakes=not sends_now)
        elif progressed:
            stream.mark_progress(self)

    def can_send_now(self) -> bool:
        stream = self._stream
        return stream is not None and self._is_open and stream.can_send_now()

    def send_now(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.send_now()

    def share_for(self, seconds: float) -> None:
        """Sends large messages on the shared stream, too, because there can be no other one at present."""
        self._shares_until = time.monotonic() + seconds

    # ---- called by the stream, without its lock

    def attach(self, stream: LinkedStream, number: int) -> None:
        """The link is on this stream from now on, and has to be opened there. The caller holds the stream's lock."""
        self._stream, self.number = stream, number
        self._is_announced = self._is_open = False

    def detach(self) -> None:
        self._stream = None

    def next_part(self) -> OutgoingPart | NoPart:
        """What to send now."""
        state = self.state
        hosted = state.hosted
        with hosted.lock:
            if not state.is_wanted:
                return NoPart.UNWANTED
            if not self._is_announced:
                self._is_announced = True
                opening = pb.SharedReplicationBatch.Open(segment=hosted.name, uid=hosted.topic.uid)
                return OutgoingPart(pb.SharedReplicationBatch.Part(link=self.number, open=opening))
            if not self._is_open:
                return NoPart.NOTHING
            if state.needs_own_stream and time.monotonic() >= self._shares_until:
                return NoPart.TOO_LARGE
            message = hosted.machine.replication_for(state.incarnation, max_bytes=MAX_MESSAGE_BYTES)
            if message is None:
                return NoPart.JOURNAL_BEHIND if state.is_journal_behind else NoPart.NOTHING
            behind = not message.entries and state.is_journal_behind
        return self._encode(message, behind)

    def credit_part(self) -> OutgoingPart | None:
        """Confirms the follower's credit if it was not confirmed with entries."""
        with self.state.hosted.lock:
            if not self._is_open or not self.state.is_wanted:
                return None
            message = self.state.heartbeat()
        return self._encode(message) if message.credit != self._credit else None

    def apply(self, reply: pb.ReplicationReply) -> bool:
        """Applies a reply. Returns whether there is more to do. Raises the follower's error; see ``LinkState``."""
        first = not self._is_open
        self.state.apply(reply, first=first)
        self._is_open = True
        self._failing_since = None
        self._pause = INITIAL_BACKOFF_SECONDS
        with self.state.hosted.lock:
            return first or self.state.has_entries

    def fail(self, error: SmqError) -> float:
        """The follower has ended the link. Returns after how many seconds to open the segment there again."""
        level = self.state.log.debug if isinstance(error, NotHosted) else self.state.log.warning
        level("follower.disconnected", error=error.message, code=error.code)
        # NotHosted is an answer too: the follower has not opened the segment yet.
        self._failing_since = None if isinstance(error, NotHosted) else self._failing_since or time.monotonic()
        pause = MAX_BACKOFF_SECONDS if isinstance(error, WrongIncarnation) else self._pause
        self._pause = min(pause * 2, MAX_BACKOFF_SECONDS)
        return pause

    def _encode(self, message: ReplicationMessage, journal_behind: bool = False) -> OutgoingPart:
        self._credit = message.credit
        small = small_batch_of(message.entries)
        header = encode_header(message, small)
        part = pb.SharedReplicationBatch.Part(link=self.number, header=header)
        if not message.entries:
            return OutgoingPart(part, message, journal_behind=journal_behind)
        if small is None:
            part.rows = rows_as_batch(message.entries, self.state.hosted.wire.empty).serialize().to_pybytes()
        return OutgoingPart(part, message)
