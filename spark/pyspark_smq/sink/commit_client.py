"""The client of a streaming query's commits. Spark runs them one after the other, mostly in the same process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_smq.options import Connection

if TYPE_CHECKING:
    import smq

_idle: dict[Connection, smq.Client] = {}


@contextmanager
def commit_client(connection: Connection, *, keep: bool) -> Iterator[smq.Client]:
    """A connected client. With ``keep`` it stays open for the next commit of this process, unless this one fails.

    To connect and to claim the app takes about as long as to publish a small micro-batch. Spark ends a process that has
    been idle for a minute, and the client with it.
    """
    client = _idle.pop(connection, None) or connection.connect()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if keep and connection not in _idle:
        _idle[connection] = client
    else:
        client.close()
