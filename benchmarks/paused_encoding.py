"""Measures what it costs to encode a batch of one message, in a loop and after pauses.

``python -m benchmarks.paused_encoding``. A producer of few messages encodes one after the other with pauses in between.
On a virtual machine that shares its caches with others, it finds little of its code and data there afterwards, also if
it spins in the pause (``--spin``).
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable

from smq.producing.batching.batch_builder import BatchBuilder
from smq.producing.delivery_state import DeliveryState
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import KeylessPartitioner
from smq_core.model.entities import Topic, TopicSpec

PARTITIONS = 64
VALUE = b"x" * 200
PAUSES_MS = (0, 1, 4, 8, 20)


def encode_one(encoder: BatchEncoder, keyless: KeylessPartitioner, lock: threading.Lock) -> None:
    batch = BatchBuilder(encoder, DeliveryState(1, lock), 0.0)
    batch.add(VALUE, b"key", time.time_ns())
    batch.to_rows(keyless).encode()


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def cpu_seconds(call: Callable[[], None], pause: Callable[[float], None], pause_seconds: float, count: int) -> float:
    """The CPU time of one call, as the mean of ``count``."""
    used = 0.0
    for _ in range(count):
        if pause_seconds:
            pause(pause_seconds)
        began = time.thread_time()
        call()
        used += time.thread_time() - began
    return used / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="of messages for each pause")
    parser.add_argument("--spin", action="store_true", help="spin in the pause instead of sleeping")
    given = parser.parse_args()
    encoder = BatchEncoder(Topic("default/t", "uid", TopicSpec(partitions=PARTITIONS)))
    keyless, lock = KeylessPartitioner(PARTITIONS, 0), threading.Lock()
    pause = spin if given.spin else time.sleep
    for milliseconds in PAUSES_MS:
        seconds = cpu_seconds(lambda: encode_one(encoder, keyless, lock), pause, milliseconds / 1e3, given.count)
        print(f"{milliseconds:3d} ms between two messages: {seconds * 1e6:6.0f} us of CPU each", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
