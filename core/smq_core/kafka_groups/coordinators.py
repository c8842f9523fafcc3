"""Which broker coordinates a group."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def coordinator_of(group: str, nodes: Iterable[int]) -> int | None:
    """The node with the highest hash of group and node, so that a change of nodes moves few groups. None if there is
    no node.
    """
    return max(nodes, key=lambda node: _weight(group, node), default=None)


def _weight(group: str, node: int) -> bytes:
    return hashlib.blake2b(group.encode(errors="surrogatepass"), digest_size=8, salt=node.to_bytes(8, "big")).digest()
