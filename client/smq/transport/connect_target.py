"""What a program connects to: its arguments, and the environment for those that are left out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smq.transport.dialer import RELAY_LEADER_ADDRESS, Dialer
from smq.transport.security.security_files import security_files
from smq_core.errors import InvalidRequest
from smq_core.model.addresses import split_address

if TYPE_CHECKING:
    from smq_storage.object_store.presigned.urls import SigningKey
    from smq_storage.object_store.store import StoreSettings


@dataclass(frozen=True, slots=True)
class ConnectTarget:
    """``store`` is None if the leader has to say where the files are; ``leaders`` is empty for files only.

    ``key`` is the filer's, if the program gave one.
    """

    leaders: tuple[str, ...]
    dialer: Dialer
    store: StoreSettings | None
    key: SigningKey | None = None


def resolve_target(
    leader: str | None = None,
    *,
    via: str | None = None,
    filer_url: str | None = None,
    filer_endpoint: str | None = None,
    filer_region: str | None = None,
    filer_access_key: str | None = None,
    filer_secret_key: str | None = None,
    filer_session_token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
) -> ConnectTarget:
    """The arguments are those of ``smq.connect``. Raises InvalidRequest if there is neither a leader nor a filer."""
    security = security_files(
        ca_file=ca_file, token=token, token_file=token_file, cert_file=cert_file, key_file=key_file
    )
    credentials = None
    if security is not None:
        from smq.transport.security.credentials import Credentials

        credentials = Credentials(security)
    dialer = Dialer(via or os.environ.get("SMQ_VIA") or None, credentials)
    configured = leader or os.environ.get("SMQ_LEADER", "") or (RELAY_LEADER_ADDRESS if dialer.via else "")
    addresses = [a.strip() for a in configured.split(",") if a.strip()]
    for address in [*addresses, *filter(None, [dialer.via])]:
        try:
            host = split_address(address)[0]
        except ValueError:
            host = ""
        if not host or "/" in host:
            whose = "relay" if address == dialer.via else "leader"
            raise InvalidRequest(
                f"the {whose}'s address must be host:port ([host]:port if host is an IPv6 address), not {address!r}"
            )
    settings = None
    key = None
    if filer_access_key or filer_secret_key or filer_session_token:
        from smq_storage.object_store.credentials import given_key

        key = given_key(filer_access_key, filer_secret_key, filer_session_token)
    url = filer_url or os.environ.get("SMQ_FILER_URL")
    if url:
        from smq_storage.object_store.store import StoreSettings

        settings = StoreSettings.configured(
            url,
            endpoint=filer_endpoint or os.environ.get("SMQ_FILER_ENDPOINT"),
            region=filer_region or os.environ.get("SMQ_FILER_REGION"),
            key=key,
        )
    if not addresses and settings is None:
        raise InvalidRequest(
            "no leader is given; pass its address (host:port, or SMQ_LEADER), or a filer_url to read files only"
        )
    return ConnectTarget(tuple(addresses), dialer, settings, key)
