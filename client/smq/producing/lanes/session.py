"""One producer's session for one segment, on a lane that many producers share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from smq.producing.batching.partitioning import SubBatch
from smq_core.errors import SmqError
from smq_core.model.entities import Segment
from smq_core.producing.segment_sender import NoBatch
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import requires_lock, requires_no_lock


class Session(Protocol):
    """A session for one segment. It sends what its owner's ``next_batch`` gives, and calls ``on_end`` at its end."""

    def notify(self) -> None:
        """There may be something to send now, or the session is not needed any more. The caller holds the owner's
        lock."""


class SessionOwner(Protocol):
    """What a session needs from its producer, which has given it a number."""

    @property
    def lock(self) -> threading.Lock: ...

    def next_batch(self, session: int) -> SentSubBatch | NoBatch:
        """What to send now. The caller holds the lock."""

    def is_idle(self, session: int) -> bool:
        """Whether nothing is to be sent, and nothing is unacked."""

    def on_reply(self, session: int, reply: pb.ProducerReply) -> None: ...

    def on_end(self, session: int, failure: SmqError | None, *, is_planned: bool) -> None: ...


class ProducerSession:
    """``number`` is unique on the lane, ``owned_as`` is the owner's number of it; ``hello`` opens the session.

    ``mark_ready`` is the lane's, and quick.
    """

    def __init__(
        self,
        number: int,
        *,
        segment: Segment,
        hello: pb.ProducerFrame.Open,
        owner: SessionOwner,
        owned_as: int,
        mark_ready: Callable[[ProducerSession], None],
    ) -> None:
        self.number = number
        self.segment = segment
        self.hello = hello
        self.is_announced = False
        """Whether the broker was sent ``hello``."""
        self.is_ready = False
        """Guarded by the lane's lock, as the lane is."""
        self._owner = owner
        self._owned_as = owned_as
        self._mark_ready = mark_ready

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be sent, and nothing is unacked."""
        return self._owner.is_idle(self._owned_as)

    @requires_lock("_owner.lock")
    def notify(self) -> None:
        self._mark_ready(self)

    # ---- for the lane, without its lock

    def take_batches(self, max_bytes: int, max_batches: int) -> tuple[list[SentSubBatch], NoBatch | None]:
        """The batches to send now, of at least ``max_bytes`` if that is there; and why there are no more."""
        batches: list[SentSubBatch] = []
        with self._owner.lock:
            while max_bytes > 0 and len(batches) < max_batches:
                sent = self._owner.next_batch(self._owned_as)
                if isinstance(sent, NoBatch):
                    return batches, sent
                assert isinstance(sent.sub_batch, SubBatch)
                batches.append(sent)
                max_bytes -= sent.sub_batch.cost
        return batches, None

    def deliver(self, reply: pb.ProducerReply) -> None:
        self._owner.on_reply(self._owned_as, reply)

    @requires_no_lock
    def finish(self, failure: SmqError | None, *, is_planned: bool) -> None:
        """The session has ended, by its last reply, or with the stream."""
        self._owner.on_end(self._owned_as, failure, is_planned=is_planned)
