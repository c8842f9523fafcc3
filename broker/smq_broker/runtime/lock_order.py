"""The order in which a thread of the broker takes locks."""

from __future__ import annotations

from enum import IntEnum, auto


class BrokerLock(IntEnum):
    """A thread that holds one takes only later ones. docs/threads.md says which thread takes which, and why."""

    REGISTRY = auto()
    WRITING = auto()
    STREAMS = auto()
    JOURNAL = auto()
    SEGMENT = auto()
    STREAM = auto()
    RECORDED_FILES = auto()
    CLIENT_ACTIVITY = auto()
    RECYCLED_FILES = auto()
