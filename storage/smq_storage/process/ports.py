"""Ports for processes that are started, stopped and started again at the same address."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence

from smq_core.errors import Unavailable
from smq_storage.process.listeners import address_family


def free_ports(count: int, host: str = "127.0.0.1", without: Sequence[int] = ()) -> list[int]:
    """Distinct ports that are free now, outside the range from which systems give ports to outgoing connections.

    None of them is in ``without``.

    So no other process takes them by chance while this one is down. Raises Unavailable if there are too few.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 32_000), 1000):
        if port in without:
            continue
        with socket.socket(address_family(host)) as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise Unavailable(f"{host} has no {count} free ports between 10000 and 32000")


def are_free(ports: Sequence[int], host: str = "127.0.0.1") -> bool:
    """Whether nobody listens on any of these ports. Connections that were closed just now do not count."""
    for port in ports:
        with socket.socket(address_family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def free_port() -> int:
    """A free port of loopback."""
    return free_ports(1)[0]
