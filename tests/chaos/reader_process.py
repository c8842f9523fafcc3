"""A consumer as a process of its own: what it is given goes to a log, ``segment offset key number``, until SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import smq


def main(leader: str, topic: str, log_path: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with (
        Path(log_path).open("w", buffering=1 << 16) as log,
        smq.connect(leader) as client,
        client.consumer(topic, start="earliest") as consumer,
    ):
        while not stop.is_set():
            batch = consumer.poll(0.5)
            if batch is None:
                log.flush()
                continue
            for row, value in enumerate(batch.table.column("value").to_pylist()):
                log.write(f"{batch.segment} {batch.first_offset + row} {value.decode()}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
