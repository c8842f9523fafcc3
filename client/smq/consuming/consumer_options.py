"""A consumer's options, for :mod:`smq` and :mod:`smq.aio`, for one topic and for several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, TypedDict

from smq_core.errors import InvalidRequest
from smq_core.model.names import check_file_name, shown

# Where to start: an end of the topic, a time, or ``{segment: next offset}``.
Start: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[str, int]
# What a member commits by itself: nothing, all finished batches, or the finished batches when a segment has ended.
AutoCommit: TypeAlias = bool | Literal["segment_end"]
# Takes names of segments. What it raises comes out of ``poll``.
OnRebalance: TypeAlias = Callable[[frozenset[str]], object]
# Takes the name of a segment and its end, which the group waits for to be committed.
OnSegmentEnd: TypeAlias = Callable[[str, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a consumer, as :meth:`smq.Client.consumer` describes them. Raises InvalidRequest.

    For several topics, ``start`` is that of one of them.
    """

    group: str | None = None
    start: Start = "earliest"
    on_loss: Literal["fail", "skip"] = "fail"
    schema: Literal["newest", "own"] = "newest"
    auto_commit: AutoCommit = False
    max_bytes: int = 16 << 20
    prefetch_bytes: int = 64 << 20
    large_values: Literal["eager", "lazy"] = "eager"
    max_messages: int | None = None
    segments: Collection[str] | None = None
    partitions: Collection[int] | None = None
    on_assigned: OnRebalance | None = None
    on_revoked: OnRebalance | None = None
    on_segment_end: OnSegmentEnd | None = None

    def __post_init__(self) -> None:
        check_start(self.start)
        check_max_messages(self.max_messages)
        if self.on_loss not in ("fail", "skip"):
            raise InvalidRequest(f'on_loss must be "fail" or "skip", not {self.on_loss!r}')
        if self.schema not in ("newest", "own"):
            raise InvalidRequest(f'schema must be "newest" or "own", not {self.schema!r}')
        if self.large_values not in ("eager", "lazy"):
            raise InvalidRequest(f'large_values must be "eager" or "lazy", not {self.large_values!r}')
        if self.max_bytes < 1 or self.prefetch_bytes < 1:
            raise InvalidRequest("max_bytes and prefetch_bytes must be more than 0")
        if self.auto_commit not in (True, False, "segment_end"):
            raise InvalidRequest(f'auto_commit must be True, False or "segment_end", not {self.auto_commit!r}')
        if self.group is None:
            self._check_without_group()
        else:
            check_file_name("a group's name", self.group)

    def _check_without_group(self) -> None:
        if self.auto_commit:
            raise InvalidRequest("auto_commit needs a group")
        if self.on_assigned is not None or self.on_revoked is not None:
            raise InvalidRequest("on_assigned and on_revoked need a group: without one, all segments are read")
        if self.on_segment_end is not None:
            raise InvalidRequest("on_segment_end needs a group: without one, what follows a segment is read at once")


class TopicsConsumerKeywords(TypedDict, total=False):
    """The options that several topics share, as keywords of a call: those of :class:`ConsumerOptions`."""

    group: str | None
    on_loss: Literal["fail", "skip"]
    schema: Literal["newest", "own"]
    auto_commit: AutoCommit
    max_bytes: int
    prefetch_bytes: int
    large_values: Literal["eager", "lazy"]
    max_messages: int | None
    on_assigned: OnRebalance | None
    on_revoked: OnRebalance | None
    on_segment_end: OnSegmentEnd | None


class ConsumerKeywords(TopicsConsumerKeywords, total=False):
    """All options of :class:`ConsumerOptions`, as keywords of a call."""

    start: Start
    segments: Collection[str] | None
    partitions: Collection[int] | None


def check_start(start: object) -> None:
    """Raises InvalidRequest."""
    if isinstance(start, str):
        if start not in ("earliest", "latest"):
            raise InvalidRequest(f'start must be "earliest", "latest", a datetime or positions, not {start!r}')
    elif isinstance(start, Mapping):
        check_positions(start)
    elif not isinstance(start, datetime):
        raise InvalidRequest(f'start must be "earliest", "latest", a datetime or positions, not {start!r}')


def check_positions(positions: object) -> None:
    """Raises InvalidRequest unless it is a mapping of segments to offsets."""
    if not isinstance(positions, Mapping):
        raise InvalidRequest(f"positions must be {{segment: next offset}}, not {shown(positions)}")
    invalid = {s: o for s, o in positions.items() if not isinstance(s, str) or type(o) is not int or o < 0}
    if invalid:
        raise InvalidRequest(f"positions must be {{segment: next offset}}, not {shown(invalid)}")


def check_max_messages(max_messages: int | None) -> None:
    """Raises InvalidRequest."""
    if max_messages is not None and max_messages < 1:
        raise InvalidRequest(f"max_messages must be 1 or more, not {max_messages}")
