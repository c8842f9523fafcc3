"""When a group has read everything, and for how long a search for that counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from smq.consuming.groups import group_end
from smq.consuming.groups.group_end import GroupEnd, has_read_all
from smq.reading.topic_state import TopicState
from smq.topics_consumer import TopicsConsumer
from smq_storage.catalog.sealed_index import Index
from smq_storage.tables.pinned_reads import TopicFiles
from support.in_memory.topic import TopicInMemory

TOPIC = TopicInMemory()
FIRST = TOPIC.first.name


def state(flushed: Mapping[str, int]) -> TopicState:
    """One living segment, of which two messages are in files."""
    files = TopicFiles(TOPIC.name, "uid", Index(), TOPIC.snapshot.layout)
    return TopicState(files, {FIRST: 2}, frozenset(), flushed)


def test_a_living_segment_that_no_broker_reports_may_have_more() -> None:
    assert has_read_all(state({FIRST: 2}), {FIRST: 2}, {})
    assert not has_read_all(state({FIRST: 2}), {FIRST: 1}, {})
    assert has_read_all(state({FIRST: 2}), {FIRST: 1}, {FIRST: 2}), "this member has returned it, and will commit it"
    assert not has_read_all(state({}), {FIRST: 2}, {}), "its end is that of its files"


def test_a_result_counts_once_however_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_end, "KNOWN_SECONDS", 0.0)
    nobody: Any = None
    end = GroupEnd(nobody, nobody, "g")
    end.searched({"s": 1}, True)
    assert [end.is_known({"s": 1}), end.is_known({"s": 1})] == [True, False]
    end.searched({"s": 1}, True)
    assert not end.is_known({"s": 2}), "the member has read more since"
    end.searched({"s": 1}, False)
    assert not end.is_known({"s": 1})


class Member:
    closed = False
    calls = 0

    def at_end(self) -> bool:
        self.calls += 1
        return False

    def close(self) -> None: ...


def test_the_end_of_every_topic_is_searched_at_once() -> None:
    members = {name: Member() for name in ("a", "b")}
    open_one: Any = lambda topic, changed: members[topic]  # noqa: E731
    with TopicsConsumer(["a", "b"], open_one) as consumer:
        assert not consumer.at_end()
    assert [it.calls for it in members.values()] == [1, 1]
