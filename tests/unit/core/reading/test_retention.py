from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import Reason, SealedSegment, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.reconcile.retention import GroupProgress, RetentionPlan, plan_retention

DAY = 24 * 3600 * 1_000_000
SPEC = TopicSpec(retention_age=DAY, retention_bytes=None)


def sealed(
    name: str, number: int, *, at: int, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> SealedSegment:
    return SealedSegment(
        name=name,
        number=number,
        range=KeyRange(0, 8),
        end=100,
        predecessors=before,
        successors=after,
        opened_because=Reason.CREATE,
        sealed_because=Reason.ROLL,
        opened_at=0,
        sealed_at=at,
        bytes=10,
    )


CHAIN = [
    sealed("a", 0, at=0, after=("b",)),
    sealed("b", 1, at=DAY, before=("a",), after=("c",)),
    sealed("c", 2, at=3 * DAY, before=("b",), after=("d",)),
]


def removed(verdict: RetentionPlan) -> list[str]:
    return [removal.segment.name for removal in verdict.removals]


def group(positions: dict[str, int], name: str = "g", last_active_at: int | None = None) -> GroupProgress:
    return GroupProgress(name, positions, last_active_at)


def test_the_old_go_oldest_first() -> None:
    verdict = plan_retention(SPEC, CHAIN, [], 3 * DAY)
    assert removed(verdict) == ["a", "b"]
    assert verdict.removals[0].because == "older than 1d"


def test_nothing_goes_before_its_predecessors() -> None:
    young_first = [replace(CHAIN[0], sealed_at=3 * DAY), *CHAIN[1:]]
    assert removed(plan_retention(SPEC, young_first, [], 3 * DAY)) == []


def test_too_many_bytes_go_from_the_oldest() -> None:
    spec = replace(SPEC, retention_age=None, retention_bytes=15)
    verdict = plan_retention(spec, CHAIN, [], 3 * DAY)
    assert removed(verdict) == ["a", "b"]
    assert verdict.removals[0].because == "30 B are sealed, 15 B are kept"


def test_no_limit_removes_nothing() -> None:
    assert removed(plan_retention(replace(SPEC, retention_age=None), CHAIN, [], 10**18)) == []


def test_what_a_group_has_still_to_read_stays_and_the_group_is_named() -> None:
    verdict = plan_retention(SPEC, CHAIN, [group({"a": 99}), group({"a": 100}, "h")], 3 * DAY)
    assert removed(verdict) == []
    assert verdict.retained == {"a": ["g"]}
    assert removed(plan_retention(SPEC, CHAIN, [group({"a": 100, "b": 4})], 3 * DAY)) == ["a"]


def test_a_group_that_has_read_nothing_yet_has_everything_to_read() -> None:
    assert removed(plan_retention(SPEC, CHAIN, [group({})], 3 * DAY)) == []


def test_a_position_further_on_says_that_the_segment_was_read() -> None:
    assert removed(plan_retention(SPEC, CHAIN, [group({"d": 5})], 3 * DAY)) == ["a", "b"]


def test_an_empty_segment_is_nothing_to_read() -> None:
    empty = [replace(CHAIN[0], end=0), *CHAIN[1:]]
    assert removed(plan_retention(SPEC, empty, [group({})], 3 * DAY)) == ["a"]


def test_the_policy_may_ignore_groups_and_they_learn_what_they_lose() -> None:
    spec = replace(SPEC, retention_keeps_unread=False)
    verdict = plan_retention(spec, CHAIN, [group({"a": 40}), group({"d": 1}, "h")], 3 * DAY)
    assert removed(verdict) == ["a", "b"]
    assert [removal.unread for removal in verdict.removals] == [{"g": 40}, {"g": 0}]
    assert verdict.retained == {}


def test_a_group_without_members_for_long_is_not_waited_for() -> None:
    spec = replace(SPEC, retention_abandoned_after=2 * DAY)
    waited = plan_retention(spec, CHAIN, [group({"a": 40}, last_active_at=DAY)], 3 * DAY)
    assert removed(waited) == []
    verdict = plan_retention(spec, CHAIN, [group({"a": 40}, last_active_at=DAY)], 3 * DAY + 1)
    assert removed(verdict) == ["a", "b"]
    assert verdict.removals[0].unread == {"g": 40}
    never = replace(spec, retention_abandoned_after=None)
    assert removed(plan_retention(never, CHAIN, [group({"a": 40}, last_active_at=DAY)], 99 * DAY)) == []


def test_what_a_successor_has_still_to_open_by_stays() -> None:
    assert removed(plan_retention(SPEC, CHAIN, [], 3 * DAY, needed=["b"])) == ["a"]
