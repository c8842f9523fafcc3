"""On which addresses a process listens, as Linux shows it."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
LISTEN = "0A"


def listening(pid: int) -> set[tuple[Address, int]]:
    """Addresses and TCP ports of its listening sockets."""
    own = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN and f"socket:[{words[9]}]" in own:
                address, _, port = words[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(text: str) -> Address:
    """Words of four bytes, each in the order of this machine."""
    packed = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    return ipaddress.ip_address(packed)
