"""_format.json: the format of the files below a store's root. It is written once and checked at every start.

A root of another format is rejected. If it were read as an empty one, its topics would get new uids and their messages
would be out of reach.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from smq_core.errors import StoreUnsupported
from smq_storage.catalog import paths
from smq_storage.catalog.topics import topics_with_folders
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, write_document
from smq_storage.object_store.store import ObjectMissing, Store

# Format 1 had no separate document, and the names of its metadata did not begin with ``_``.
ROOT_FORMAT = 2


@dataclass(frozen=True, slots=True)
class RootFormat:
    """``writer`` is unique for each write."""

    version: int
    writer: str = ""


def ensure_root_format(store: Store, retry_policy: RetryPolicy) -> None:
    """Checks the root's format and writes it if the root is new. Blocks.

    Raises StoreUnsupported if the root has another format, or StoreUnavailable.
    """
    mine = RootFormat(ROOT_FORMAT, uuid.uuid4().hex)
    while (found := read_document(store, paths.ROOT_FORMAT, RootFormat)) is None:
        if (topic := _find_topic_of_format_1(store)) is not None:
            raise StoreUnsupported(_rejection(store, f"format 1 (it has {topic}/current.json)"))
        write_document(
            store, paths.ROOT_FORMAT, mine, None, is_mine=lambda it: it.writer == mine.writer, retry_policy=retry_policy
        )
    if found[0].version != ROOT_FORMAT:
        raise StoreUnsupported(_rejection(store, f"format {found[0].version}"))


def root_id(store: Store) -> str:
    """Tells one root from another, after ``ensure_root_format``; empty if it is not known. Raises StoreUnavailable."""
    found = read_document(store, paths.ROOT_FORMAT, RootFormat)
    return found[0].writer if found is not None else ""


def _find_topic_of_format_1(store: Store) -> str | None:
    for topic in topics_with_folders(store):
        try:
            store.head(f"{topic}/current.json")
        except ObjectMissing:
            continue
        return topic
    return None


def _rejection(store: Store, found: str) -> str:
    return (
        f"{store} holds topics in {found}, and this version reads and writes format {ROOT_FORMAT} only. Nothing was "
        "changed. Use an empty root (--filer-url), or keep using the version that wrote this one"
    )
