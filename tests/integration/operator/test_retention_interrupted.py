"""Whoever carries out retention may die at any write or deletion: nothing that is listed is missing, and the next one
leaves nothing behind. On a real SeaweedFS, at every effect there is."""

from __future__ import annotations

import itertools
from typing import cast

import pytest

from smq_core.model import Topic
from smq_core.retention import GroupState
from smq_operator.collect_deleted import Living, collect_deleted
from smq_operator.lifecycle import retire
from smq_operator.retain import delete_files, remove_expired
from smq_storage import index
from smq_storage.conditional import Patience
from smq_storage.retired import list_retired
from smq_storage.store import Store
from smq_storage.topics import read_current
from support.dying_store import Died, DyingStore
from support.retained import HOLDER, left_over, make_topic, missing, name_of, segments_with_files

pytestmark = pytest.mark.integration

SECOND = 1_000_000
BEGUN = {(HOLDER.incarnation, name_of(4))}
PATIENCE = Patience(5.0)


def run_retention(store: Store, topic: Topic, groups: list[GroupState]) -> None:
    """One pass of a leader at 4 s, and one later that deletes files."""
    remove_expired(store, topic, groups, BEGUN, 4 * SECOND, PATIENCE)
    delete_files(store, topic, 100 * SECOND, PATIENCE)


@pytest.mark.parametrize("unheard", [False, True])
def test_retention_that_dies_at_any_effect_is_finished_by_the_next_leader(seaweed, prefix, unheard):
    groups = [GroupState("g", {name_of(3): 2})]
    stopped = 0
    for left in itertools.count():
        store = seaweed.store(f"{prefix}-{left}")
        topic = make_topic(store, 4, retention_age=SECOND + 1)
        try:
            run_retention(cast(Store, DyingStore(store, left, unheard=unheard)), topic, groups)
            finished = True
        except Died:
            stopped, finished = stopped + 1, False
        assert not missing(store, topic), f"after {left} effects"
        run_retention(store, topic, groups)
        assert not missing(store, topic)
        assert not left_over(store, topic), f"after {left} effects"
        known = index.load(store, topic.name, topic.uid)
        assert [entry.name for entry in known.entries] == [name_of(2), name_of(3)]
        assert known.removed == ((0, 2),)
        assert not known.deleting
        if finished:
            break
    assert stopped == 10, "one write of the index, four files of each of two segments, one more write"


@pytest.mark.parametrize("unheard", [False, True])
def test_a_deletion_that_dies_at_any_effect_is_finished_by_the_next_leader(seaweed, prefix, unheard):
    stopped = 0
    for left in itertools.count():
        store = seaweed.store(f"{prefix}-{left}")
        topic = make_topic(store, 1, delete_data=True)
        kept = make_topic(store, 1, uid="uid-kept", name="default/kept", delete_data=True)
        dying = cast(Store, DyingStore(store, left, unheard=unheard))
        nothing = Living((), (), (), sure=True)
        try:
            retire(dying, topic.name, topic.uid, PATIENCE, now=0)
            collect_deleted(dying, nothing, 5, 6, PATIENCE, set())
            finished = True
        except Died:
            stopped, finished = stopped + 1, False
        # The person who deleted it had no answer, and asks again; the next leader goes by what is written.
        retire(store, topic.name, topic.uid, PATIENCE, now=0)
        for _ in range(2):
            collect_deleted(store, nothing, 5, 6, PATIENCE, set())
        assert not segments_with_files(store, topic), f"after {left} effects"
        assert [o.path for o in store.list("default/t")] == ["default/t/current.json"]
        assert read_current(store, topic.name)[0] == ""
        assert not missing(store, kept)
        assert list_retired(store) == [topic.uid], "it stays for what lands late"
        collect_deleted(store, nothing, 5, 4000 * SECOND, PATIENCE, set())
        assert list_retired(store) == []
        if finished:
            break
    assert stopped == 9, "the record, the name, four files of the segment, its topic, index and layout"
