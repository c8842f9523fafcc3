"""Which names of a host are those of a cluster or a machine. Others are a web page's, whose name leads here."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

# Of names that no public name server has.
_SUFFIXES = (".svc", ".local", ".internal", ".localhost")


def is_cluster_host(header: str, others: Collection[str] = ()) -> bool:
    """Whether the header Host of an HTTP request names an address, a name without dots, or one inside a cluster.

    ``others`` are further names, in lower case, which whoever runs the process has chosen.

    A web page can let its own name lead to an address in the network of whoever reads it. Then the browser would give
    the page what is served there. Addresses and private names cannot be claimed so.
    """
    host = header.rsplit(":", 1)[0] if header.rfind(":") > header.rfind("]") else header
    host = host.strip("[]").rstrip(".").lower()
    if not host:
        return False
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host or host.endswith(_SUFFIXES) or host in others
    return True
