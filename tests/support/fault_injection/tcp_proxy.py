"""A TCP proxy that cuts the connections of one client of an address."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class CuttableTcpProxy:
    """A context manager. Connections to ``address`` (host:port) reach the target until :meth:`cut`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self._cut = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Ends all connections and accepts no new ones."""
        with self._lock:
            self._cut = True
            for each in (self._listener, *self._ends):
                _close(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._ends += (near, far)
                    if self._cut:
                        _close(near)
                        _close(far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pipe, args=(source, sink), daemon=True).start()


def _pipe(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _close(sink)


def _close(it: socket.socket) -> None:
    with contextlib.suppress(OSError):
        it.shutdown(socket.SHUT_RDWR)
    it.close()
