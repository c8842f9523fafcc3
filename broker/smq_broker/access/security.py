"""What differs between a broker with and without security, in one object for the process.

Only a broker with roots imports ``SecureBroker`` and with it the library for signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from smq_broker.access.callers import Access, OpenAccess
from smq_broker.access.dialer import BrokerDialer, FlightDialer
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.access.certificates import Certificate


class Security(Protocol):
    """``access`` recognises callers, ``dialer`` connects to other brokers."""

    permissive: bool
    """Whether callers in clear text are served, too."""

    @property
    def dialer(self) -> BrokerDialer: ...

    @property
    def access(self) -> Access: ...

    @property
    def certificate(self) -> Certificate | None:
        """That of this broker's server; None if connections are not encrypted."""
        ...

    @property
    def authorities(self) -> str:
        """The id of the authorities that this broker uses; empty without security."""
        ...

    def follow(self, authorities: str) -> None:
        """The leader says which authorities the release has now."""
        ...

    def start_renewal(self, on_renewal: Callable[[], None], threads: ThreadSupervisor) -> None:
        """``on_renewal`` is called whenever the certificate is another one. Raises Unavailable without threads."""
        ...


class OpenBroker:
    """No security."""

    permissive = False
    certificate = None
    authorities = ""

    def __init__(self) -> None:
        self.access: Access = OpenAccess()
        self.dialer = FlightDialer()

    def follow(self, authorities: str) -> None: ...

    def start_renewal(self, on_renewal: Callable[[], None], threads: ThreadSupervisor) -> None: ...
