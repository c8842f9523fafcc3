"""A consumer of the whole topic as a separate process. It writes down what it is given and told, until SIGTERM.

``reader_process.py LEADER TOPIC NAME FOLDER``
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import smq
from support.client_logs.records import LogWriter, log_path, next_run

OUTAGE = 900.0


def main(leader: str, topic: str, name: str, folder: Path) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log = LogWriter(log_path(folder, name, next_run(folder, name)))
    with smq.connect(leader, timeout=OUTAGE) as client, client.consumer(topic, start="earliest") as consumer:
        while not stop.is_set():
            poll(consumer, log, stop)
            log.flush()
        log.close()


def poll(consumer: smq.Consumer, log: LogWriter, stop: threading.Event) -> smq.Batch | None:
    """One call, and its outcome written down."""
    try:
        batch = consumer.poll(0.5)
    except smq.DataLost as loss:
        if not getattr(loss, "certain", True):  # earlier versions know only certain ones
            log.possibly_lost(loss.segment, loss.start)
        else:
            log.lost(loss.segment, loss.start, None if getattr(loss, "at_least", False) else loss.stop)
        return None
    except smq.SmqError as error:
        log.error(f"{error.code}: {error.message}")
        stop.wait(0.5)
        return None
    if batch is not None:
        log.got(batch.segment, batch.first_offset, map(bytes.decode, batch.table.column("value").to_pylist()))
    return batch


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
