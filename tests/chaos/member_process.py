"""A member of a consumer group as a separate process. It writes down what it is given and what it commits.

``member_process.py LEADER TOPIC GROUP NAME FOLDER``. It commits what it was given after each fourth batch or second.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from reader_process import OUTAGE, poll

import smq
from support.client_logs.records import LogWriter, log_path, next_run

BATCHES, SECONDS = 4, 1.0


class Committer:
    """Commits explicit positions, so that what is written down is what was asked for."""

    def __init__(self, consumer: smq.Consumer, log: LogWriter) -> None:
        self._consumer = consumer
        self._log = log
        self._positions: dict[str, int] = {}
        self._batches = 0
        self._last = time.monotonic()

    def add(self, batch: smq.Batch) -> None:
        self._positions[batch.segment] = batch.first_offset + len(batch)
        self._batches += 1

    def commit(self) -> None:
        if not self._positions:
            return
        self._log.trying(self._positions)
        self._log.flush()
        try:
            committed = self._consumer.commit(self._positions)
        except smq.StaleGeneration as error:
            self._log.refused(error.code)
            self._positions = {}  # whoever has these segments now reads them from the last commit
        except smq.SmqError as error:
            self._log.refused(error.code)
        else:
            self._log.committed(committed)
            self._positions = {}
        self._log.flush()
        self._batches, self._last = 0, time.monotonic()

    @property
    def due(self) -> bool:
        return self._batches >= BATCHES or time.monotonic() - self._last > SECONDS


def main(leader: str, topic: str, group: str, name: str, folder: Path) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log = LogWriter(log_path(folder, name, next_run(folder, name)))
    log.started()
    log.flush()
    with (
        smq.connect(leader, timeout=OUTAGE) as client,
        client.consumer(topic, group=group, start="earliest", auto_commit=False) as consumer,
    ):
        committer = Committer(consumer, log)
        while not stop.is_set():
            log.at()
            batch = poll(consumer, log, stop)
            log.flush()
            if batch is not None:
                committer.add(batch)
            if committer.due:
                committer.commit()
        committer.commit()
        log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]))
