"""Positions that are looked up in a topic's files: the latest ones, those at a time, those some messages on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from smq.consuming.position_search import PositionSearch, micros
from smq.transport.dialer import DIRECT
from smq_core.errors import InvalidRequest
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Topic
from smq_storage.catalog import layouts, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema
from smq_storage.object_store.store import Store, StoreSettings, open_store
from smq_storage.tables.file_lists import write_file_list
from support.data.sealed_topic import make_topic, segment_name
from support.data.stored_segment import file_list_of_chain
from support.in_memory.brokers import batch_of

OLD, NEWER, OPEN = (segment_name(number) for number in range(3))
SECOND = 1_000_000


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def write_chunks(store: Store, topic: Topic, segment: str, chunks: list[list[int]]) -> ChunkChain:
    """A chunk for each list of append times, which are in seconds."""
    chain, first = ChunkChain(store, topic.name, topic.uid, segment), 0
    for times in chunks:
        appended = pa.array([time * SECOND for time in times], TIMESTAMP)
        info = ChunkInfo(segment=segment, first=first, rows=len(times), writer="w", nonce=f"n{first}")
        chain.put(info, [(batch_of(len(times), 0), appended)], chunk_schema())
        first += len(times)
    return chain


@pytest.fixture(params=["file_list", "chunk chain"])
def view(request: pytest.FixtureRequest) -> Any:
    """A sealed segment with messages of 10 to 14 s, one of 20 to 24 s, and an open one of 30 to 33 s."""
    store = open_store("memory://")
    scratch = make_topic(open_store("memory://"), 2)  # only its index and layout are wanted
    topic = replace(scratch, uid="uid-2")
    layout = replace(layouts.read_layout(make_and_keep(store), topic.name, "uid-1")[0], uid="uid-2")  # type: ignore[index]
    layouts.put_layout(store, layout, None)
    entries = sealed_index.read(store, topic.name, "uid-1")
    for entry, times in zip(entries, ([[10, 11], [12, 13, 14]], [[20], [21, 22, 23, 24]]), strict=True):
        chain = write_chunks(store, topic, entry.name, times)
        chain.put_seal(ChunkInfo(segment=entry.name, first=5, rows=0, writer="w", nonce="seal", sealed=True))
        file_list = file_list_of_chain(chain)
        assert file_list is not None
        name = write_file_list(store, topic.name, "uid-2", file_list) if request.param == "file_list" else ""
        sealed_at = (15 if entry.name == OLD else 25) * SECOND
        named = replace(entry, end=5, sealed_at=sealed_at, file_list=name)
        sealed_index.append(store, topic.name, "uid-2", [named])
    write_chunks(store, topic, OPEN, [[30, 31], [32, 33]])
    snapshot = SimpleNamespace(topic=topic, layout=layout)
    return SimpleNamespace(
        name=topic.name,
        snapshot=snapshot,
        store=SimpleNamespace(open=lambda: store, settings=StoreSettings(url="memory://")),
        dialer=DIRECT,
    )


def make_and_keep(store: Store) -> Store:
    make_topic(store, 2)
    return store


@pytest.mark.parametrize(
    ("seconds", "positions"),
    [
        (0, {OLD: 0}),
        (11, {OLD: 1}),
        (12.5, {OLD: 3}),
        (14, {OLD: 4}),
        (14.5, {NEWER: 0}),
        (18, {NEWER: 0}),
        (22, {NEWER: 2}),
        (30, {OPEN: 0}),
        (33, {OPEN: 3}),
        (99, {OPEN: 4}),
    ],
)
def test_a_time_is_the_first_message_that_was_appended_since(
    view: Any, seconds: float, positions: dict[str, int]
) -> None:
    with PositionSearch(view) as search:
        assert search.resolve(at(seconds)) == positions


def test_the_earliest_and_the_latest(view: Any) -> None:
    with PositionSearch(view) as search:
        assert search.resolve("earliest") == {}
        assert search.resolve("latest") == {OPEN: 4}


def test_one_segment_alone_can_be_searched(view: Any) -> None:
    with PositionSearch(view) as search:
        assert [search.offset_at(OPEN, micros(at(seconds))) for seconds in (1, 31, 50)] == [0, 1, 4]
        assert search.offset_at(NEWER, micros(at(26))) == 5


def test_positions_are_checked_and_shifted_by_what_there_is(view: Any) -> None:
    with PositionSearch(view) as search:
        assert search.resolve({OPEN: 4}) == {OPEN: 4}
        assert search.shifted({OPEN: 4}, -3) == {OPEN: 1}
        assert search.shifted({NEWER: 2}, 3) == {NEWER: 5}
        for wrong, message in (({OPEN: 5}, "up to 4, so 0 to 4"), ({OLD: 6}, "ends at 5"), ({"t-0-16-9": 0}, OPEN)):
            with pytest.raises(InvalidRequest, match=message):
                search.resolve(wrong)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ({NEWER: 6}, "it ends at 5, so 0 to 5 are possible"),
        ({"f-0-8-77": 0}, f"has no segment f-0-8-77; it has {OPEN}"),
    ],
)
def test_saved_positions_that_no_reader_had_are_refused(view: Any, positions: dict[str, int], message: str) -> None:
    with PositionSearch(view) as search, pytest.raises(InvalidRequest, match=message):
        search.check_saved(positions)


def test_a_saved_position_in_a_segment_may_stand_beside_one_of_its_successor(view: Any) -> None:
    with PositionSearch(view) as search:
        search.check_saved({OLD: 3, NEWER: 1})
