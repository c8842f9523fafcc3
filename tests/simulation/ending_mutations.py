"""The end of a topic, and the collecting of what nothing refers to, broken in one place at a time. As ``mutations``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from smq_operator import collect_deleted, collect_strays, endings
from smq_operator.endings import Endings
from smq_storage import layouts
from support.sim import deleting, elastic
from support.sim.deleting import Deleting
from support.sim.history import Failure

Patch = pytest.MonkeyPatch
MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def run(seed: int) -> Failure | None:
    """Of the elastic histories those with a deletion, and the first ones: some of these have strays."""
    return elastic.run(seed) if seed < 20 or Deleting(seed).drawn else None


def mutation(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTATIONS[break_it.__name__] = break_it
    return break_it


@mutation
def answer_a_deletion_before_the_seals(patch: Patch) -> None:
    """A deletion is answered when every segment is sealed."""

    async def wait(self: Endings, uid: str, timeout: float) -> None:
        return None

    patch.setattr(Endings, "wait", wait)


@mutation
def end_a_topic_without_its_last_layout(patch: Patch) -> None:
    """The layout of a deleted topic is made the last one, so that no change that is under way lands after it."""

    def read(store: Any, name: str, uid: str, patience: Any) -> Any:
        found = layouts.read_layout(store, name, uid)
        return endings.read_topic(store, name, uid), found[0] if found is not None else None

    patch.setattr(endings, "_end_layout", read)


@mutation
def let_a_broker_go_while_a_deleted_topic_is_sealed(patch: Patch) -> None:
    """A broker stays until what it holds of a deleted topic is sealed."""
    patch.setattr(Endings, "keeps", lambda self, incarnation: False)


@mutation
def delete_the_data_whatever_the_policy(patch: Patch) -> None:
    """With policy Retain the log stays."""
    original = collect_deleted.read_retired

    def read_retired(store: Any, uid: str) -> Any:
        found = original(store, uid)
        return found and replace(found, delete_data=True)

    patch.setattr(collect_deleted, "read_retired", read_retired)


@mutation
def delete_the_data_while_brokers_hold_it(patch: Patch) -> None:
    """Nothing is deleted under a uid of which a living broker holds segments, nor before its time."""
    patch.setattr(deleting, "STAY", 0)
    patch.setattr(deleting, "COLLECT_EVERY", 1_000)
    patch.setattr(collect_deleted, "_may_go", lambda *args: True)


@mutation
def forget_a_topic_that_was_deleted(patch: Patch) -> None:
    """With policy Delete all files go in the end."""
    patch.setattr(collect_deleted, "delete_topic", lambda store, topic, uid: 0)


@mutation
def collect_what_the_index_does_not_list(patch: Patch) -> None:
    """A stray belongs to a segment that retention removed, and that neither the index nor the layout has."""
    original = collect_strays.truth

    def truth(store: Any, topic: Any) -> Any:
        found = original(store, topic)
        return found and type(found)(found.index, replace(found.layout, segments=()))

    patch.setattr(collect_strays, "truth", truth)
    patch.setattr(collect_strays, "is_removed", lambda name, removed: True)


@mutation
def leave_strays_alone(patch: Patch) -> None:
    """Strays are collected in the end."""
    patch.setattr(collect_strays, "delete_old", lambda store, path, before: False)
