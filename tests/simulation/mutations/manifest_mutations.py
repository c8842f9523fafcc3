"""Mutations of segment manifests, one rule each, which elastic histories must detect. See ``protocol_mutations``."""

from __future__ import annotations

from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq_core.manifests.manifest_draft import ManifestDraft
from smq_core.manifests.segment_manifest import SegmentManifest
from smq_operator.cleanup import orphaned_files
from smq_operator.cleanup import retention as retain
from smq_operator.manifests import topic_manifests
from smq_operator.manifests.topic_manifests import TopicManifests
from smq_storage.catalog import paths
from smq_storage.tables.manifests import read_manifest

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def name_a_manifest_that_was_not_written(patch: Patch) -> None:
    """A manifest is in the store before the index names it."""

    def write(store: Any, topic: str, uid: str, manifest: Any, retry_policy: Any) -> str:
        return paths.manifest_name(manifest.segment, manifest.version, manifest.nonce)

    patch.setattr(topic_manifests, "write_manifest", write)


@mutation
def name_whatever_version_0_lists(patch: Patch) -> None:
    """A broker that has not seen the whole chain writes no manifest, and the leader names none of another end."""

    def manifest(self: ManifestDraft, end: int) -> SegmentManifest | None:
        return SegmentManifest(self.segment, self.end, tuple(self._files))

    def read(self: TopicManifests, store: Any, entry: Any, name: str) -> Any:
        return read_manifest(store, self._topic.name, self._topic.uid, name)

    patch.setattr(ManifestDraft, "manifest", manifest)
    patch.setattr(TopicManifests, "_read", read)


@mutation
def leave_all_manifests_to_the_brokers(patch: Patch) -> None:
    """The leader builds the manifests that no broker writes."""
    patch.setattr(TopicManifests, "_is_overdue", lambda self, entry, now: False)


@mutation
def build_a_damaged_manifest_under_its_own_name(patch: Patch) -> None:
    """A version 0 that cannot be read is built again under the next version."""
    patch.setattr(topic_manifests, "replace", lambda manifest, **changes: manifest)


@mutation
def never_read_a_manifest_again(patch: Patch) -> None:
    """A manifest that was damaged after it was named is noticed."""
    original = TopicManifests._due

    def due(self: TopicManifests, entries: Any, now: int) -> Any:
        return [entry for entry in original(self, entries, now) if not entry.manifest]

    patch.setattr(TopicManifests, "_due", due)


@mutation
def collect_manifests_that_the_index_names(patch: Patch) -> None:
    """Only a manifest that no index can name any more is orphaned."""
    patch.setattr(orphaned_files, "_is_orphaned_manifest", lambda path, known: True)


@mutation
def keep_the_manifests_of_removed_segments(patch: Patch) -> None:
    """A manifest that lands after its segment's files were deleted is collected."""
    patch.setattr(orphaned_files, "_is_orphaned_manifest", lambda path, known: False)


@mutation
def delete_the_manifest_before_the_files(patch: Patch) -> None:
    """A segment's manifest is deleted after its files, because it says which files there are."""
    original = retain.delete_segment

    def delete_segment(store: Any, topic: Any, segment: Any) -> int:
        for name in filter(None, [segment.manifest]):
            store.delete(paths.manifest(topic.name, topic.uid, name))
        return original(store, topic, segment)

    patch.setattr(retain, "delete_segment", delete_segment)
