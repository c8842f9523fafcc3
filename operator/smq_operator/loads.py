"""Rates of segments from the counters in brokers' reports; only in memory."""

from __future__ import annotations

from dataclasses import dataclass

from smq_proto.v1 import data_pb2 as pb

FORGET_AFTER = 10_000_000


@dataclass(slots=True)
class Load:
    """One segment's load at its primary; rates per second over the last two reports."""

    topic: str
    at: int
    messages: int
    bytes: int
    batches: int
    messages_per_second: float = 0.0
    bytes_per_second: float = 0.0
    batches_per_second: float = 0.0


class Loads:
    """The loads by (topic, segment)."""

    def __init__(self) -> None:
        self.segments: dict[tuple[str, str], Load] = {}

    def took(self, status: pb.BrokerStatus, now: int) -> None:
        """A report came."""
        for report in status.segments:
            if not report.primary:
                continue
            key = (report.topic, report.segment)
            new = Load(report.topic, now, report.messages, report.bytes, report.batches)
            old = self.segments.get(key)
            if old is not None and now - old.at >= 200_000:
                seconds = (now - old.at) / 1e6
                new.messages_per_second = max(0, new.messages - old.messages) / seconds
                new.bytes_per_second = max(0, new.bytes - old.bytes) / seconds
                new.batches_per_second = max(0, new.batches - old.batches) / seconds
            elif old is not None:
                continue  # two reports at once: too short a time to measure a rate
            self.segments[key] = new

    def of_topic(self, topic: str, now: int) -> tuple[float, float]:
        """Messages and bytes per second of a topic."""
        for key in [k for k, load in self.segments.items() if now - load.at > FORGET_AFTER]:
            del self.segments[key]
        fresh = [load for load in self.segments.values() if load.topic == topic]
        return sum(load.messages_per_second for load in fresh), sum(load.bytes_per_second for load in fresh)
