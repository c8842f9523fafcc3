"""Which groups of a micro-batch share a task."""

from __future__ import annotations

from collections.abc import Sequence

from smq_core.reading.segment_ranges import SegmentRange

Ranges = tuple[SegmentRange, ...]


def divide_into_tasks(groups: Sequence[Ranges], max_rows: int, min_tasks: int | None = None) -> list[Ranges]:
    """The ranges of each task, in the order of the groups. A group is in one task.

    Neighbours share a task while they have at most ``max_rows`` together, and while there are more than ``min_tasks``.
    """
    tasks: list[Ranges] = []
    rows = 0
    for number, group in enumerate(groups):
        more = sum(it.count for it in group)
        # With each group that is left in a separate task there are enough.
        enough = len(tasks) + len(groups) - number > (min_tasks or 1)
        if tasks and enough and rows + more <= max_rows:
            tasks[-1] = (*tasks[-1], *group)
            rows += more
        else:
            tasks.append(group)
            rows = more
    return tasks
