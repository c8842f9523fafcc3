"""The hosts in a broker's certificate by which clients of Kafka verify it, beside its own server name.

A broker says itself under which names and addresses it is reached, because only whoever runs it knows that. It gets no
name of the release's own processes, so it cannot be taken for a leader or for another broker by these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from smq_core.access.peers import INTERNAL_DOMAIN
from smq_core.errors import InvalidRequest

MAX_HOSTS = 16
MAX_NAME_CHARACTERS = 253
# A name in DNS. One with a wildcard would stand for hosts of others.
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*\.?", re.ASCII)


def checked_hosts(hosts: Iterable[str]) -> Sequence[str]:
    """The hosts, each once and in lower case. Raises InvalidRequest if one of them may not be in a certificate."""
    found = list(dict.fromkeys(_checked(host.lower()) for host in hosts))
    if len(found) > MAX_HOSTS:
        raise InvalidRequest(f"a certificate has {MAX_HOSTS} hosts for Kafka clients at most, not {len(found)}")
    return found


def is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _checked(host: str) -> str:
    if is_ip_address(host):
        return host
    if len(host) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(host):
        raise InvalidRequest(f"{host[:MAX_NAME_CHARACTERS]!r} is neither a DNS name nor an IP address")
    name = host.removesuffix(".")
    if name == INTERNAL_DOMAIN or name.endswith(f".{INTERNAL_DOMAIN}"):
        raise InvalidRequest(f"{host} is a name of the release's own processes: advertise another one")
    return name
