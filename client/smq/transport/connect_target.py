"""What a program connects to: its arguments, and the environment for those that are left out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from smq.transport.dialer import RELAY_LEADER_ADDRESS, Dialer
from smq_core.errors import InvalidRequest

if TYPE_CHECKING:
    from smq_storage.object_store.store import StoreSettings


@dataclass(frozen=True, slots=True)
class ConnectTarget:
    """``store`` is None if the leader has to say where the files are; ``leaders`` is empty for files only.

    ``credentials`` are the filer's key pair, as far as the program gave it.
    """

    leaders: tuple[str, ...]
    dialer: Dialer
    store: StoreSettings | None
    credentials: tuple[str | None, str | None] = field(repr=False)


def resolve_target(
    leader: str | None = None,
    *,
    via: str | None = None,
    filer_url: str | None = None,
    filer_endpoint: str | None = None,
    filer_region: str | None = None,
    filer_access_key: str | None = None,
    filer_secret_key: str | None = None,
) -> ConnectTarget:
    """The arguments are those of ``smq.connect``. Raises InvalidRequest if there is neither a leader nor a filer."""
    dialer = Dialer(via or os.environ.get("SMQ_VIA") or None)
    configured = leader or os.environ.get("SMQ_LEADER", "") or (RELAY_LEADER_ADDRESS if dialer.via else "")
    addresses = [a.strip() for a in configured.split(",") if a.strip()]
    for address in [*addresses, *filter(None, [dialer.via])]:
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdigit():
            whose = "relay" if address == dialer.via else "leader"
            raise InvalidRequest(f"the {whose}'s address must be host:port, not {address!r}")
    settings = None
    url = filer_url or os.environ.get("SMQ_FILER_URL")
    if url:
        from smq_storage.object_store.store import StoreSettings

        settings = StoreSettings(
            url,
            endpoint=filer_endpoint or os.environ.get("SMQ_FILER_ENDPOINT") or None,
            region=filer_region or os.environ.get("SMQ_FILER_REGION") or None,
            access_key=filer_access_key,
            secret_key=filer_secret_key,
        )
    if not addresses and settings is None:
        raise InvalidRequest(
            "no leader is given; pass its address (host:port, or SMQ_LEADER), or a filer_url to read files only"
        )
    return ConnectTarget(tuple(addresses), dialer, settings, (filer_access_key, filer_secret_key))
