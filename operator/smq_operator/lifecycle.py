"""From a wish to a living topic: its uid, made once; its spec in the filer; what of a spec can never change.

These functions block on the store.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from smq_core.errors import Conflict, InvalidManifest
from smq_core.model import Topic
from smq_operator.world import Wish
from smq_storage.conditional import Patience
from smq_storage.manifest import check_change
from smq_storage.retired import Retired, read_retired, withdraw_retired, write_retired
from smq_storage.store import Store
from smq_storage.topics import put_current, put_topic, read_current, read_living, read_topic

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Adopted:
    """A topic as it shall be led. ``problem`` says what of the wish is not followed, and why."""

    topic: Topic
    problem: str | None = None


def adopt(store: Store, wish: Wish, patience: Patience, now: int = 0, owner: str = "") -> Adopted:
    """Gives the topic its uid (the wish's own, the filer's, or a new one) and writes its spec down.

    A wish that changes something immutable is not followed: the spec in the filer stays. ``now`` is in microseconds,
    ``owner`` names the world that wishes it. Raises StoreUnavailable.
    """
    uid = _settle_uid(store, wish, patience, now, owner)
    if read_retired(store, uid) is not None:
        withdraw_retired(store, uid)
    known = read_topic(store, wish.name, uid)
    spec, problem = wish.spec, wish.problem
    if known is not None:
        try:
            check_change(known.spec, wish.spec)
        except InvalidManifest as error:
            spec = known.spec
            problem = error.message
    topic = Topic(wish.name, uid, spec)
    if known != topic:
        put_topic(store, topic)
    return Adopted(topic, problem)


def note_deletion(store: Store, name: str, uid: str, patience: Patience, now: int) -> None:
    """Writes down that the topic was deleted at this time (microseconds), and what its policy says of the data.

    Nothing else changes: a topic that comes back under this uid has the record withdrawn. Raises StoreUnavailable.
    """
    known = read_topic(store, name, uid)
    write_retired(store, Retired(name, uid, now, known is not None and known.spec.delete_data), patience)


def retire(store: Store, name: str, uid: str, patience: Patience, now: int = 0) -> None:
    """The topic lives no more: a later one of the same name gets a uid of its own. Raises StoreUnavailable."""
    for _ in range(_TRIES):
        current = read_current(store, name)
        if current is None or current[0] != uid:
            return
        # First the record: whoever finds the name free finds what is to be collected.
        note_deletion(store, name, uid, patience, now)
        try:
            put_current(store, name, "", current[1], patience)
            return
        except Conflict:
            continue
    raise Conflict(f"the uid of topic {name} changes again and again: is another leader running?")


def _settle_uid(store: Store, wish: Wish, patience: Patience, now: int, owner: str) -> str:
    for _ in range(_TRIES):
        current = read_current(store, wish.name)
        uid, etag = current if current is not None else ("", None)
        wanted = wish.uid or uid or uuid.uuid4().hex
        given = wish.uid is not None
        if uid == wanted:
            known = read_living(store, wish.name)
            if known is not None and (not owner or known.owner == owner) and known.given >= given:
                return uid
        if uid and uid != wanted:
            note_deletion(store, wish.name, uid, patience, now)
        try:
            put_current(store, wish.name, wanted, etag, patience, owner, given)
            return wanted
        except Conflict:
            continue
    raise Conflict(f"the uid of topic {wish.name} changes again and again: is another leader running?")
