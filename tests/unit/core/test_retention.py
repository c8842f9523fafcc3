from __future__ import annotations

from dataclasses import replace

from smq_core.keyspace import KeyRange
from smq_core.model import Reason, SealedSegment, TopicSpec
from smq_core.retention import expired

DAY = 24 * 3600 * 1_000_000
SPEC = TopicSpec(retention_age=DAY, retention_bytes=None)


def sealed(
    name: str, number: int, *, at: int, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> SealedSegment:
    return SealedSegment(name, number, KeyRange(0, 8), 100, before, after, Reason.CREATE, Reason.ROLL, 0, at, bytes=10)


CHAIN = [
    sealed("a", 0, at=0, after=("b",)),
    sealed("b", 1, at=DAY, before=("a",), after=("c",)),
    sealed("c", 2, at=3 * DAY, before=("b",), after=("d",)),
]


def names(segments: list[SealedSegment]) -> list[str]:
    return [s.name for s in segments]


def test_the_old_go_oldest_first() -> None:
    assert names(expired(SPEC, CHAIN, [], 3 * DAY)) == ["a", "b"]


def test_nothing_goes_before_its_predecessors() -> None:
    young_first = [replace(CHAIN[0], sealed_at=3 * DAY), *CHAIN[1:]]
    assert expired(SPEC, young_first, [], 3 * DAY) == []


def test_too_many_bytes_go_from_the_oldest() -> None:
    spec = replace(SPEC, retention_age=None, retention_bytes=15)
    assert names(expired(spec, CHAIN, [], 3 * DAY)) == ["a", "b"]


def test_what_a_group_has_still_to_read_stays() -> None:
    assert expired(SPEC, CHAIN, [{"a": 99}], 3 * DAY) == []
    assert names(expired(SPEC, CHAIN, [{"a": 100, "b": 4}], 3 * DAY)) == ["a"]


def test_a_position_further_on_says_that_the_segment_was_read() -> None:
    assert names(expired(SPEC, CHAIN, [{"d": 5}], 3 * DAY)) == ["a", "b"]
