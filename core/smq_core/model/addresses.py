"""Network addresses ``host:port``. The host of an IPv6 address is in brackets: ``[::1]:7070``."""

from __future__ import annotations

import ipaddress
import re

MAX_PORT = 65_535
# The host to listen at over IPv4 and IPv6.
ALL_ADDRESSES = "::"
# Hosts to listen at that no one can connect to from another machine.
WILDCARDS = frozenset({"", "0.0.0.0", ALL_ADDRESSES})

_HOST = r"[^:/\[\]\s]"
_ADDRESS = re.compile(rf"(?:\[([^\[\]]+)\]|({_HOST}*)):([0-9]{{1,50}})")


def split_address(text: str) -> tuple[str, int]:
    """Host (without brackets, maybe empty) and port. Raises ValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or (match[1] and not _is_ipv6(match[1])):
        hint = "; an IPv6 host is in brackets, such as [::1]:7070" if text.count(":") > 1 else ""
        raise ValueError(f"an address is host:port, such as 127.0.0.1:7070, not {text[:100]!r}{hint}")
    host, port = match[1] or match[2], int(match[3])
    if port > MAX_PORT:
        raise ValueError(f"there is no port {port}")
    return host, port


def join_address(host: str, port: int) -> str:
    """The reverse of :func:`split_address`; the host may have its brackets already."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def advertised_address(text: str, port: int) -> str:
    """The address of a process that has bound ``port``.

    ``text`` is host:port, or a host alone, such as the IP address of a Pod, which has no brackets. Port 0 is the bound
    one. Raises ValueError.
    """
    if _is_ipv6(text[1:-1] if text[:1] + text[-1:] == "[]" else text) or re.fullmatch(f"{_HOST}+", text):
        return join_address(text, port)
    host, given = split_address(text)
    if not host:
        raise ValueError(f"others cannot connect to {text!r}: it needs a host")
    return join_address(host, given or port)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
