"""What garbage collection must keep for unfinished publishes: their uploads, and the segments that may have rows."""

from __future__ import annotations

from smq_core.model.entities import Topic
from smq_storage.catalog.atomic_publishes import read_newest_publishes, read_publishes
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store


def unfinished_uploads(store: Store, topic: Topic) -> set[str]:
    """The names of the uploads of unfinished publishes (``cleanup.uploads.KeptUploads``).

    Raises StoreUnavailable, CorruptDocument.
    """
    apps = read_publishes(store, topic.name, topic.uid).unfinished
    return {file.upload for app in apps if app.unfinished is not None for file in app.unfinished.files}


def has_unfinished_publish(store: Store, topic: Topic, retry_policy: RetryPolicy) -> bool:
    """Whether seal chunks may be needed to complete a publish. Raises StoreUnavailable, CorruptDocument.

    A publish that this overlooks would be written a second time, because the segments with its rows are gone. So an
    answer that may be out of date counts as an unfinished one.
    """
    newest = read_newest_publishes(store, topic.name, topic.uid, retry_policy)
    return newest is None or bool(newest.unfinished)
