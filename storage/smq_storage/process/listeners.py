"""Sockets that listen for connections, over IPv4 and IPv6."""

from __future__ import annotations

import socket

from smq_core.model.addresses import ALL_ADDRESSES


def address_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def create_listener(host: str, port: int) -> socket.socket:
    """Listens at the address; for ``::`` over IPv4 too, and on a machine without IPv6 over IPv4 alone.

    Connections send small messages at once. asyncio would leave them waiting for 40 ms, because it does not see that a
    socket is one of TCP which was accepted here.
    """
    listener = _listen(host, port)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by what is accepted
    return listener


def _listen(host: str, port: int) -> socket.socket:
    if host != ALL_ADDRESSES:
        return socket.create_server((host, port), family=address_family(host))
    if socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
