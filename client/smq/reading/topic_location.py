"""Where a topic is: all that another process needs to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smq.transport.dialer import Dialer
from smq.transport.read_urls import ReadUrls
from smq.transport.security.security_files import SecurityFiles
from smq_storage.object_store.store import Store, StoreSettings

if TYPE_CHECKING:
    from smq.transport.security.shared_connections import SharedConnections
    from smq.transport.topic_view import TopicView


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLocation:
    """Can be sent to another process. ``store`` has the filer's credentials if the program gave them.

    ``topic`` is ``namespace/topic``. ``via`` is the relay through which brokers are reached; None means directly.
    ``security`` names the files by which each process enters a secure release, at one of its ``leaders``.
    ``own_dialer`` is that of a client in this process, which then cannot send this to another one.
    """

    topic: str
    uid: str
    store: StoreSettings
    via: str | None = None
    security: SecurityFiles | None = None
    leaders: tuple[str, ...] = ()
    own_dialer: Dialer | None = None

    def dialer(self) -> Dialer:
        """What opens connections to brokers. In a secure release all those of this process have one certificate."""
        if self.own_dialer is not None:
            return self.own_dialer
        shared = self._shared()
        return shared.dialer if shared is not None else Dialer(self.via)

    @property
    def needs_signed_reads(self) -> bool:
        """Whether this process can read the topic's files only with URLs of the leader."""
        return self.store.lacks_credentials and self.security is not None and bool(self.leaders)

    def open_store(self) -> Store:
        """The store of the topic's files. Nothing is sent yet."""
        shared = self._shared() if self.needs_signed_reads else None
        return self.store.open(ReadUrls(shared.leader.topics, self.topic, self.uid) if shared is not None else None)

    def _shared(self) -> SharedConnections | None:
        if self.security is None:
            return None
        from smq.transport.security.shared_connections import shared_connections

        return shared_connections(self.security, self.leaders, self.via)


def location_of(view: TopicView) -> TopicLocation:
    """For reads in this process, by the connections of the view's client. Raises StoreUnavailable."""
    uid = view.snapshot.topic.uid
    return TopicLocation(topic=view.name, uid=uid, store=view.store.settings, own_dialer=view.dialer)
