"""What shows that a topic is not new, although a document of it is missing.

Names of segments are never used again. So a topic whose layout was deleted by mistake, for example by a lifecycle rule,
must not begin anew. Its new segments would have the names of old ones, and readers would find the old messages there.
"""

from __future__ import annotations

from smq_core.errors import CorruptDocument
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.deleted_topics import read_deleted_topic
from smq_storage.object_store.store import Store

# What `smq topic recover` can write anew. Everything else has to come from a backup.
_REBUILT = ("_layout.json", "_current.json", "_topic.json")


def check_new(store: Store, topic: str, uid: str) -> None:
    """Raises CorruptDocument if the topic has no layout, but an index, segments or groups: its layout is lost."""
    folders = [path.rpartition("/")[2] for path in store.folders(paths.topic_folder(topic, uid))]
    if folders or sealed_index.load(store, topic, uid).exists:
        raise missing(paths.layout(topic, uid), f"the topic has the folders {', '.join(folders)}")


def check_unused(store: Store, topic: str, wanted: str | None) -> None:
    """Raises CorruptDocument if no uid is recorded for the name, but a topic of it has data and was not deleted.

    ``wanted`` is the uid that the platform gives the topic. Data under that uid are its own.
    """
    for folder in store.folders(topic):
        uid = folder.rpartition("/")[2]
        if wanted is None and store.folders(folder) and read_deleted_topic(store, uid) is None:
            raise missing(paths.current(topic), f"{folder} has data of a topic that was not deleted")


def missing(path: str, why: str) -> CorruptDocument:
    """The error for a document that is missing although the topic is not new."""
    topic, _, name = path.rpartition("/")
    topic = "/".join(topic.split("/")[:2]).removeprefix("default/")
    advice = f". `smq topic recover {topic}` rebuilds it" if name in _REBUILT else ""
    return CorruptDocument(f"{path} is missing, although the topic is not new: {why}{advice}", path=path)
