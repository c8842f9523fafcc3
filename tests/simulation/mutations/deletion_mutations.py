"""Mutations of topic deletion and of garbage collection, one rule each. See ``protocol_mutations``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_operator.cleanup import deleted_topics, orphaned_files
from smq_operator.cleanup import topic_deletion as deletions
from smq_operator.cleanup.topic_deletion import TopicDeletionManager
from smq_storage.catalog import layouts
from support.sim.leaders import topic_deletion as deleting

MUTATIONS, DRAINED, ORPHANS = MutationTable(), MutationTable(), MutationTable()
mutation = MUTATIONS.add


@mutation
def answer_a_deletion_before_the_seals(patch: Patch) -> None:
    """A deletion is confirmed when every segment is sealed."""

    async def wait(self: TopicDeletionManager, uid: str, timeout: float) -> None:
        return None

    patch.setattr(TopicDeletionManager, "wait_until_sealed", wait)


@mutation
def delete_a_topic_without_its_last_layout(patch: Patch) -> None:
    """The layout of a deleted topic is made final, so that no change in progress is applied after it."""

    def read(store: Any, name: str, uid: str, retry_policy: Any) -> Any:
        found = layouts.read_layout(store, name, uid)
        return deletions.read_topic(store, name, uid), found[0] if found is not None else None

    patch.setattr(deletions, "_close_layout", read)


@DRAINED.add
def let_a_broker_go_while_a_deleted_topic_is_sealed(patch: Patch) -> None:
    """A broker stays until its segments of a deleted topic are sealed."""
    patch.setattr(TopicDeletionManager, "blocks_leaving", lambda self, incarnation: False)


@mutation
def delete_the_data_whatever_the_policy(patch: Patch) -> None:
    """With the policy Retain the log stays."""
    original = deleted_topics.read_deleted_topic

    def read_deleted_topic(store: Any, uid: str) -> Any:
        found = original(store, uid)
        return found and replace(found, delete_data=True)

    patch.setattr(deleted_topics, "read_deleted_topic", read_deleted_topic)


@mutation
def delete_the_data_while_brokers_hold_it(patch: Patch) -> None:
    """No file of a topic is deleted while a live broker hosts its segments, nor before the grace period ends."""
    patch.setattr(deleting, "RETENTION_TIME", 0)
    patch.setattr(deleting, "COLLECT_EVERY", 1_000)
    patch.setattr(deleted_topics, "_may_delete", lambda *args: True)


@mutation
def forget_a_topic_that_was_deleted(patch: Patch) -> None:
    """With the policy Delete all files are deleted in the end."""
    patch.setattr(deleted_topics, "delete_topic", lambda store, topic, uid: 0)


# ---- orphaned files


@ORPHANS.add
def collect_what_the_index_does_not_list(patch: Patch) -> None:
    """An orphaned file belongs to a segment that retention removed, and that is in neither the index nor the layout."""
    original = orphaned_files.read_consistent

    def truth(store: Any, topic: Any) -> Any:
        found = original(store, topic)
        return found and type(found)(found.index, replace(found.layout, segments=()))

    patch.setattr(orphaned_files, "read_consistent", truth)
    patch.setattr(orphaned_files, "is_removed", lambda name, removed: True)


@ORPHANS.add
def leave_orphaned_files_alone(patch: Patch) -> None:
    """Orphaned files are collected in the end."""
    patch.setattr(orphaned_files, "delete_if_older", lambda store, path, before: False)
