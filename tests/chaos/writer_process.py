"""A producer as a separate process: numbered messages per key until SIGTERM. It writes down each send and outcome.

``writer_process.py LEADER TOPIC NAME PER_SECOND FOLDER [id]``; with ``id`` its producer id is NAME. A run that
follows a killed one reads the earlier logs and sends what had no ack, then goes on. It exits with 3 if it was fenced.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import defaultdict, deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import smq
from support.client_logs.message_rules import FENCED
from support.client_logs.records import LogWriter, log_path, message_text, next_run, read_lines

KEYS = 50
# Seconds for which a message may wait: longer than everything that a chaos run does to the cluster at once.
OUTAGE = 900.0
FENCED_EXIT = 3


class Numbers:
    """Which number of each key comes next: first what earlier runs sent without an ack, then new ones."""

    def __init__(self, folder: Path, name: str, run: int) -> None:
        self._turn = 0
        self._keys = [f"{name}-{key}" for key in range(KEYS)]
        self._next: dict[str, int] = defaultdict(int)
        again: dict[str, set[int]] = defaultdict(set)
        acked: dict[str, set[int]] = defaultdict(set)
        for earlier in range(1, run):
            for event, *words in read_lines(log_path(folder, name, earlier)):
                if event in ("sent", "acked"):
                    (again if event == "sent" else acked)[words[0]].add(int(words[2]))
        for key, numbers in again.items():
            self._next[key] = max(numbers) + 1
        self._again = {key: deque(sorted(numbers - acked[key])) for key, numbers in again.items()}

    def take(self) -> tuple[str, int]:
        key = self._keys[self._turn % KEYS]
        self._turn += 1
        if again := self._again.get(key):
            return key, again.popleft()
        self._next[key] += 1
        return key, self._next[key] - 1


class Writer:
    def __init__(self, producer: smq.Producer, log: LogWriter, numbers: Numbers, run: int) -> None:
        self._producer = producer
        self._log = log
        self._numbers = numbers
        self._run = run
        self._waiting: deque[tuple[str, smq.Delivery[smq.Receipt]]] = deque()
        self.fenced = False

    def send(self, count: int) -> None:
        messages = [(key, message_text(key, self._run, number)) for key, number in map(self._take, range(count))]
        for _, message in messages:
            self._log.sent(message)
        self._log.flush()
        for key, message in messages:
            try:
                self._waiting.append((message, self._producer.send(message.encode(), key=key.encode())))
            except smq.SmqError as error:
                self._failed(message, error)

    def _take(self, _: int) -> tuple[str, int]:
        return self._numbers.take()

    def record(self, *, wait: bool = False) -> None:
        """Writes down the outcomes that are known, or with ``wait`` all."""
        while self._waiting and (wait or self._waiting[0][1].done()):
            message, delivery = self._waiting.popleft()
            try:
                receipt = delivery.result(OUTAGE)
            except smq.SmqError as error:
                self._failed(message, error)
            else:
                self._log.acked(message, receipt.segment, receipt.offset)
        self._log.flush()

    def _failed(self, message: str, error: smq.SmqError) -> None:
        self._log.failed(message, error.code)
        self.fenced = self.fenced or error.code == FENCED


def main(leader: str, topic: str, name: str, per_second: int, folder: Path, with_id: bool) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    run = next_run(folder, name)
    log = LogWriter(log_path(folder, name, run))
    try:
        with smq.connect(leader, timeout=OUTAGE) as client:
            writer = Writer(
                connect_producer(client, topic, name if with_id else None), log, Numbers(folder, name, run), run
            )
            while not stop.is_set() and not writer.fenced:
                began = time.monotonic()
                writer.send(max(1, per_second // 100))
                writer.record()
                stop.wait(max(0.0, 0.01 - (time.monotonic() - began)))
            writer.record(wait=True)
            log.close()
    except smq.ProducerFenced:  # from the end of the block, which closes the producer
        return FENCED_EXIT
    return 0


def connect_producer(client: smq.Client, topic: str, producer_id: str | None) -> smq.Producer:
    """Tries again while there is no broker or no filer, because a claim needs both."""
    deadline = time.monotonic() + OUTAGE
    while True:
        try:
            return client.producer(topic, linger=0.005, timeout=OUTAGE, producer_id=producer_id)
        except smq.SmqError as error:
            if time.monotonic() > deadline:
                raise
            print(f"no producer yet: {error}", file=sys.stderr)
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], int(sys.argv[4]), Path(sys.argv[5]), sys.argv[6:] == ["id"]))  # type: ignore[misc,call-arg]
