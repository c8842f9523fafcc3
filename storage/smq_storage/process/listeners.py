"""Sockets that listen for connections, over IPv4 and IPv6."""

from __future__ import annotations

import socket

from smq_core.model.addresses import ALL_ADDRESSES


def address_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def create_listener(host: str, port: int) -> socket.socket:
    """Listens at the address; for ``::`` over IPv4 too, and on a machine without IPv6 over IPv4 alone."""
    if host != ALL_ADDRESSES:
        return socket.create_server((host, port), family=address_family(host))
    if socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
