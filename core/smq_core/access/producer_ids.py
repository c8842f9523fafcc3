"""Producer ids name the identity that made them, so that no other identity can fence a producer by its id.

In a release with security, brokers and logs know a client's producer as ``<id>@<identity>``. The name is its own proof:
each broker compares it with the caller's certificate, whatever it has in memory. Files, journals, replicas and
successors of segments keep it as any id. Ids without an identity are those of the leader, and of open releases.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from smq_core.access.rights import Right, topic_right
from smq_core.errors import PermissionDenied

# Of the id that a program gives its producer.
MAX_PRODUCER_CHARACTERS = 256
_SEPARATOR = "@"


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims a producer id of ``topic``. Without an ``identity`` nobody is known, as in an open release."""

    identity: str = ""
    topic: str = ""
    administers: bool = True
    """Whether it may use the ids of others."""


ANYBODY = Claimant()


def id_of(producer: str, identity: str) -> str:
    """The id with the identity that made it; as it is without one."""
    return f"{producer}{_SEPARATOR}{_quoted(identity)}" if identity else producer


def is_own(producer_id: str, identity: str) -> bool:
    """Whether this identity made the id."""
    _, separator, made_by = producer_id.rpartition(_SEPARATOR)
    return bool(separator) and made_by == _quoted(identity)


def require_own(claimant: Claimant, producer_id: str) -> None:
    """Raises PermissionDenied if another made the id, unless the claimant administers the topic."""
    if not claimant.administers and not is_own(producer_id, claimant.identity):
        producer, _, made_by = producer_id.rpartition(_SEPARATOR)
        raise denial(claimant, producer or producer_id, unquote(made_by) if producer else "")


def denial(claimant: Claimant, producer: str, made_by: str) -> PermissionDenied:
    """Why the claimant may not use the producer id that ``made_by`` has made, or an unknown one."""
    access = str(topic_right(Right.ADMINISTER, claimant.topic))
    whose = f"one of {made_by}" if made_by else "of no identity"
    return PermissionDenied(
        f"producer id {producer!r} is {whose}, so {claimant.identity} may not use it without the right to {access}: "
        "choose another id, or let somebody with this right replace the producer",
        identity=claimant.identity,
        access=access,
    )


def _quoted(identity: str) -> str:
    """Without the separator, so that the last one in an id is the one before its identity."""
    return quote(identity, safe=":/")
