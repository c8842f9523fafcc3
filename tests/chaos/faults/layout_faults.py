"""Manual changes of the layout: split, merge, roll, move, drain."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter

import smq
from support.processes.local_cluster import LocalCluster

DRAIN_SECONDS = 3.0


class LayoutFaults:
    """``topics`` are their numbers of replicas. Each method does one thing and says what, or raises SmqError."""

    def __init__(self, cluster: LocalCluster, topics: dict[str, int]) -> None:
        self._cluster = cluster
        self._topics = topics

    def is_stable(self) -> bool:
        """No segment is being sealed and every replica is alive."""
        try:
            with self._cluster.connect() as client:
                brokers = [broker for broker in client.admin().brokers() if broker.state == "alive"]
                held = Counter(
                    (load.topic, load.segment) for b in brokers for load in b.segments if load.state == "open"
                )
                return all(self._is_open(client, topic, held) for topic in self._topics)
        except smq.SmqError:
            return False

    def _is_open(self, client: smq.Client, topic: str, held: Counter[tuple[str, str]]) -> bool:
        segments = client.admin().segments(topic)
        open_on = {segment: count for (name, segment), count in held.items() if name.rpartition("/")[2] == topic}
        return bool(segments) and all(
            s.phase == "open" and open_on.get(s.name) == len(s.brokers) == self._topics[topic] for s in segments
        )

    def split(self, draw: random.Random) -> str:
        topic = self._topic(draw)
        with self._cluster.connect() as client:
            segment = draw.choice(self._open(client, topic))
            client.admin().split(topic, segment.name)
        return f"split {segment.name}"

    def merge(self, draw: random.Random) -> str:
        topic = self._topic(draw)
        with self._cluster.connect() as client:
            ordered = sorted(self._open(client, topic), key=lambda s: s.start)
            at = draw.randrange(len(ordered) - 1)
            names = [s.name for s in ordered[at : at + 2]]
            client.admin().merge(topic, names)
        return "merge " + " ".join(names)

    def roll_or_move(self, draw: random.Random) -> str:
        topic = self._topic(draw)
        with self._cluster.connect() as client:
            segment = draw.choice(self._open(client, topic))
            action = draw.choice(["roll", "move"])
            getattr(client.admin(), action)(topic, segment.name)
        return f"{action} {segment.name}"

    def drain(self, draw: random.Random) -> str:
        name, pid = draw.choice(sorted(self._cluster.pids().items()))
        with self._cluster.connect() as client:
            client.admin().drain(name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)  # it comes back as another incarnation, which takes segments again
        return f"drained {name}"

    def replicas(self, draw: random.Random) -> tuple[str, list[str]]:
        """An open segment and the brokers that have it."""
        with self._cluster.connect() as client:
            segment = draw.choice(self._open(client, self._topic(draw)))
        return segment.name, list(segment.brokers)

    def _topic(self, draw: random.Random) -> str:
        return draw.choice(sorted(self._topics))

    def _open(self, client: smq.Client, topic: str) -> list[smq.SegmentInfo]:
        return [s for s in client.admin().segments(topic) if s.phase == "open"]
