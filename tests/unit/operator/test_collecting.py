"""What is collected, and what never is, over a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from smq_core.model import TopicSpec
from smq_core.retention import GroupState
from smq_operator.collect_deleted import Living, collect_deleted, note_vanished
from smq_operator.collect_strays import collect_strays
from smq_operator.lifecycle import adopt, note_deletion, retire
from smq_operator.local.identity import folder_id
from smq_operator.retain import delete_files, remove_expired
from smq_operator.world import Wish
from smq_storage import index, layouts, paths
from smq_storage.conditional import Patience
from smq_storage.retired import list_retired, read_retired
from smq_storage.store import Listed, Store, open_store
from smq_storage.topics import read_current
from support.dying_store import Died, DyingStore
from support.retained import HOLDER, left_over, make_topic, missing, name_of, segments_with_files, write_segment

PATIENCE = Patience(2.0)
SECOND = 1_000_000
NOBODY = Living((), (), (), sure=True)
BEGUN = {(HOLDER.incarnation, name_of(3))}


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def removed(store: Store) -> list[str]:
    return [segment.name for segment in index.load(store, "default/t", "uid-1").gone]


# ---- retention


def test_the_predecessor_of_a_segment_that_has_still_to_open_stays(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, [], set(), 100 * SECOND, PATIENCE)
    assert removed(store) == [name_of(0), name_of(1)]
    remove_expired(store, topic, [], BEGUN, 100 * SECOND, PATIENCE)
    assert removed(store) == [name_of(0), name_of(1), name_of(2)]


def test_a_layout_that_was_read_too_old_removes_nothing(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    found = layouts.read_layout(store, topic.name, topic.uid)
    assert found is not None
    (living,) = found[0].segments
    first = replace(living, name=name_of(0), number=0, predecessors=())
    old = replace(found[0], segments=(first,), next_number=1)
    layouts.put_layout(store, old, found[1], PATIENCE)
    remove_expired(store, topic, [], BEGUN, 100 * SECOND, PATIENCE)
    assert removed(store) == []


def test_files_stay_for_a_while_after_their_segment_was_removed(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, [], BEGUN, 100 * SECOND, PATIENCE)
    assert delete_files(store, topic, 99 * SECOND, PATIENCE) == ([], 0)
    assert len(left_over(store, topic)) == 3
    assert delete_files(store, topic, 100 * SECOND, PATIENCE)[1] == 12
    assert not left_over(store, topic)
    assert delete_files(store, topic, 200 * SECOND, PATIENCE) == ([], 0)


class Blind:
    """A store whose listings show nothing yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, prefix: str) -> Iterator[Listed]:
        return iter(())


@pytest.mark.parametrize("left", range(8))
def test_files_that_a_listing_does_not_show_are_found_whoever_died_while_deleting_them(store: Store, left: int) -> None:
    topic = make_topic(store, 2, retention_age=1)
    begun = {(HOLDER.incarnation, name_of(2))}
    remove_expired(store, topic, [], begun, 100 * SECOND, PATIENCE)
    with pytest.raises(Died):
        delete_files(cast(Store, DyingStore(store, left, unheard=False)), topic, 100 * SECOND, PATIENCE)
    assert len(left_over(store, topic)) == (2 if left < 4 else 1)
    delete_files(cast(Store, Blind(store)), topic, 100 * SECOND, PATIENCE)
    assert not left_over(store, topic)


def test_groups_that_lose_something_are_written_down(store: Store) -> None:
    topic = make_topic(store, 2, retention_age=1, retention_keeps_unread=False)
    remove_expired(
        store, topic, [GroupState("g", {name_of(1): 7})], {(HOLDER.incarnation, name_of(2))}, 9**15, PATIENCE
    )
    assert [segment.unread for segment in index.load(store, topic.name, topic.uid).gone] == [{}, {"g": 7}]


def test_a_leader_of_an_earlier_life_of_the_name_removes_nothing(store: Store) -> None:
    old = make_topic(store, 3, retention_age=1)
    make_topic(store, 3, uid="uid-2", retention_age=1)
    remove_expired(store, old, [], BEGUN, 100 * SECOND, PATIENCE)
    assert removed(store) == []


def test_an_index_that_is_behind_the_layout_removes_nothing(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    page = paths.index_page(topic.name, topic.uid, 0)
    store.put(page, b'{"entries": []}')
    remove_expired(store, topic, [], BEGUN, 100 * SECOND, PATIENCE)
    assert removed(store) == []
    assert collect_strays(store, topic, 0).deleted == {}
    assert segments_with_files(store, topic).keys() == {name_of(i) for i in range(3)}


# ---- strays


def test_a_file_that_lands_after_its_segment_was_deleted_is_collected_when_it_is_old(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, [], BEGUN, 100 * SECOND, PATIENCE)
    delete_files(store, topic, 100 * SECOND, PATIENCE)
    write_segment(store, topic, name_of(1))
    assert collect_strays(store, topic, 3600 * SECOND).deleted == {}
    assert collect_strays(store, topic, 0).deleted == {name_of(1): 4}
    assert not left_over(store, topic)
    assert not missing(store, topic)


def test_what_is_referred_to_or_unknown_is_no_stray(store: Store) -> None:
    topic = make_topic(store, 3, retention_age=1)
    remove_expired(store, topic, [GroupState("g", {name_of(1): 2})], BEGUN, 100 * SECOND, PATIENCE)
    write_segment(store, topic, name_of(3))  # the open one
    write_segment(store, topic, name_of(4))  # one that the layout, read after the listing, does not have yet
    store.put(paths.upload(topic.name, topic.uid, "u"), b"x")
    before = {o.path for o in store.list("default")}
    found = collect_strays(store, topic, 0)
    assert (found.deleted, found.unknown) == ({}, [name_of(4)])
    assert {o.path for o in store.list("default")} == before


# ---- deleted topics


def test_the_data_of_a_deleted_topic_waits_and_goes_by_its_policy(store: Store) -> None:
    going = make_topic(store, 1, delete_data=True)
    staying = make_topic(store, 1, uid="uid-2", name="default/u")
    for topic in (going, staying):
        retire(store, topic.name, topic.uid, PATIENCE, now=100)
    assert collect_deleted(store, NOBODY, 50, 150, PATIENCE, set()) == []
    assert not missing(store, going)
    (done,) = collect_deleted(store, NOBODY, 50, 151, PATIENCE, set())
    assert (done.topic, done.uid) == (going.name, going.uid)
    assert not list(store.list(paths.topic_folder(going.name, going.uid)))
    assert not missing(store, staying)


def test_data_that_brokers_still_hold_segments_of_waits_for_them(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    retire(store, topic.name, topic.uid, PATIENCE, now=0)
    assert collect_deleted(store, Living((), (), {topic.uid}, sure=True), 1, 100, PATIENCE, set()) == []
    assert not missing(store, topic)


def test_what_lands_late_under_a_deleted_uid_is_deleted_too(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    retire(store, topic.name, topic.uid, PATIENCE, now=0)
    collect_deleted(store, NOBODY, 1, 100, PATIENCE, set())
    write_segment(store, topic, name_of(7))
    collect_deleted(store, NOBODY, 1, 200, PATIENCE, set())
    assert not list(store.list(paths.topic_folder(topic.name, topic.uid)))
    collect_deleted(store, NOBODY, 1, 4000 * SECOND, PATIENCE, set())
    assert list_retired(store) == []


def test_a_manifest_that_comes_back_in_time_has_its_data_back(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    note_deletion(store, topic.name, topic.uid, PATIENCE, 0)  # its file vanished
    back = adopt(store, Wish(topic.name, topic.spec), PATIENCE, 5).topic
    assert back.uid == topic.uid
    assert list_retired(store) == []
    assert collect_deleted(store, Living({topic.uid}, {topic.name}, (), sure=True), 1, 10**12, PATIENCE, set()) == []
    assert not missing(store, topic)


def test_a_manifest_that_comes_back_too_late_makes_a_new_topic(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    note_deletion(store, topic.name, topic.uid, PATIENCE, 0)
    assert collect_deleted(store, NOBODY, 1, 100, PATIENCE, set())
    back = adopt(store, Wish(topic.name, topic.spec), PATIENCE, 200).topic
    assert back.uid != topic.uid


@pytest.mark.parametrize("names, sure", [({"default/t"}, True), (set(), False)])
def test_the_living_uid_of_a_name_is_kept_while_it_may_be_wished(store: Store, names: set[str], sure: bool) -> None:
    topic = make_topic(store, 1, delete_data=True)
    note_deletion(store, topic.name, topic.uid, PATIENCE, 0)
    assert collect_deleted(store, Living((), names, (), sure), 1, 100, PATIENCE, set()) == []
    assert read_current(store, topic.name)[0] == topic.uid  # type: ignore[index]
    assert not missing(store, topic)


def test_another_resource_of_the_name_retires_the_earlier_one(store: Store) -> None:
    topic = make_topic(store, 1, delete_data=True)
    adopt(store, Wish(topic.name, topic.spec, uid="uid-2"), PATIENCE, 70)
    noted = read_retired(store, topic.uid)
    assert noted is not None
    assert (noted.topic, noted.retired_at, noted.delete_data) == (topic.name, 70, True)


def test_topics_that_vanished_are_found_by_the_world_that_wished_them_alone(store: Store) -> None:
    mine = adopt(store, Wish("default/mine", TopicSpec(delete_data=True)), PATIENCE, 0, "here").topic
    adopt(store, Wish("default/other", TopicSpec(delete_data=True)), PATIENCE, 0, "there")
    adopt(store, Wish("default/nobodys", TopicSpec(delete_data=True)), PATIENCE, 0)
    assert note_vanished(store, Living((), {"default/mine"}, (), sure=True), "here", 9, PATIENCE) == []
    assert note_vanished(store, Living((), (), (), sure=False), "here", 9, PATIENCE) == []
    assert note_vanished(store, NOBODY, "", 9, PATIENCE) == []
    assert note_vanished(store, NOBODY, "here", 9, PATIENCE) == ["default/mine"]
    assert list_retired(store) == [mine.uid]
    assert note_vanished(store, NOBODY, "here", 99, PATIENCE) == []


def test_a_folder_keeps_its_id(tmp_path: Path) -> None:
    first = folder_id(tmp_path)
    assert folder_id(tmp_path) == first
    other = tmp_path / "other"
    other.mkdir()
    assert folder_id(other) != first
