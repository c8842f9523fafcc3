"""The order in which a thread of a client takes locks."""

from __future__ import annotations

from enum import IntEnum, auto


class ClientLock(IntEnum):
    """A thread that holds one takes only later ones. docs/threads.md says which thread takes which, and why."""

    # Consumers.
    JOINING = auto()
    CONSUMER_TAILS = auto()
    PUBLISHED_TAIL = auto()
    DELIVERING = auto()
    CONSUMER = auto()
    # Producers.
    HANDOVER = auto()
    BATCHER = auto()
    ROUTING = auto()
    WRITING = auto()
    ENGINE = auto()
    STREAMS = auto()
    STREAM = auto()
    # What both use.
    UPLOADS = auto()
    VIEWS = auto()
    CONNECTING = auto()
    CONNECT_QUEUE = auto()
    VIEW = auto()
    RENEWING = auto()
