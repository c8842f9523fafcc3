"""Members of a group that check what they are given against what was committed."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

import confluent_kafka


@dataclass
class GroupLog:
    """What all members of a group have read and committed, by partition."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    read: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    committed: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def count(self) -> int:
        with self.lock:
            return sum(map(len, self.read.values()))


class Member:
    """A consumer of librdkafka in its own thread. It commits what it has read, and reports in ``log.problems`` when it
    gets a message that was committed before, or skips one. With ``group.protocol=consumer`` the
    brokers choose the timeouts.
    """

    def __init__(self, bootstrap: str, *, topic: str, group: str, log: GroupLog, **settings: object) -> None:
        defaults = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if settings.get("group.protocol") != "consumer":
            defaults |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self.assigned: set[int] = set()
        self._log = log
        self._next: dict[int, int] = {}
        self._consumer = confluent_kafka.Consumer(defaults | settings)
        self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()

    def _assign(self, _: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        with self._log.lock:
            self._next |= {it.partition: self._log.committed.get(it.partition, 0) for it in partitions}
        self.assigned = self.assigned | {it.partition for it in partitions}

    def _revoke(self, _: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assigned = self.assigned - {it.partition for it in partitions}

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(50, timeout=0.2)
            for message in messages:
                if message.error() is not None:
                    continue
                partition, offset = message.partition(), message.offset()
                expected = self._next.get(partition)
                # What another member has read and not committed comes again.
                if expected is not None and offset != expected:
                    self._log.problems.append(f"{partition}: {offset} instead of {expected}")
                self._next[partition] = offset + 1
                with self._log.lock:
                    self._log.read[partition].add(offset)
            if messages:
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            stored = self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # a rebalance, or another coordinator: what was read comes again
        with self._log.lock:
            for it in stored or ():
                if it.error is None and it.offset >= 0:
                    self._log.committed[it.partition] = max(it.offset, self._log.committed.get(it.partition, 0))
