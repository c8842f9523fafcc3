"""The public errors. Each says what happened, what to do, and whether trying again can help.

::

    SmqError
    ├── InvalidRequest            bad input; nothing was changed; the same call fails again
    │   ├── UnknownTopic
    │   ├── UnknownSegment
    │   ├── InvalidManifest
    │   ├── SchemaMismatch        carries the schema that is expected
    │   ├── MessageTooLarge
    │   └── WrongPartition        rows outside the segment's range
    ├── Unavailable (retry)       not now; the same call may succeed later
    │   ├── NotLeader             carries the leader's address, when known
    │   ├── NotHeld               this process does not hold that segment
    │   ├── NotOpenYet            a successor whose predecessors are not sealed yet
    │   ├── NoBrokers
    │   ├── StoreUnavailable
    │   └── Overloaded            memory is full; flow control asks to wait
    ├── SegmentSealed             carries the end and the successors; the batch belongs to a successor now
    ├── WrongIncarnation          the address is another process now; locate again
    ├── SequenceGap               carries the expected sequence; resend from there
    ├── ProducerFenced            a newer epoch of this producer exists
    ├── NotAtEnd                  replication: carries the follower's end
    ├── DataLost                  carries (segment, from, to)
    ├── StaleGeneration           a group's member must join again
    ├── Conflict                  a compare-and-swap was lost; read again
    ├── StoreUnfit                the store does not honour conditional writes
    └── DeliveryTimeout           no outcome was learnt in time: the messages may or may not be in the log
"""

from __future__ import annotations

from typing import ClassVar


class SmqError(Exception):
    """The base. ``code`` is its stable name on the wire; ``retry`` says whether the same call may succeed later."""

    code: ClassVar[str] = "SmqError"
    retry: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __init_subclass__(cls) -> None:
        cls.code = cls.__name__
        _BY_CODE[cls.__name__] = cls

    def __getattr__(self, name: str) -> object:
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(name)


_BY_CODE: dict[str, type[SmqError]] = {"SmqError": SmqError}


def error_of(code: str, message: str, details: dict[str, object] | None = None) -> SmqError:
    """Rebuilds an error that came over the wire; an unknown code becomes a plain SmqError."""
    return _BY_CODE.get(code, SmqError)(message, **(details or {}))


class InvalidRequest(SmqError):
    pass


class UnknownTopic(InvalidRequest):
    pass


class UnknownSegment(InvalidRequest):
    pass


class InvalidManifest(InvalidRequest):
    pass


class SchemaMismatch(InvalidRequest):
    pass


class MessageTooLarge(InvalidRequest):
    pass


class WrongPartition(InvalidRequest):
    pass


class Unavailable(SmqError):
    retry = True


class NotLeader(Unavailable):
    pass


class NotHeld(Unavailable):
    pass


class NotOpenYet(Unavailable):
    pass


class NoBrokers(Unavailable):
    pass


class StoreUnavailable(Unavailable):
    pass


class Overloaded(Unavailable):
    pass


class SegmentSealed(SmqError):
    pass


class WrongIncarnation(SmqError):
    pass


class SequenceGap(SmqError):
    pass


class ProducerFenced(SmqError):
    pass


class NotAtEnd(SmqError):
    pass


class DataLost(SmqError):
    pass


class StaleGeneration(SmqError):
    pass


class Conflict(SmqError):
    retry = True


class StoreUnfit(SmqError):
    pass


class DeliveryTimeout(SmqError):
    pass
