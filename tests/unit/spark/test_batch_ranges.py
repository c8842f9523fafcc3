"""A batch read covers exactly the offsets between its positions, and says what is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_smq.errors import InvalidOption
from pyspark_smq.planning.batch_ranges import ranges_to_read
from smq_core.errors import DataLost
from smq_core.model.entities import Durability, Layout, Phase, Reason, RemovedSegment, SealedSegment, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_storage.catalog.sealed_index import Index
from smq_storage.tables.pinned_reads import TopicFiles

# old (removed) -> a -> (b, c) -> d, of which b and c are sealed as well; d is open
RANGE = KeyRange(0, 64)


def sealed(name: str, number: int, end: int, *before: str, **fields: Any) -> SealedSegment:
    return SealedSegment(
        name=name,
        number=number,
        range=RANGE,
        end=end,
        predecessors=before,
        successors=(),
        opened_because=Reason.CREATE,
        sealed_because=Reason.SPLIT,
        opened_at=0,
        sealed_at=0,
        **fields,
    )


OLD, A, B, C, D = "t-0-64-0", "t-0-64-1", "t-0-32-2", "t-32-64-3", "t-0-64-4"
INDEX = Index(
    entries=(sealed(A, 1, 10, OLD), sealed(B, 2, 20, A), sealed(C, 3, 30, A)),
    removed=((0, 1),),
    removed_segments=(RemovedSegment(name=OLD, number=0, end=5, removed_at=0),),
)
OPEN = Segment(
    name=D, number=4, range=RANGE, phase=Phase.OPEN, durability=Durability.STORED, replicas=(), predecessors=(B, C)
)
FILES = TopicFiles(
    "default/t", "u", INDEX, Layout(topic="default/t", uid="u", partitions=64, next_number=5, segments=(OPEN,))
)
ENDS = {D: 7}


def test_everything() -> None:
    assert ranges_to_read(FILES, ENDS) == {A: (0, 10), B: (0, 20), C: (0, 30), D: (0, 7)}


def test_what_is_before_a_start_position_is_read_and_what_is_after_it_is_not() -> None:
    assert ranges_to_read(FILES, ENDS, start={B: 5}) == {B: (5, 20), C: (0, 30), D: (0, 7)}
    assert ranges_to_read(FILES, ENDS, start={D: 3}) == {D: (3, 7)}


def test_what_is_before_an_end_position_is_read_and_what_is_after_it_is_not() -> None:
    assert ranges_to_read(FILES, ENDS, end={B: 5}) == {A: (0, 10), B: (0, 5)}
    assert ranges_to_read(FILES, ENDS, end={D: 3}) == {A: (0, 10), B: (0, 20), C: (0, 30), D: (0, 3)}


def test_two_reads_that_share_a_position_read_everything_once() -> None:
    for position in ({A: 4}, {B: 20, C: 7}, {D: 0}):
        before = ranges_to_read(FILES, ENDS, end=position)
        after = ranges_to_read(FILES, ENDS, start=position)
        read = [(name, n) for part in (before, after) for name, pair in part.items() for n in range(*pair)]
        assert len(read) == len(set(read)) == 67


def test_only_chosen_segments() -> None:
    assert ranges_to_read(FILES, ENDS, segments=[C]) == {C: (0, 30)}
    with pytest.raises(InvalidOption, match=f"no segment 't-0-64-9'; did you mean '{A[:5]}"):
        ranges_to_read(FILES, ENDS, segments=["t-0-64-9"])


@pytest.mark.parametrize("name", ["start", "end"])
@pytest.mark.parametrize(("position", "words"), [({B: 21}, "past its end, 20"), ({"t-0-64-77": 0}, "no such segment")])
def test_positions_that_cannot_be(name: str, position: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        ranges_to_read(FILES, ENDS, **{name: position})


def test_a_start_that_retention_has_removed_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLost, match="retention has removed") as caught:
        ranges_to_read(FILES, ENDS, start={OLD: 2})
    assert (caught.value.segment, caught.value.start, caught.value.stop) == (OLD, 2, 5)
    assert ranges_to_read(FILES, ENDS, start={OLD: 5}) == ranges_to_read(FILES, ENDS)
    assert ranges_to_read(FILES, ENDS, start={OLD: 2}, fail_on_data_loss=False) == ranges_to_read(FILES, ENDS)
    assert "retention has removed" in caplog.text


def test_lost_messages_end_the_read_only_if_it_would_have_them() -> None:
    lossy = replace(INDEX.entries[1], lost=Loss(20, 24))
    files = replace(FILES, index=replace(INDEX, entries=(INDEX.entries[0], lossy, INDEX.entries[2])))
    with pytest.raises(DataLost) as caught:
        ranges_to_read(files, ENDS)
    assert (caught.value.segment, caught.value.start, caught.value.stop) == (B, 20, 24)
    for chosen in ({"start": {D: 0}}, {"end": {B: 19}}, {"segments": [A]}, {"fail_on_data_loss": False}):
        ranges_to_read(files, ENDS, **chosen)  # type: ignore[arg-type]
