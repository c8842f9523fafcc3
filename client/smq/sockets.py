"""This process's TCP sockets to an address, of whatever library they are.

All of them are looked at while no other thread of Python runs. A look that lets others run at each descriptor, as the
functions of ``os`` and ``socket`` do, took up to 30 ms in a program that sends at the same time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import sys
from pathlib import Path

End = bytes
"""An address as the kernel writes it (``sockaddr``): the family, the port in the order of the network, the host."""

_STATUS = Path("/proc/self/status")
_SLOTS = re.compile(r"^FDSize:\s*(\d+)", re.MULTILINE)
_LARGEST = 128
"""Bytes of the largest ``sockaddr``."""

Peer = tuple[bytes, int]
"""A host, as 4 bytes or as 16, and a port. IPv4 has 4 bytes also when its socket is one of IPv6."""

_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv4 address begins with on a socket of IPv6."""


def peers(address: str) -> set[Peer]:
    """What a connection to host:port may be connected to. Empty when the host is not known."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {(_host(socket.inet_pton(family, str(end[0]))), int(port)) for family, _, _, _, end in found}


def to(wanted: set[Peer]) -> dict[End, int]:
    """The local ends of connections to these, and the descriptor of each. Empty where this is not Linux."""
    try:
        slots = _SLOTS.search(_STATUS.read_text())
        look = _Look()
    except (OSError, AttributeError):
        return {}
    found = {}
    for descriptor in range(int(slots[1]) if slots else 0):
        there = look.remote_end(descriptor)
        if there is not None and _peer(there) in wanted:
            here = look.local_end(descriptor)
            if here is not None:
                found[here] = descriptor
    return found


def since(before: dict[End, int], wanted: set[Peer]) -> list[socket.socket]:
    """Duplicates of the sockets to these that are none of those."""
    found = []
    for here, descriptor in to(wanted).items():
        if here not in before:
            with contextlib.suppress(OSError):
                found.append(socket.socket(fileno=os.dup(descriptor)))
    return found


def shut(sockets: list[socket.socket]) -> None:
    """Cuts these connections, for whoever else uses them too."""
    for it in sockets:
        with contextlib.suppress(OSError):
            it.shutdown(socket.SHUT_RDWR)
        it.close()


def _peer(end: End) -> Peer | None:
    """None when it is not of TCP's families."""
    family, port = int.from_bytes(end[:2], sys.byteorder), int.from_bytes(end[2:4], "big")
    if family == socket.AF_INET:
        return end[4:8], port
    return (_host(end[8:24]), port) if family == socket.AF_INET6 else None


def _host(packed: bytes) -> bytes:
    return packed.removeprefix(_MAPPED)


class _Look:
    """The C library's own functions. Of this kind of library a call keeps the interpreter's lock."""

    def __init__(self) -> None:
        libc = ctypes.PyDLL(None)
        self._local, self._remote = libc.getsockname, libc.getpeername
        self._address = ctypes.create_string_buffer(_LARGEST)
        self._size = ctypes.c_uint32()

    def local_end(self, descriptor: int) -> End | None:
        return self._end(self._local, descriptor)

    def remote_end(self, descriptor: int) -> End | None:
        """None of what is no socket, or not connected."""
        return self._end(self._remote, descriptor)

    def _end(self, call: ctypes._NamedFuncPointer, descriptor: int) -> End | None:
        self._size.value = _LARGEST
        if call(descriptor, self._address, ctypes.byref(self._size)) != 0:
            return None
        return self._address.raw[: self._size.value]
