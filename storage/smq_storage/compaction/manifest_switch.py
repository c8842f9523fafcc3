"""Plans the compaction of a sealed segment, and lets its readers use the merged files.

One compare-and-swap of the index names the next manifest. It fails if retention removed the segment meanwhile, or if
somebody else compacted it. Then nobody reads the merged files, and they are deleted with the segment.
"""

from __future__ import annotations

from collections.abc import Collection

from smq_core.errors import DataLost
from smq_core.manifests.compaction_plan import FileRun, plan_compaction, with_merged_files
from smq_core.manifests.segment_manifest import ManifestFile, SegmentManifest
from smq_core.manifests.small_files import SmallFilePolicy
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.manifests import write_manifest
from smq_storage.tables.segment_files import StoredSegment, load_manifest

# The size of a merged file. To read a part of it in the order of offsets, a consumer decodes all of it.
TARGET_BYTES = 32 * 1024 * 1024


def plan_segment(store: Store, segment: StoredSegment, target_bytes: int = TARGET_BYTES) -> list[FileRun]:
    """What to merge; nothing if the segment has no manifest (yet).

    Uploads stay as they are: they are large, and other segments may have rows in them. Raises CorruptDocument,
    StoreUnavailable.
    """
    manifest = load_manifest(store, segment)
    if manifest is None:
        return []
    return plan_compaction(manifest.files, target_bytes, lambda file: not paths.is_upload(file.path))


def plan_small_files(manifest: SegmentManifest, policy: SmallFilePolicy) -> list[FileRun]:
    """What the leader merges of these files. Uploads stay, and so does what was merged before, by whomever."""
    return policy.plan(manifest.files, lambda it: not paths.is_upload(it.path) and not paths.is_compacted(it.path))


def switch_manifest(
    store: Store, segment: StoredSegment, merged: Collection[ManifestFile], nonce: str, retry_policy: RetryPolicy
) -> bool:
    """Lets the index name a manifest with the merged files. It can be repeated with the same ``nonce``.

    ``segment`` is as it was planned. False if the index names another manifest by now, or has no such segment any more.
    Raises CorruptDocument, StoreUnavailable, and DataLost if the manifest is gone.
    """
    name = write_next_manifest(store, segment, merged, nonce, retry_policy)
    return sealed_index.name_manifest(
        store, segment.topic, segment.uid, segment.name, segment.manifest, name, retry_policy
    )


def write_next_manifest(
    store: Store, segment: StoredSegment, merged: Collection[ManifestFile], nonce: str, retry_policy: RetryPolicy
) -> str:
    """Writes the manifest with the merged files, and returns its name, which the index does not have yet.

    Raises as :func:`switch_manifest`.
    """
    manifest = load_manifest(store, segment)
    if manifest is None:
        assert segment.end is not None, "only sealed segments have manifests"
        raise DataLost(
            f"the manifest of {segment.name} is gone, because retention removed the segment meanwhile",
            segment=segment.name,
            start=0,
            stop=segment.end,
        )
    following: SegmentManifest = with_merged_files(manifest, merged, nonce)
    return write_manifest(store, segment.topic, segment.uid, following, retry_policy)
