"""What a producer's machine wants done. The caller carries it out in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from smq_core.errors import SmqError
from smq_core.model.entities import Replica, Segment
from smq_core.producing.send_queue import DeliveredSubBatch, QueuedSubBatch


@dataclass(frozen=True, slots=True)
class FailSubBatch:
    """These rows are not in the log, or the producer has ended before anybody could know it."""

    sub_batch: QueuedSubBatch
    error: SmqError


@dataclass(frozen=True, slots=True)
class ForgetSubBatch:
    """Nobody knows whether these rows are in the log, because the segment has forgotten the producer."""

    sub_batch: QueuedSubBatch


@dataclass(frozen=True, slots=True)
class ExpireSubBatch:
    """These rows have waited too long. ``is_sent``: their outcome is still to come.

    It comes again at each check until then. ``cause`` is why the last session ended, if one has since the last ack.
    """

    sub_batch: QueuedSubBatch
    is_sent: bool
    cause: SmqError | None


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a session at the segment's primary, on its bulk lane or on the small one."""

    session: int
    segment: Segment
    is_bulk: bool


@dataclass(frozen=True, slots=True)
class NotifySession:
    """``next_batch`` may have something else for the session now."""

    session: int


@dataclass(frozen=True, slots=True)
class ReportUnreachable:
    """Report to the leader that this broker does not answer."""

    replica: Replica
    failure: SmqError | None


@dataclass(frozen=True, slots=True)
class FetchOutcomes:
    """Query brokers for ``missing_outcomes`` until that is None."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """``Tick`` at this time, in seconds."""

    at: float


@dataclass(frozen=True, slots=True)
class RecordMove:
    """The segment's partitions go to ``successors`` now, and so do ``resent`` sub-batches."""

    segment: Segment
    successors: tuple[Segment, ...]
    resent: int


@dataclass(frozen=True, slots=True)
class EndProducer:
    """Nothing more is accepted, by this error. Queues that are in flight may still get their outcome."""

    error: SmqError


Instruction: TypeAlias = (
    DeliveredSubBatch
    | FailSubBatch
    | ForgetSubBatch
    | ExpireSubBatch
    | OpenSession
    | NotifySession
    | ReportUnreachable
    | FetchOutcomes
    | WakeAt
    | RecordMove
    | EndProducer
)
