"""Whether the silence of a group of Kafka clients means that nobody reads with it.

A group can only write while a broker with a listener for Kafka clients lives, and while the filer answers. After an
outage of either, members need a while to connect again, and what they hold unread must not be removed meanwhile.
"""

from __future__ import annotations

from smq_core.model.entities import SECOND, Micros
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.cleanup.filer_clock import ClockReading

# How long members may take to connect again. Kafka's clients back off for a few seconds, and join for as long.
REJOIN_TIME: Micros = 60 * SECOND
# Brokers are looked at this often at least, or nobody knows that one lived all the time.
MAX_UNSEEN: Micros = 30 * SECOND


class KafkaSilence:
    """Use it on the event loop. ``observe`` is called all the time."""

    def __init__(self, registry: BrokerRegistry) -> None:
        self._registry = registry
        self._observed_at: Micros | None = None
        self._brokers_since: Micros | None = None
        """Since when a broker with a listener has lived all the time."""

    def observe(self, now: Micros) -> None:
        was_unseen = self._observed_at is None or now - self._observed_at > MAX_UNSEEN
        self._observed_at = now
        if not any(it.kafka_address for it in self._registry.alive(now)):
            self._brokers_since = None
        elif self._brokers_since is None or was_unseen:
            self._brokers_since = now

    def counts(self, clocks: ClockReading) -> bool:
        """Whether a group that has been silent could have written."""
        since = self._brokers_since
        return (
            since is not None
            and clocks.leader - since >= REJOIN_TIME
            and clocks.filer - clocks.answers_since >= REJOIN_TIME
        )
