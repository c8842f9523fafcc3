"""The upper bound of a replicated queue over Arrow Flight: client -> primary -> follower and back, storing nothing.

It has three bare processes. The client keeps a window of unacked bytes; the primary forwards each batch unchanged, and
returns the follower's acks. There is no log, watermark or segment, so the difference to SeaweedMQ is the queue's cost.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as fl

from benchmarks.harness.child_process import ROOT, LoadProcess
from benchmarks.loads import payload
from benchmarks.loads.rate import at_rate, quantiles

ACK = struct.Struct("<Q")
PUT = fl.FlightDescriptor.for_command(b"put")


class Hop(fl.FlightServerBase):
    """Counts batches and acks them, at once or, with a next hop, when that one has."""

    def __init__(self, next_hop: str | None) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._next = next_hop

    def do_put(self, context: object, descriptor: object, reader: object, writer: object) -> None:
        if self._next is None:
            for number, _ in enumerate(_chunks(reader), 1):
                writer.write(ACK.pack(number))  # type: ignore[attr-defined]
            return
        with fl.connect(self._next) as client:
            onward, acks = client.do_put(PUT, reader.schema)  # type: ignore[attr-defined]

            def pass_acks() -> None:
                while (ack := acks.read()) is not None:
                    writer.write(ack)  # type: ignore[attr-defined]

            passing = threading.Thread(target=pass_acks)
            passing.start()
            for batch in _chunks(reader):
                onward.write_batch(batch)
            onward.done_writing()
            passing.join()
            onward.close()


def _chunks(reader: object) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_chunk().data  # type: ignore[attr-defined]
        except StopIteration:
            return


@contextmanager
def _hop(*next_hop: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "benchmarks.loads.flight_relay", "hop", *next_hop]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def relay() -> Iterator[tuple[str, list[int]]]:
    """The primary's address and the pids of both hops."""
    with _hop() as (follower, second), _hop(follower) as (primary, first):
        yield primary, [first, second]


def pusher(address: str, size: int, total: int, batch_bytes: int, window: int) -> LoadProcess:
    """:func:`push` as a separate process."""
    words = ["--size", size, "--total", total, "--batch-bytes", batch_bytes, "--window", window]
    return LoadProcess([sys.executable, "-m", "benchmarks.loads.flight_relay", "push", address, *map(str, words)])


def push(address: str, size: int, total: int, batch_bytes: int, window: int) -> dict[str, float]:
    """Sends ``total`` bytes of events in batches of ``batch_bytes``, at most ``window`` bytes of them unacked."""
    rows = batch_bytes // size
    batch = payload.table(size, rows).combine_chunks().to_batches()[0]
    count = max(1, total // (rows * size))
    allowed = max(1, window // (rows * size))
    capacity = threading.Semaphore(allowed)
    with fl.connect(address) as client:
        writer, acks = client.do_put(PUT, batch.schema)

        def read_acks() -> None:
            while acks.read() is not None:
                capacity.release()

        reading = threading.Thread(target=read_acks)
        reading.start()
        start = time.perf_counter()
        for _ in range(count):
            capacity.acquire()
            writer.write_batch(batch)
        for _ in range(allowed):
            capacity.acquire()
        seconds = time.perf_counter() - start
        writer.done_writing()
        reading.join()
        writer.close()
    return {"seconds": seconds, "rows": count * rows, "bytes": count * rows * size}


def sender(address: str, size: int, rate: float, count: int) -> LoadProcess:
    """:func:`send` as a separate process."""
    words = ["--size", size, "--rate", rate, "--count", count]
    return LoadProcess([sys.executable, "-m", "benchmarks.loads.flight_relay", "send", address, *map(str, words)])


def send(address: str, size: int, rate: float, count: int) -> dict[str, float]:
    """Sends ``rate`` batches of one event a second; the quantiles are of the times to their acks, without a warm-up."""
    batch = payload.table(size, 1).combine_chunks().to_batches()[0]
    sent: list[float] = []
    taken: list[float] = []
    with fl.connect(address) as client:
        writer, acks = client.do_put(PUT, batch.schema)

        def read_acks() -> None:
            while acks.read() is not None:
                taken.append(time.perf_counter() - sent[len(taken)])

        reading = threading.Thread(target=read_acks)
        reading.start()
        start = time.perf_counter()
        for _ in at_rate(rate, count):
            sent.append(time.perf_counter())
            writer.write_batch(batch)
        writer.done_writing()
        reading.join()
        seconds = time.perf_counter() - start
        writer.close()
    return {"seconds": seconds, "rows": count, **quantiles(taken[count // 5 :])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    hop = what.add_parser("hop")
    hop.add_argument("next", nargs="?")
    pushing = what.add_parser("push")
    pushing.add_argument("address")
    for name in ("size", "total", "batch-bytes", "window"):
        pushing.add_argument(f"--{name}", type=int, required=True)
    sending = what.add_parser("send")
    sending.add_argument("address")
    for name in ("size", "rate", "count"):
        sending.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    if args.what == "hop":
        server = Hop(args.next)
        print(f"grpc://127.0.0.1:{server.port}", flush=True)
        sys.stdin.read()  # until the harness ends this process, or dies itself
        return
    if args.what == "send":
        print(json.dumps(send(args.address, args.size, args.rate, args.count)))
        return
    print(json.dumps(push(args.address, args.size, args.total, args.batch_bytes, args.window)))


if __name__ == "__main__":
    main()
