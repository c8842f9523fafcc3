"""Opens connections: directly, or through a broker's relay if the client is outside the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

from smq_proto.channel_options import NO_PROXY

if TYPE_CHECKING:
    import pyarrow.flight as fl

    from smq_storage.object_store.store import StoreSettings

# A relay forwards this address to the current leader.
RELAY_LEADER_ADDRESS = "leader:7070"

ChannelOptions = Sequence[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class Dialer:
    """``via`` is the relay's host:port; None means that every address is reached directly."""

    via: str | None = None

    def flight(self, address: str, options: ChannelOptions = ()) -> fl.FlightClient:
        """Returns a Flight client of the broker at ``address``; nothing is sent yet."""
        import pyarrow.flight as fl

        return fl.connect(f"grpc://{address}", generic_options=self._with_proxy(options))

    def leader_channel(self, address: str, options: ChannelOptions = ()) -> grpc.Channel:
        """Returns a channel to the leader at ``address``; nothing is sent yet."""
        return grpc.insecure_channel(address, options=self._with_proxy(options))

    def store(self, settings: StoreSettings) -> StoreSettings:
        """Returns settings that use the relay if the store needs it."""
        proxy = self.http_proxy(settings.endpoint or "")
        return replace(settings, proxy=proxy) if proxy else settings

    def http_proxy(self, url: str) -> str | None:
        """The proxy for requests to that URL: the relay if it is ``http://``, as that of a filer in the cluster is."""
        return f"http://{self.via}" if self.via and url.startswith("http://") else None

    def first_hop(self, address: str) -> str:
        """Where the TCP connection for ``address`` goes: to the address itself, or to the relay."""
        return self.via or address

    def _with_proxy(self, options: ChannelOptions) -> list[tuple[str, str | int]]:
        chosen = ("grpc.http_proxy", f"http://{self.via}") if self.via else NO_PROXY
        return [*options, chosen]


DIRECT = Dialer()
