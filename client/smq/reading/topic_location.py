"""Where a topic is: all that another process needs to read it."""

from __future__ import annotations

from dataclasses import dataclass

from smq.transport.dialer import Dialer
from smq_storage.object_store.store import Store, StoreSettings


@dataclass(frozen=True, slots=True)
class TopicLocation:
    """Can be sent to another process. ``store`` has the filer's credentials if the program gave them.

    ``topic`` is ``namespace/topic``. ``via`` is the relay through which brokers are reached; None means directly.
    """

    topic: str
    uid: str
    store: StoreSettings
    via: str | None = None

    def dialer(self) -> Dialer:
        """What opens connections to brokers."""
        return Dialer(self.via)

    def open_store(self) -> Store:
        """The store of the topic's files. Nothing is sent yet."""
        return self.store.open()
