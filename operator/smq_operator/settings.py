"""What a leader is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from smq_core.errors import InvalidRequest
from smq_operator.collecting import Patience
from smq_storage.store import StoreSettings

DEFAULT_PORT = 7070


@dataclass(frozen=True, slots=True)
class Settings:
    """``listen`` and ``http`` are host:port, port 0 takes a free one; ``advertise`` is what others are told.

    ``owner`` names the world (a folder of manifests, a cluster) whose topics these are; empty: it has no name, and
    topics that were deleted while nobody led are not found.
    """

    store: StoreSettings
    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    advertise: str | None = None
    http: str | None = None
    log_level: str = "info"
    collecting: Patience = field(default_factory=Patience)
    owner: str = ""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The local adapter. ``broker_args`` go to every broker process as they are, ``broker_wrapper`` goes before it.

    There are ``brokers`` brokers, or up to ``max_brokers`` as the load wants it; ``broker_capacity`` is what one of
    them is expected to carry, in bytes per second. ``scale_in_after``: as in ``FleetPolicy``.
    """

    folder: Path
    brokers: int = 3
    max_brokers: int | None = None
    broker_capacity: int = 100 * 2**20
    broker_memory: str = "1Gi"
    broker_args: tuple[str, ...] = field(default=())
    keep_brokers: bool = False
    broker_wrapper: tuple[str, ...] = field(default=())
    scale_in_after: int | None = None


def host_port(text: str) -> tuple[str, int]:
    """Splits ``host:port``. Raises InvalidRequest in words."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise InvalidRequest(f"an address is host:port, such as 127.0.0.1:{DEFAULT_PORT}, not {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)
