"""How a client reaches an address: straight, or through the relay of a broker when it is outside the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    import pyarrow.flight as fl

    from smq_storage.store import StoreSettings

LEADER_BY_RELAY = "leader:7070"
"""What a relay takes for whoever leads."""

Options = Sequence[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class Network:
    """``via`` is the relay's host:port; None: every address is reached straight."""

    via: str | None = None

    def flight(self, address: str, options: Options = ()) -> fl.FlightClient:
        """A Flight client of the broker at ``address``; nothing is sent yet."""
        import pyarrow.flight as fl

        return fl.connect(f"grpc://{address}", generic_options=self._with_proxy(options))

    def control(self, address: str, options: Options = ()) -> grpc.Channel:
        """A channel to the leader at ``address``; nothing is sent yet."""
        return grpc.insecure_channel(address, options=self._with_proxy(options))

    def store(self, settings: StoreSettings) -> StoreSettings:
        """The same store, reached through the relay. Only a filer inside the cluster needs that: an ``http://`` one."""
        if self.via is None or not (settings.endpoint or "").startswith("http://"):
            return settings
        return replace(settings, proxy=f"http://{self.via}")

    def first(self, address: str) -> str:
        """Where the TCP connection on the way to ``address`` goes: there, or to the relay."""
        return self.via or address

    def _with_proxy(self, options: Options) -> list[tuple[str, str | int]]:
        # Without a relay a proxy of the environment is none of ours: brokers are not beyond it.
        chosen = ("grpc.http_proxy", f"http://{self.via}") if self.via else ("grpc.enable_http_proxy", 0)
        return [*options, chosen]


DIRECT = Network()
