"""A TCP connection through this process, that a test can cut for one of those who use an address."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Wire:
    """A context manager: what connects to ``address`` (host:port) speaks with the target, until :meth:`cut`."""

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
        """Ends every connection; no new one is accepted."""
        with self._lock:
            self._cut = True
            for each in (self._listener, *self._ends):
                _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._ends += (near, far)
                    if self._cut:
                        _end(near)
                        _end(far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _end(sink)


def _end(it: socket.socket) -> None:
    with contextlib.suppress(OSError):
        it.shutdown(socket.SHUT_RDWR)
    it.close()
