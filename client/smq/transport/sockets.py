"""Finds this process's TCP sockets to an address, whichever library opened them.

The search holds Python's global lock throughout. The functions of ``os`` and ``socket`` release it at each descriptor,
and with them a search took up to 30 ms in a program that sent messages at the same time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import sys
from pathlib import Path

from smq_core.model.addresses import split_address

# An address as the kernel stores it (``sockaddr``): the family, the port in network byte order, the host.
SocketAddress = bytes

_STATUS = Path("/proc/self/status")
_DESCRIPTOR_SLOTS = re.compile(r"^FDSize:\s*(\d+)", re.MULTILINE)
# The size of the largest ``sockaddr``.
_MAX_SOCKADDR_BYTES = 128

# A host (4 or 16 bytes) and a port. An IPv4 host has 4 bytes even on an IPv6 socket.
Peer = tuple[bytes, int]

# The prefix of an IPv4 address on an IPv6 socket.
_IPV4_MAPPED_PREFIX = bytes(10) + b"\xff\xff"


def peer_addresses(address: str) -> set[Peer]:
    """The peers that a connection to host:port may have. Empty if the host cannot be resolved."""
    try:
        host, port = split_address(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return set()
    return {(_host(socket.inet_pton(family, str(end[0]))), port) for family, _, _, _, end in found}


def connections_to(remote_peers: set[Peer]) -> dict[SocketAddress, int]:
    """The local addresses of connections to these peers, with their descriptors. Empty on systems other than Linux."""
    try:
        slots = _DESCRIPTOR_SLOTS.search(_STATUS.read_text())
        inspector = _SocketInspector()
    except (OSError, AttributeError):
        return {}
    found = {}
    for descriptor in range(int(slots[1]) if slots else 0):
        remote = inspector.remote_address(descriptor)
        if remote is not None and _peer_of(remote) in remote_peers:
            local = inspector.local_address(descriptor)
            if local is not None:
                found[local] = descriptor
    return found


def new_connections(before: dict[SocketAddress, int], remote_peers: set[Peer]) -> list[socket.socket]:
    """Duplicates of the sockets to these peers that are not among ``before``."""
    found = []
    for local, descriptor in connections_to(remote_peers).items():
        if local not in before:
            with contextlib.suppress(OSError):
                found.append(socket.socket(fileno=os.dup(descriptor)))
    return found


def shut_down(sockets: list[socket.socket]) -> None:
    """Shuts these connections down, also for other holders of the same sockets."""
    for it in sockets:
        with contextlib.suppress(OSError):
            it.shutdown(socket.SHUT_RDWR)
        it.close()


def _peer_of(end: SocketAddress) -> Peer | None:
    """None when it is not of TCP's families."""
    family, port = int.from_bytes(end[:2], sys.byteorder), int.from_bytes(end[2:4], "big")
    if family == socket.AF_INET:
        return end[4:8], port
    return (_host(end[8:24]), port) if family == socket.AF_INET6 else None


def _host(packed: bytes) -> bytes:
    return packed.removeprefix(_IPV4_MAPPED_PREFIX)


class _SocketInspector:
    """Calls the C library through ``PyDLL``, which keeps Python's global lock during a call."""

    def __init__(self) -> None:
        libc = ctypes.PyDLL(None)
        self._local, self._remote = libc.getsockname, libc.getpeername
        self._address = ctypes.create_string_buffer(_MAX_SOCKADDR_BYTES)
        self._size = ctypes.c_uint32()

    def local_address(self, descriptor: int) -> SocketAddress | None:
        return self._socket_address(self._local, descriptor)

    def remote_address(self, descriptor: int) -> SocketAddress | None:
        """None if the descriptor is no socket or is not connected."""
        return self._socket_address(self._remote, descriptor)

    def _socket_address(self, call: ctypes._NamedFuncPointer, descriptor: int) -> SocketAddress | None:
        self._size.value = _MAX_SOCKADDR_BYTES
        if call(descriptor, self._address, ctypes.byref(self._size)) != 0:
            return None
        return self._address.raw[: self._size.value]
