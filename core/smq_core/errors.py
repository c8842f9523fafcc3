"""The public errors. Each class says whether a retry helps and declares what the caller needs to recover.

::

    SmqError
    ├── InvalidRequest            bad input: nothing was changed, and the same call fails again
    │   ├── UnknownTopic
    │   ├── UnknownSegment
    │   ├── SpecRejected          names the field of the Topic spec
    │   ├── SchemaMismatch        carries the columns that are expected
    │   ├── MessageTooLarge       carries the limit
    │   ├── WrongPartition        rows outside the segment's range
    │   └── ReferenceRejected     names the upload, and what is wrong with a reference to it
    ├── Unavailable (retry)       not now: the same call may succeed later
    │   ├── Unreachable           the other side of this call did not answer
    │   ├── NotLeader             carries the leader's address, if it is known
    │   ├── NotHosted             this process does not host that segment
    │   ├── NotOpenYet            a successor whose predecessors are not sealed yet
    │   ├── NoBrokers
    │   ├── StoreUnavailable      the store failed: nothing was written
    │   │   ├── StoreStateUnknown the write may have happened, or may still happen
    │   │   ├── StoreDenied       the store refuses the credentials; a retry does not help
    │   │   └── BucketMissing     the store has no such bucket; a retry does not help
    │   └── Overloaded            memory is full, and the call waited as long as it may
    │       └── QuotaExceeded     an identity has as many streams as its quota allows: carries which
    ├── Unauthenticated           nobody knows who the caller is: its token or certificate is missing or wrong
    ├── PermissionDenied          the caller is known and may not do this: carries who, and what right it lacks
    │   └── GrantMissing (retry)  carries the topic and the right whose grant has to be presented to this broker
    ├── SegmentSealed             the batch belongs to a successor
    ├── WrongIncarnation          another process has this address: locate the topic again
    ├── SequenceGap               carries the sequence from which to resend
    ├── ProducerFenced            a newer epoch of this producer exists
    ├── OffsetMismatch            replication: carries the follower's end
    ├── JournalIncomplete         carries how far the journal of a former process reaches
    ├── DataLost                  carries the range of offsets that is gone
    ├── PinExpired                a reader's pin has ended: begin the read again
    ├── StaleGeneration           a group's member must join again
    ├── Conflict (retry)          another writer won a compare-and-swap: read again
    ├── StoreUnsupported          the store cannot do what is needed, such as conditional writes
    ├── CorruptChunk              a chunk in the filer cannot be decoded
    ├── CorruptDocument           a JSON object in the filer cannot be decoded
    ├── PartlySent                a call sent a part of its messages, and carries the delivery of these
    ├── DeliveryUnknown           the log forgot this producer: the messages may or may not be in the log
    └── DeliveryTimeout           no outcome came in time: the messages may or may not be in the log
"""

# Annotations are not postponed here, because the client shows these classes as its own, and whatever reads the types of
# their fields would look names up in its module.
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

# How many existing names an error lists.
SHOWN_NAMES = 10


@dataclass(eq=False, kw_only=True)
class SmqError(Exception):
    """The base. ``code`` is its stable name on the wire; ``retry`` says whether the same call may succeed later."""

    code: ClassVar[str] = "SmqError"
    retry: ClassVar[bool] = False

    message: str = dataclasses.field(kw_only=False)

    def __init_subclass__(cls) -> None:
        cls.code = cls.__name__
        _CLASS_OF_CODE[cls.__name__] = cls

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.field_values())

    def field_values(self) -> dict[str, object]:
        """The declared fields besides the message, by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "message"}


def _rebuild(cls: type[SmqError], message: str, values: dict[str, Any]) -> SmqError:
    return cls(message, **values)


_CLASS_OF_CODE: dict[str, type[SmqError]] = {"SmqError": SmqError}


def error_class(code: str) -> type[SmqError]:
    """The class with that code; an unknown code, as of a newer version, is a plain SmqError."""
    return _CLASS_OF_CODE.get(code, SmqError)


class InvalidRequest(SmqError):
    """The input is wrong. Nothing was changed, and the same call fails again."""


@dataclass(eq=False, kw_only=True)
class UnknownTopic(InvalidRequest):
    """There is no such topic."""

    topic: str = ""

    @classmethod
    def among(cls, topic: str, known: Iterable[str]) -> "UnknownTopic":
        """The error for a topic that is not among these, of which it names some."""
        names = sorted(known)
        shown = ", ".join([*names[:SHOWN_NAMES], *(["…"] if len(names) > SHOWN_NAMES else [])]) or "none"
        advice = "create it by `smq topic create` or a manifest"
        return cls(f"there is no topic {topic} (existing topics: {shown}): {advice}", topic=topic)


@dataclass(eq=False, kw_only=True)
class UnknownSegment(InvalidRequest):
    """The topic has no such segment."""

    segment: str = ""


@dataclass(eq=False, kw_only=True)
class SpecRejected(InvalidRequest):
    """The Topic spec is not accepted."""

    field: str = ""
    """The path of the field that is wrong, such as ``spec.segments.min``."""


@dataclass(eq=False, kw_only=True)
class SchemaMismatch(InvalidRequest):
    """The rows do not fit the topic's columns."""

    topic: str = ""
    expected: str = ""
    """The columns that the topic has."""
    difference: tuple[str, ...] = ()
    """What differs, an entry for each column, if the topic's schema changed while the messages were on their way."""


@dataclass(eq=False, kw_only=True)
class MessageTooLarge(InvalidRequest):
    """A message or a batch is larger than allowed."""

    size: int | None = None
    """In bytes."""
    limit: int | None = None
    """In bytes."""


@dataclass(eq=False, kw_only=True)
class WrongPartition(InvalidRequest):
    """A batch has rows outside the segment's range of partitions."""

    segment: str = ""


@dataclass(eq=False, kw_only=True)
class ReferenceRejected(InvalidRequest):
    """A reference to an upload is not published. Nothing of it is in the log."""

    upload: str = ""
    """The file's name below ``_uploads/<topic uid>/``."""
    field: str = ""
    """What is wrong: a field of the reference or of the upload's footer, or ``age``."""


class Unavailable(SmqError):
    """Not now: the same call may succeed later."""

    retry = True


class Unreachable(Unavailable):
    """The other side of this call did not answer: it may or may not have carried out the request.

    Only the caller itself raises it. A server that cannot reach a third process answers Unavailable.
    """


@dataclass(eq=False, kw_only=True)
class NotLeader(Unavailable):
    """The operator that was called does not lead."""

    leader: str = ""
    """The ``host:port`` of the one that does; empty if it is not known."""


@dataclass(eq=False, kw_only=True)
class NotHosted(Unavailable):
    """The broker does not host that segment."""

    segment: str = ""
    primary: str = ""
    """The address of the segment's primary, if this broker is a follower."""
    certain: bool = False
    """In answers to seal requests: whether this replica certainly acked nothing that is in no chunk, and never will.

    False if it may have hosted the segment, and its journal would not show it.
    """


@dataclass(eq=False, kw_only=True)
class NotOpenYet(Unavailable):
    """The segment is a successor whose predecessors are not sealed yet."""

    segment: str = ""


class NoBrokers(Unavailable):
    """There are too few brokers to place a segment."""


@dataclass(eq=False, kw_only=True)
class StoreUnavailable(Unavailable):
    """The store failed or is away. Nothing was written, unless this is a StoreStateUnknown."""

    path: str = ""


class StoreStateUnknown(StoreUnavailable):
    """A write got no clear answer: it may have happened, or may still happen."""


class StoreDenied(StoreUnavailable):
    """The store refuses these credentials. A retry does not help until an administrator changes something."""

    retry = False


class BucketMissing(StoreUnavailable):
    """The store has no such bucket. A retry does not help until an administrator changes something."""

    retry = False


@dataclass(eq=False, kw_only=True)
class Overloaded(Unavailable):
    """Memory is full."""

    in_flight: int | None = None
    """The bytes that are on their way."""


@dataclass(eq=False, kw_only=True)
class QuotaExceeded(Overloaded):
    """The identity has as many streams of the topic at one broker as its quota allows."""

    identity: str = ""
    topic: str = ""
    limit: int = 0


class Unauthenticated(SmqError):
    """The caller has no token or certificate, or one that is wrong or has expired. Nothing was changed."""


@dataclass(eq=False, kw_only=True)
class PermissionDenied(SmqError):
    """The caller is known and may not do this. Nothing was changed."""

    identity: str = ""
    access: str = ""
    """The right that is missing, in the terms of Kubernetes RBAC."""


@dataclass(eq=False, kw_only=True)
class GrantMissing(PermissionDenied):
    """The caller has to present a grant of this right to this broker. The leader gives it one if it has the right."""

    retry = True
    topic: str = ""
    right: str = ""


def is_denial(error: SmqError) -> bool:
    """Whether the caller may not do this, or nobody knows who it is, and no retry changes that."""
    return isinstance(error, (PermissionDenied, Unauthenticated)) and not error.retry


@dataclass(eq=False, kw_only=True)
class SegmentSealed(SmqError):
    """The segment takes no more batches: they belong to its successors."""

    segment: str = ""


@dataclass(eq=False, kw_only=True)
class WrongIncarnation(SmqError):
    """Another process has this address now: locate the topic again."""

    incarnation: str = ""
    """The incarnation of the process that answered."""


@dataclass(eq=False, kw_only=True)
class SequenceGap(SmqError):
    """A batch is missing between the last one that the replica has and this one."""

    expected: int
    """The sequence from which to resend."""


@dataclass(eq=False, kw_only=True)
class ProducerFenced(SmqError):
    """A newer epoch of this producer exists, or another producer uses its id and epoch."""

    epoch: int | None = None
    """The newer epoch, if there is one."""


@dataclass(eq=False, kw_only=True)
class OffsetMismatch(SmqError):
    """A batch was replicated at an offset that is not the follower's end."""

    end: int
    """The follower's end."""


@dataclass(eq=False, kw_only=True)
class JournalIncomplete(SmqError):
    """A process does not have all that its former incarnation held of a segment, so another replica should seal it."""

    end: int
    """The offset after the last message that was recovered."""
    watermark: int = 0
    """The highest watermark that is known here: messages below it were acked."""


@dataclass(eq=False, kw_only=True)
class DataLost(SmqError):
    """Messages are gone: removed by retention before they were read, lost with all replicas, or in a file that is gone.

    They are possibly gone if not ``certain``.
    """

    segment: str
    start: int
    """The first offset that is gone."""
    stop: int
    """The offset after the last one that is known to be gone."""
    at_least: bool = False
    """Messages from ``stop`` on may be gone, too: nobody knows how many were acked."""
    path: str = ""
    """The file that had the messages, if it alone is gone or was altered."""

    @property
    def certain(self) -> bool:
        """Whether any message is known to be gone. If not, ``stop`` equals ``start``."""
        return self.stop > self.start


@dataclass(eq=False, kw_only=True)
class PinExpired(SmqError):
    """A reader's pin has ended, and files that it read may be gone. Begin the read again, with a new pin."""

    pin: str = ""
    """The pin's id."""


@dataclass(eq=False, kw_only=True)
class StaleGeneration(SmqError):
    """A group's member must join again before it commits."""

    generation: int | None = None
    """The group's generation now, if it is known."""
    segments: tuple[str, ...] = ()
    """Not assigned to this member any more; the other segments can be committed without them."""


class Conflict(SmqError):
    """Another writer won a compare-and-swap: read again."""

    retry = True


class StoreUnsupported(SmqError):
    """The store does not honour conditional writes, its root has another format, or no key can sign URLs for it."""


@dataclass(eq=False, kw_only=True)
class CorruptChunk(SmqError):
    """A chunk in the filer cannot be decoded."""

    path: str = ""


@dataclass(eq=False, kw_only=True)
class CorruptDocument(SmqError):
    """A JSON object in the filer cannot be decoded: an administrator has to look."""

    path: str = ""


@dataclass(eq=False, kw_only=True)
class PartlySent(SmqError):
    """A call with many messages has sent the first ones of them. ``__cause__`` says why it did not send the others."""

    sent: int = 0
    """The number of messages that were sent. The others are not in the log."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.delivery: Any = None
        """The delivery of those that were sent. It stays in the process."""


class DeliveryUnknown(SmqError):
    """The messages may or may not be in the log, and nobody can find out: their segment forgot this producer.

    That happens only to a producer that was disconnected, before it got the acks of its last messages, for as long as
    segments remember a producer. Later messages of the producer are sent as usual.
    """


class DeliveryTimeout(SmqError):
    """No outcome came in time: the messages may or may not be in the log."""
