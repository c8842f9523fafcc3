"""What happens to a producer: calls of the program, replies of brokers, changes of the layout, and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from smq_core.errors import SmqError
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Segment
from smq_core.producing.send_queue import QueuedSubBatch


@dataclass(frozen=True, slots=True)
class Submitted:
    """Sub-batches with the segments to which the present route sends their rows."""

    parts: Sequence[tuple[Segment, QueuedSubBatch]]


@dataclass(frozen=True, slots=True)
class UploadEnded:
    """The object with a large value is stored, or failed with ``error``. Its message waits in a queue."""

    large_value: object
    error: SmqError | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The program has closed the producer, or its topic is gone."""

    error: SmqError


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """The primary has opened the session. See :meth:`SendQueue.opened`."""

    session: int
    last_sequence: int | None
    end: int
    forgotten_upto: int


@dataclass(frozen=True, slots=True)
class Acked:
    """Batches from ``first_sequence`` on are durable. None in place of an offset that is no longer known."""

    session: int
    first_sequence: int
    first_offsets: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Rejected:
    """One batch will never be in the log. The session goes on."""

    session: int
    sequence: int
    error: SmqError


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The primary replied with an error. ``SessionEnded`` follows."""

    session: int
    error: SmqError


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """``is_planned``: not by an error. Another session may be opened at once."""

    session: int
    failure: SmqError | None
    is_planned: bool


@dataclass(frozen=True, slots=True)
class Sealed:
    """The outcome of a segment, with the successors that the broker knows. ``session`` is None if it was fetched."""

    session: int | None
    outcome: SealOutcome
    successors: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """``layout`` is newer than the last one."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of a ``WakeAt`` has come."""


Event: TypeAlias = (
    Submitted
    | UploadEnded
    | Stopped
    | SessionOpened
    | Acked
    | Rejected
    | SessionFailed
    | SessionEnded
    | Sealed
    | LayoutChanged
    | Tick
)
