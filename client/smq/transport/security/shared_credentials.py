"""The credentials of a process that reads where another one has planned, such as an executor of Spark.

Its tasks come and go, and each would log in anew. So they share credentials, for as long as the process runs.
"""

from __future__ import annotations

from smq.transport.dialer import Dialer
from smq.transport.leader_client import LeaderClient
from smq.transport.security.credentials import Credentials
from smq.transport.security.security_files import SecurityFiles
from smq_storage.process.locks import make_lock

_Key = tuple[SecurityFiles, tuple[str, ...], str | None]

_shared: dict[_Key, Credentials] = {}
_shared_guard = make_lock()


def shared_credentials(files: SecurityFiles, leaders: tuple[str, ...], via: str | None) -> Credentials:
    """The same for the same arguments. Nothing is sent yet. Without ``leaders`` no broker can be reached."""
    key = (files, leaders, via)
    with _shared_guard:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Credentials(files)
            if leaders:
                found.attach(LeaderClient(list(leaders), dialer=Dialer(via, found)).auth)
        return found
