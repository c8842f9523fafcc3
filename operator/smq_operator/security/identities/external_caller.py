"""A caller by names that somebody outside chose. The prefix keeps it apart from everybody of the platform."""

from __future__ import annotations

from collections.abc import Sequence

from smq_core.errors import InvalidRequest, Unauthenticated
from smq_core.model.names import check_labels
from smq_operator.security.callers import Caller
from smq_operator.security.identities.tokens import MAX_IDENTITY_LENGTH

# Clocks of whoever made the token and of the leader differ.
LEEWAY_SECONDS = 30.0
# More would make each decision long.
MAX_GROUPS = 200


def external_caller(
    prefix: str, name: tuple[str, str], groups: Sequence[tuple[str, str]], *, method: str, expires_at: float
) -> Caller:
    """``name`` and each of ``groups`` are pairs: what it is, for people, and the text. Raises Unauthenticated."""
    labels = [(what, prefix + text) for what, text in (name, *groups)]
    try:
        check_labels(labels, MAX_IDENTITY_LENGTH)
    except InvalidRequest as error:
        raise Unauthenticated(error.message) from None
    identity, *others = (label for _, label in labels)
    return Caller(identity=identity, groups=tuple(others), method=method, expires_at=expires_at)
