"""Checks of a consumer's options. All raise InvalidRequest, which names the option and what is possible."""

from __future__ import annotations

from typing import Literal, TypeAlias

from smq.consuming.groups.rebalance_events import OnRebalance, OnSegmentEnd
from smq_core.errors import InvalidRequest

# What a member commits by itself: nothing, all finished batches, or the finished batches when a segment has ended.
AutoCommit: TypeAlias = bool | Literal["segment_end"]


def check_options(on_loss: str, schema: str, large_values: str, max_bytes: int, prefetch_bytes: int) -> None:
    if on_loss not in ("fail", "skip"):
        raise InvalidRequest(f'on_loss must be "fail" or "skip", not {on_loss!r}')
    if schema not in ("newest", "own"):
        raise InvalidRequest(f'schema must be "newest" or "own", not {schema!r}')
    if large_values not in ("eager", "lazy"):
        raise InvalidRequest(f'large_values must be "eager" or "lazy", not {large_values!r}')
    if max_bytes < 1 or prefetch_bytes < 1:
        raise InvalidRequest("max_bytes and prefetch_bytes must be more than 0")


def check_max_records(max_records: int | None) -> None:
    if max_records is not None and max_records < 1:
        raise InvalidRequest(f"max_records must be 1 or more, not {max_records}")


def check_auto_commit(auto_commit: object) -> None:
    if auto_commit not in (True, False, "segment_end"):
        raise InvalidRequest(f'auto_commit must be True, False or "segment_end", not {auto_commit!r}')


def check_without_group(
    auto_commit: AutoCommit,
    on_assigned: OnRebalance | None,
    on_revoked: OnRebalance | None,
    on_segment_end: OnSegmentEnd | None,
) -> None:
    if auto_commit:
        raise InvalidRequest("auto_commit needs a group")
    if on_assigned is not None or on_revoked is not None:
        raise InvalidRequest("on_assigned and on_revoked need a group: without one, all segments are read")
    if on_segment_end is not None:
        raise InvalidRequest("on_segment_end needs a group: without one, what follows a segment is read at once")
