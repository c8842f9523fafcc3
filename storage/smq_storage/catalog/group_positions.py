"""_groups/<group>.json: the committed positions of a group, changed by compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.errors import Conflict, CorruptDocument
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_documents import read_document, write_document
from smq_storage.object_store.store import Store

DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPositions:
    """``positions`` is {segment: next offset}. ``writer`` is unique for each write.

    ``committed_at`` is when a member last committed, ``last_active_at`` when the group last had a member, both in
    microseconds; 0 if that is unknown. ``known_losses`` are the losses of segments that were reported to members,
    as the offset up to which; None in a document of an earlier version. ``epoch`` changes when an administrator sets
    the positions, and is another one in a group that was deleted and begun anew.
    """

    generation: int
    positions: Mapping[str, int] = field(default_factory=dict)
    writer: str = ""
    committed_at: int = 0
    last_active_at: int = 0
    known_losses: Mapping[str, int] | None = None
    epoch: str = ""


def read_positions(store: Store, topic: str, uid: str, group: str) -> tuple[CommittedPositions, str] | None:
    """The positions and their etag, or None for a group that never committed. Raises StoreUnavailable."""
    return read_document(store, paths.group(topic, uid, group), CommittedPositions)


def put_positions(
    store: Store,
    topic: str,
    uid: str,
    group: str,
    committed: CommittedPositions,
    etag: str | None,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> str:
    """Replaces the positions with that etag, or creates them (None). Returns the new etag.

    Raises Conflict if another leader wrote: read again. Raises StoreStateUnknown if the outcome is unknown.
    """
    if not committed.writer:
        raise ValueError("committed positions need a writer, by which they are recognised")
    new = write_document(
        store,
        paths.group(topic, uid, group),
        committed,
        etag,
        is_mine=lambda it: it.writer == committed.writer,
        retry_policy=retry_policy,
    )
    if new is None:
        raise Conflict(f"the positions of group {group!r} were changed by another leader: read them again")
    return new


def highest_positions(store: Store, topic: str, uid: str) -> dict[str, int]:
    """The highest position that any group has committed, by segment. Raises StoreUnavailable.

    A position shows that the messages below it were acked. Files that cannot be read are left out.
    """
    highest: dict[str, int] = {}
    for group in list_groups(store, topic, uid):
        try:
            found = read_positions(store, topic, uid, group)
        except CorruptDocument:
            continue
        for segment, position in found[0].positions.items() if found is not None else ():
            highest[segment] = max(position, highest.get(segment, 0))
    return highest


def delete_positions(store: Store, topic: str, uid: str, group: str) -> None:
    store.delete(paths.group(topic, uid, group))


def list_groups(store: Store, topic: str, uid: str) -> list[str]:
    """The groups that have committed, by name, from a listing. Files that are no group's are skipped."""
    found = (paths.group_name(o.path) for o in store.list(paths.groups_folder(topic, uid)))
    return [name for name in found if name is not None]
