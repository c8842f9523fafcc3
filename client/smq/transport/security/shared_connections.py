"""What a process of a secure release shares that reads where another one has planned, such as an executor of Spark.

Its tasks come and go, and each would log in anew. So they share credentials and a connection to the leader, for as long
as the process runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq.transport.dialer import Dialer
from smq.transport.leader_client import LeaderClient
from smq.transport.security.credentials import Credentials
from smq.transport.security.security_files import SecurityFiles
from smq_storage.process.locks import make_lock

_Key = tuple[SecurityFiles, tuple[str, ...], str | None]


@dataclass(frozen=True, slots=True)
class SharedConnections:
    """``leader`` has no address if none was given; then no broker can be reached, and no URL is signed."""

    dialer: Dialer
    leader: LeaderClient


_shared: dict[_Key, SharedConnections] = {}
_shared_guard = make_lock()


def shared_connections(files: SecurityFiles, leaders: tuple[str, ...], via: str | None) -> SharedConnections:
    """The same for the same arguments. Nothing is sent yet."""
    key = (files, leaders, via)
    with _shared_guard:
        found = _shared.get(key)
        if found is None:
            dialer = Dialer(via, Credentials(files))
            leader = LeaderClient(list(leaders), dialer=dialer)
            if leaders:
                dialer.attach(leader.auth)
            found = _shared[key] = SharedConnections(dialer, leader)
        return found
