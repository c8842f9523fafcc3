"""A producer as a process of its own: numbered messages per key until SIGTERM; what was acked goes to a log.

Log lines: ``key number segment offset``, in the order of acks; the last one is ``end`` when all had an outcome.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import smq


def main(leader: str, topic: str, name: str, per_second: int, log_path: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    counts = [0] * 50
    waiting: list[tuple[int, int, smq.Delivery[smq.Receipt]]] = []
    with Path(log_path).open("w", buffering=1) as log, smq.connect(leader) as client:
        with client.producer(topic, linger=0.005, timeout=300) as producer:
            per_tick = max(1, per_second // 100)
            turn = 0
            while not stop.is_set():
                began = time.monotonic()
                for _ in range(per_tick):
                    key = turn % len(counts)
                    turn += 1
                    text = b"%s-%d %d" % (name.encode(), key, counts[key])
                    waiting.append((key, counts[key], producer.send(text, key=b"%s-%d" % (name.encode(), key))))
                    counts[key] += 1
                while waiting and waiting[0][2].done():
                    record(log, name, waiting.pop(0))
                stop.wait(max(0.0, 0.01 - (time.monotonic() - began)))
            producer.flush(300)
        for entry in waiting:
            record(log, name, entry)
        log.write("end\n")


def record(log: object, name: str, entry: tuple[int, int, smq.Delivery[smq.Receipt]]) -> None:
    key, number, delivery = entry
    receipt = delivery.result(300)
    log.write(f"{name}-{key} {number} {receipt.segment} {receipt.offset}\n")  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
