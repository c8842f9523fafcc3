"""Which of Kafka's errors a client gets for an error of this project."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from smq_core.errors import (
    InvalidRequest,
    MessageTooLarge,
    NotHosted,
    NotOpenYet,
    Overloaded,
    ProducerFenced,
    SegmentSealed,
    SequenceGap,
    SmqError,
    StoreUnavailable,
    UnknownTopic,
    WrongIncarnation,
    WrongPartition,
)

# Of responses to clients that have no quota.
NO_THROTTLE = i32Timedelta.parse(timedelta(0))


class Refused(Exception):
    """A client gets this error for a partition. ``message`` is shown where an API has a place for one."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# The first one that fits. Clients repeat a request after some of these, after others they do not.
_CODES: tuple[tuple[type[SmqError], ErrorCode], ...] = (
    (UnknownTopic, ErrorCode.unknown_topic_or_partition),
    (SequenceGap, ErrorCode.out_of_order_sequence_number),
    (ProducerFenced, ErrorCode.invalid_producer_epoch),
    (MessageTooLarge, ErrorCode.message_too_large),
    (WrongPartition, ErrorCode.not_leader_or_follower),
    (InvalidRequest, ErrorCode.invalid_record),
    (SegmentSealed, ErrorCode.not_leader_or_follower),
    (NotHosted, ErrorCode.not_leader_or_follower),
    (NotOpenYet, ErrorCode.not_leader_or_follower),
    (WrongIncarnation, ErrorCode.not_leader_or_follower),
    (Overloaded, ErrorCode.request_timed_out),
    (StoreUnavailable, ErrorCode.kafka_storage_error),
)


def error_code_of(error: Refused | SmqError) -> ErrorCode:
    if isinstance(error, Refused):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.unknown_server_error)
