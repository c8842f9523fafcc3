"""The Flight server, and its replacement by another one when it has to show another certificate.

A Flight server reads its certificate once. Another server binds the same port as soon as the former one has closed it,
some milliseconds after its shutdown began. Streams of the former server go on, until their clients end them or their
own certificates expire. Meanwhile clients that connect try again: gRPC does so by itself.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

import pyarrow as pa
import structlog

from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.model.addresses import join_address, split_address
from smq_storage.process.listeners import address_family

# How long another server waits for the port of the former one. Without a port the process is of no use.
MAX_BIND_SECONDS = 10.0
BIND_RETRY_SECONDS = 0.001

log = structlog.get_logger(__name__)


class Server(Protocol):
    """A Flight server that serves since it was made. ``shutdown`` closes its port, then waits for its streams."""

    @property
    def port(self) -> int: ...

    def shutdown(self) -> None: ...


class ServerRotation:
    """``make`` starts a server at a ``host:port``. ``port`` is the one that it bound, and stays the same.

    ``swap`` is called by one thread.
    """

    def __init__(self, listen: str, make: Callable[[str], Server], threads: ThreadSupervisor) -> None:
        self._make = make
        self._threads = threads
        self._server = make(listen)
        self._host = split_address(listen)[0]
        self.port = self._server.port

    def swap(self) -> None:
        """Replaces the server. If its port cannot be bound again, the process ends in an orderly way."""
        began = time.monotonic()
        former = self._server
        # Its shutdown returns when its last stream has ended. If its thread dies, the port is closed at the latest with
        # the process, which cannot bind it until then.
        shutdown = Task(kind="server-shutdown", run=former.shutdown, on_death=lambda: None, restarts=False)
        self._threads.start(shutdown)
        while True:
            try:
                if self._is_free():
                    self._server = self._make(join_address(self._host, self.port))
                    break
                failure = "it is still in use"
            except (OSError, pa.ArrowException) as error:
                failure = str(error)
            if time.monotonic() - began > MAX_BIND_SECONDS:
                reason = f"no server with the new certificate could listen on port {self.port}: {failure}"
                self._threads.end_process(reason)
                return
            time.sleep(BIND_RETRY_SECONDS)
        log.info("server.replaced", port=self.port, after_seconds=round(time.monotonic() - began, 4))

    def _is_free(self) -> bool:
        """Whether the port seems to be free. gRPC complains on stderr each time that it cannot bind one."""
        try:
            with closing(socket.socket(address_family(self._host), socket.SOCK_STREAM)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._host, self.port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # what else is wrong, the server says
        return True
