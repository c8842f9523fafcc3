"""Small groups of a micro-batch share tasks, in their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_smq.planning.stream_tasks import Ranges, divide_into_tasks
from smq_core.reading.segment_ranges import SegmentRange


def groups(*rows: int) -> list[Ranges]:
    return [(SegmentRange(f"t-0-16-{number}", 5, 5 + count),) for number, count in enumerate(rows)]


def sizes(tasks: list[Ranges]) -> list[list[int]]:
    return [[it.count for it in task] for task in tasks]


def test_small_groups_share_a_task_and_large_ones_have_their_own() -> None:
    assert sizes(divide_into_tasks(groups(10, 20, 30), 60)) == [[10, 20, 30]]
    assert sizes(divide_into_tasks(groups(10, 20, 31), 60)) == [[10, 20], [31]]
    assert sizes(divide_into_tasks(groups(100, 10, 20), 60)) == [[100], [10, 20]]
    assert divide_into_tasks([], 60) == []


def test_there_are_as_many_tasks_as_are_wanted() -> None:
    assert sizes(divide_into_tasks(groups(1, 2, 3, 4), 60, min_tasks=3)) == [[1, 2], [3], [4]]
    assert sizes(divide_into_tasks(groups(1, 2), 60, min_tasks=9)) == [[1], [2]]


@given(st.lists(st.integers(1, 100), max_size=12), st.integers(1, 150), st.integers(1, 6))
def test_every_range_is_in_one_task_in_order(rows: list[int], most: int, min_tasks: int) -> None:
    tasks = divide_into_tasks(groups(*rows), most, min_tasks)
    assert [it for task in tasks for it in task] == [it for group in groups(*rows) for it in group]
    assert len(tasks) >= min(min_tasks, len(rows))
    assert all(len(task) == 1 or sum(it.count for it in task) <= most for task in tasks)
