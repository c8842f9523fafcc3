"""_groups/<group>.json: the committed positions of a group, changed by compare-and-swap.

The file stays when the group is deleted (``deleted``). Without it, a late PUT of the group's beginning would create
the group again, and a late DELETE would remove a group that has begun anew.
"""

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
    as the offset up to which; None if that is not known yet. ``epoch`` changes when an administrator sets
    the positions, and is another one in a group that was deleted and begun anew. A group that was deleted has no
    positions, and its generation continues when it begins anew.
    """

    generation: int
    positions: Mapping[str, int] = field(default_factory=dict)
    writer: str = ""
    committed_at: int = 0
    last_active_at: int = 0
    known_losses: Mapping[str, int] | None = None
    epoch: str = ""
    deleted: bool = False


def read_positions(store: Store, topic: str, uid: str, group: str) -> tuple[CommittedPositions, str | None]:
    """The positions and their etag. A group that there never was counts as deleted. Raises StoreUnavailable."""
    found = read_document(store, paths.group(topic, uid, group), CommittedPositions)
    return found or (CommittedPositions(generation=0, deleted=True), None)


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
            stored, _ = read_positions(store, topic, uid, group)
        except CorruptDocument:
            continue
        for segment, position in stored.positions.items():
            highest[segment] = max(position, highest.get(segment, 0))
    return highest


def list_groups(store: Store, topic: str, uid: str) -> list[str]:
    """The groups with a file, by name, from a listing; also deleted ones. Files that are no group's are skipped."""
    found = (paths.group_name(o.path) for o in store.list(paths.groups_folder(topic, uid)))
    return [name for name in found if name is not None]
