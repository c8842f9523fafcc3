"""Connections that are made before they are needed: while what a segment follows still takes messages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable

from smq.channel import Channel
from smq.network import Network
from smq_core.errors import SmqError
from smq_core.model import Segment

log = logging.getLogger("smq")


class Prepared:
    """At most one connection for each segment, to its primary. Safe from many threads."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._lock = threading.Lock()
        self._channels: dict[str, Channel | None] = {}
        """By segment; None: it is being connected, or could not be."""

    def prepare(self, segments: Iterable[Segment]) -> None:
        """Connects in the background, once for each segment."""
        with self._lock:
            new = [s for s in segments if s.name not in self._channels]
            self._channels.update(dict.fromkeys(s.name for s in new))
        if new:
            threading.Thread(target=self._connect, args=(new,), name="smq-prepare", daemon=True).start()

    @property
    def ready(self) -> set[str]:
        """The segments whose connection stands."""
        with self._lock:
            return {name for name, channel in self._channels.items() if channel is not None}

    def take(self, segment: Segment) -> Channel:
        """The connection that is ready, else a new one. Raises Unavailable."""
        with self._lock:
            channel = self._channels.pop(segment.name, None)
        return channel or Channel.open(segment.primary.address, self._network)

    def keep(self, names: Collection[str]) -> None:
        """Closes the connections of all other segments."""
        with self._lock:
            others = [self._channels.pop(name) for name in self._channels.keys() - names]
        for channel in others:
            if channel is not None:
                channel.close()

    def close(self) -> None:
        self.keep(())

    def _connect(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            try:
                channel = Channel.open(segment.primary.address, self._network)
            except SmqError as error:
                log.debug("no connection for %s yet: %s", segment.name, error)
                continue
            with self._lock:
                wanted = segment.name in self._channels
                if wanted:
                    self._channels[segment.name] = channel
            if not wanted:
                channel.close()
