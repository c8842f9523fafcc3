"""Reads what the filer still has of a topic whose layout or uid is lost. All functions block on the store."""

from __future__ import annotations

from smq_core.model.entities import Topic
from smq_core.reconcile.layout_recovery import ChainEnd, TopicTraces
from smq_storage.catalog import group_positions, paths, sealed_index
from smq_storage.catalog.deleted_topics import read_deleted_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store


def read_traces(store: Store, topic: Topic) -> TopicTraces:
    """The index, the chunk chains that it lacks, and the segments that other documents name.

    Raises StoreUnavailable, CorruptDocument.
    """
    name, uid = topic.name, topic.uid
    index = sealed_index.load(store, name, uid)
    indexed = {entry.name for entry in index.entries}
    folders = [path.rpartition("/")[2] for path in store.folders(paths.topic_folder(name, uid))]
    chains = {}
    for segment in folders:
        if not segment.startswith("_") and segment not in indexed:
            last = ChunkChain(store, name, uid, segment).last()
            if last is not None:
                chains[segment] = ChainEnd(last.end, last.sealed, last.schema_version)
    file_lists = (paths.file_list_segment(it.path) for it in store.list(paths.file_lists_folder(name, uid)))
    positions = group_positions.highest_positions(store, name, uid)
    return TopicTraces(
        sealed=index.entries,
        removed=index.removed,
        chains=chains,
        named={*positions, *(it for it in file_lists if it is not None)},
    )


def living_uids(store: Store, topic: str) -> list[str]:
    """The uids under which there are data of a topic of that name that was not deleted."""
    uids = [folder.rpartition("/")[2] for folder in store.folders(topic) if store.folders(folder)]
    return [uid for uid in uids if read_deleted_topic(store, uid) is None]
