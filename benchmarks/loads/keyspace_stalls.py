"""Measures for how long any part of the keyspace gets no ack.

``python -m benchmarks.loads.keyspace_stalls write …`` writes numbered messages at a steady rate, over many keys in
turn, until SIGTERM; then it waits for the acks that are due. ``read …`` reads everything and compares it with the acked
messages: which are lost, duplicated, or out of order within a key.

All messages of a key are in one segment at any time, so the time without an ack for a key is the stall of its range.
Message n of a writer has key n % keys. With ``--typed`` the topic has the columns ``key``, ``value`` and ``small``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import smq
from benchmarks.harness.child_process import LoadProcess
from benchmarks.loads.rate import at_rate

# Of a writer at most, and a multiple of how many each has.
KEYSPACE_PARTS = 64
DIGITS = 12
# Message n of writer w begins with the number w * WRITER + n.
WRITER = 10**10

# The lines of the spec of a topic for ``typed`` writers.
TYPED_COLUMNS = """
  key: key
  schema:
    - {name: key, type: binary}
    - {name: value, type: binary}
    - {name: small, type: int8}
"""

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]


# ---- in the load's process


def write(client: smq.Client, args: argparse.Namespace) -> Row:
    """Prints ``started`` first. ``--times`` gets two rows of float64: when message n was sent, and acked (or NaN)."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pad = b"x" * (args.size - DIGITS)
    keys = [b"%d-%d" % (args.writer, key_number) for key_number in range(args.keys)]
    sent, acked = array("d"), array("d")
    errors: list[str] = []

    def arrived(number: int) -> Callable[[smq.Delivery[smq.Receipt]], None]:
        def call(delivery: smq.Delivery[smq.Receipt]) -> None:
            error = delivery.exception(0)
            if error is not None:
                errors.append(repr(error))
            else:
                acked[number] = time.monotonic()

        return call

    with client.producer(args.topic, linger=args.linger, timeout=120) as producer:

        def send(number: int) -> smq.Delivery[smq.Receipt]:
            value, key = b"%0*d" % (DIGITS, args.writer * WRITER + number) + pad, keys[number % args.keys]
            if args.typed:
                return producer.send({"key": key, "value": value, "small": number % 100})
            return producer.send(value, key=key)

        send(0).result(60)
        sent.append(time.monotonic())
        acked.append(sent[0])
        print("started", flush=True)
        for number, _ in enumerate(at_rate(args.rate, stopped=stop.is_set), 1):
            acked.append(float("nan"))
            sent.append(time.monotonic())
            send(number).add_done_callback(arrived(number))
        producer.flush(180)
    times = np.array([sent, acked])
    np.save(args.times, times)
    return {
        "messages": len(sent),
        "acked": int((~np.isnan(times[1])).sum()),
        "errors": len(errors),
        "first_error": errors[0] if errors else None,
        "longest_ack_s": float(np.nanmax(times[1] - times[0])),
        "longest_unsent_s": float(np.diff(times[0]).max(initial=0.0)),
    }


def read(client: smq.Client, args: argparse.Namespace) -> Row:
    """Reads until everything acked was seen and nothing more comes for a second, or nothing at all for a minute."""
    acked = {writer: ~np.isnan(np.load(path)[1]) for writer, path in enumerate(args.written)}
    wanted = sum(int(a.sum()) for a in acked.values())
    seen = {writer: np.zeros(len(a), np.int32) for writer, a in acked.items()}
    last = {writer: np.full(KEYSPACE_PARTS, -1) for writer in acked}
    rows = disorder = 0
    with client.consumer(args.topic, start="earliest") as consumer:
        received = time.monotonic()
        while time.monotonic() - received < (60.0 if rows < wanted else 1.0):
            batch = consumer.poll(0.5)
            if batch is None:
                continue
            received = time.monotonic()
            rows += len(batch)
            numbers = np.asarray(pc.binary_slice(batch.table["value"], 0, DIGITS).cast(pa.string()).cast(pa.int64()))
            for writer in acked:
                mine = numbers[numbers // WRITER == writer] % WRITER
                np.add.at(seen[writer], mine, 1)
                disorder += _disorder(mine, last[writer])
    return {
        "read": rows,
        "lost": sum(int((acked[w] & (seen[w] == 0)).sum()) for w in acked),
        "doubled": sum(int((s > 1).sum()) for s in seen.values()),
        "disorder": disorder,
    }


def _disorder(numbers: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> int:
    """How many come after a higher one of their key. Updates ``last``, the highest so far of each key."""
    wrong = 0
    for key_number in np.unique(numbers % KEYSPACE_PARTS):
        mine = numbers[numbers % KEYSPACE_PARTS == key_number]
        highest = np.maximum.accumulate(np.concatenate([last[key_number : key_number + 1], mine]))
        wrong += int((mine < highest[:-1]).sum())
        last[key_number] = highest[-1]
    return wrong


# ---- in the harness


class StallMeasurement:
    """A context manager: one or more writers on a topic, and what became of what they sent. Its end is theirs."""

    def __init__(self, leader: str, topic: str) -> None:
        self._leader, self._topic = leader, topic
        self._folder = tempfile.TemporaryDirectory()
        self._writers: list[LoadProcess] = []
        self._ended: dict[int, Row] = {}
        self.cpu = 0.0

    def __enter__(self) -> StallMeasurement:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for child in self._writers:
            child.kill()
        self._folder.cleanup()

    def start(self, rate: float, *, key_count: int = KEYSPACE_PARTS, typed: bool = False) -> int:
        """Starts one more writer; returns its number when a message was acked. ``rate`` in messages a second.

        ``typed``: the topic has a schema, with the columns of ``TYPED_COLUMNS``.
        """
        number = len(self._writers)
        words = ("--writer", number, "--rate", rate, "--keys", key_count, "--times", self._times(number))
        argv = [
            sys.executable,
            "-m",
            "benchmarks.loads.keyspace_stalls",
            "write",
            self._leader,
            self._topic,
            *map(str, words),
            *(["--typed"] if typed else []),
        ]
        self._writers.append(LoadProcess(argv))
        self._writers[number].started()
        return number

    def stop(self, number: int) -> None:
        """Ends it and waits until all that it sent had an outcome. Raises LoadFailed."""
        child = self._writers[number]
        child.terminate()
        self._ended[number] = child.result()
        self.cpu += child.cpu

    def times(self, number: int) -> tuple[Floats, Floats]:
        """When message n was sent, and when it was acked or NaN, by CLOCK_MONOTONIC; after ``stop``."""
        sent, acked = np.load(self._times(number))
        return sent, acked

    def stalls(self, number: int, events: list[float], *, key_count: int = KEYSPACE_PARTS) -> list[float]:
        """``stalls`` of that writer's acks; after ``stop``."""
        return stalls(self.times(number)[1], events, key_count)

    def result(self) -> Row:
        """Reads everything back: ``lost``, ``doubled``, ``disorder``, ``messages`` and the writers' own words."""
        files = [str(self._times(number)) for number in range(len(self._writers))]
        argv = [
            sys.executable,
            "-m",
            "benchmarks.loads.keyspace_stalls",
            "read",
            self._leader,
            self._topic,
            "--written",
            *files,
        ]
        found = LoadProcess(argv).result()
        messages = sum(row["messages"] for row in self._ended.values())
        return {"messages": messages, "writers": list(self._ended.values()), **found}

    def _times(self, number: int) -> Path:
        return Path(self._folder.name) / f"writer-{number}.npy"


def stalls(acks: Floats, events: list[float], key_count: int = KEYSPACE_PARTS) -> list[float]:
    """For each event the longest time, for any key, without an ack that begins between it and the next event.

    ``acks``: when message n, with key n % keys, was acked, or NaN. A gap that the event falls into counts from the
    event on; one that is open at the next event counts for both.
    """
    found = [0.0] * len(events)
    for key_number in range(key_count):
        times = np.sort(acks[key_number::key_count])
        times = times[~np.isnan(times)]
        for number, event in enumerate(events):
            until = events[number + 1] if number + 1 < len(events) else float("inf")
            first, last = np.searchsorted(times, [event, until])
            within = np.concatenate([[event], times[first : last + 1]])
            found[number] = max(found[number], float(np.diff(within).max(initial=0.0)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "read"))
    parser.add_argument("leader")
    parser.add_argument("topic")
    parser.add_argument("--writer", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--keys", type=int, default=KEYSPACE_PARTS)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--linger", type=float, default=0.005)
    parser.add_argument("--typed", action="store_true")
    parser.add_argument("--times")
    parser.add_argument("--written", nargs="*", default=[])
    args = parser.parse_args()
    with smq.connect(args.leader) as client:
        row = write(client, args) if args.what == "write" else read(client, args)
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
