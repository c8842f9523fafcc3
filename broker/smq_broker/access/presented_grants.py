"""The grants that clients have presented to this broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from smq_broker.access.credentials import BrokerCredentials
from smq_broker.access.limited_stream import LimitedStream
from smq_core.access.grants import GrantBook
from smq_core.access.rights import Right
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock

# How often expired grants are forgotten, while clients present new ones.
CLEANUP_SECONDS = 60.0


class PresentedGrants:
    """A GrantBook for many threads, which verifies what goes into it. Times are seconds since the Unix epoch.

    ``count_throttled`` gets for how many seconds a quota for a topic and a right has held a stream back.
    """

    def __init__(
        self,
        credentials: BrokerCredentials,
        count_grace: Callable[[], object],
        count_throttled: Callable[[str, Right, float], object],
    ) -> None:
        self._credentials = credentials
        self._count_throttled = count_throttled
        self._lock = make_lock()
        self._book = GrantBook(credentials.current.release, count_grace)
        self._cleaned_at = 0.0

    def add(self, identity: str, signed: Iterable[pb.SignedGrant], now: float) -> str:
        """Returns the uid of the last one's topic; empty if there is none.

        Raises PermissionDenied or InvalidRequest at the first grant that is not good; those before it count.
        """
        verifier, uid = self._credentials.current.verifier, ""
        for it in signed:
            grant = verifier.verify(it)
            uid = grant.uid
            with self._lock:
                self._book.add(identity, grant, now)
        with self._lock:
            if now - self._cleaned_at >= CLEANUP_SECONDS:
                self._cleaned_at = now
                self._book.drop_expired(now)
        return uid

    def allow(self, identity: str, uid: str, rights: Iterable[Right], now: float, leader_seen_at: float) -> bool:
        """Whether the identity has one of these rights to the topic with this uid."""
        with self._lock:
            return any(self._book.allows(identity, uid, right, now, leader_seen_at) for right in rights)

    def open_stream(self, identity: str, uid: str, right: Right) -> LimitedStream:
        """A stream of the identity, which has the right to the topic with this uid. Raises QuotaExceeded."""
        with self._lock:
            meter = self._book.meter(identity, uid, right)
        return LimitedStream(meter, self._lock, partial(self._count_throttled, meter.topic, right))
