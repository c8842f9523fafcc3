"""The loads on SeaweedMQ. ``python -m benchmarks.loads.clients LOAD …`` runs one and prints a JSON object.

write     whole tables, for the given bytes or seconds
send      one message after the other, and checks every receipt
send_typed the same with rows of a topic with a schema
send_many messages by the thousand, and checks every receipt
latency   a fixed rate: from ``send`` to its receipt
consume   from the earliest message on, batch by batch

``references`` has the loads that publish by reference.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc

import smq
from benchmarks.loads import payload, references, typed_rows
from benchmarks.loads.rate import at_rate, quantiles

Row = dict[str, object]
# How many messages after it was sent a message's receipt is looked at.
WAITING = 50_000

MESSAGES_PER_CALL = 1000


def write(client: smq.Client, args: argparse.Namespace) -> Row:
    rows = max(1, args.table_bytes // args.size)
    table = payload.table(args.size, rows)
    per_table = rows * args.size
    with client.producer(args.topic, batch_bytes=args.batch_bytes, max_in_flight=args.window, timeout=300) as producer:
        producer.write(table.slice(0, 1)).result(60)  # connections and segments are found before the clock starts
        tables = 0
        start = time.perf_counter()
        while tables * per_table < args.bytes and time.perf_counter() - start < args.seconds:
            producer.write(table)
            tables += 1
        producer.flush(300)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": tables * rows, "bytes": tables * per_table, "written": tables * rows + 1}


def send(client: smq.Client, args: argparse.Namespace) -> Row:
    seconds = _send_each(client, args, payload.events(args.size))
    return {"seconds": seconds, "rows": args.count, "bytes": args.count * args.size}


def send_typed(client: smq.Client, args: argparse.Namespace) -> Row:
    """``--size`` is the number of columns."""
    return {"seconds": _send_each(client, args, typed_rows.rows(args.size)), "rows": args.count}


def _send_each(client: smq.Client, args: argparse.Namespace, values: Sequence[bytes | dict[str, object]]) -> float:
    """How many seconds it takes to send the values in turn and to see all receipts."""
    with client.producer(args.topic, linger=args.linger, timeout=300) as producer:
        producer.send(values[0]).result(60)
        start = time.perf_counter()
        receipts = 0
        waiting: deque[smq.Delivery[smq.Receipt]] = deque()
        for number in range(args.count):
            waiting.append(producer.send(values[number % len(values)]))
            if number >= WAITING:
                receipts += waiting.popleft().result(300).offset is not None
        receipts += sum(delivery.result(300).offset is not None for delivery in waiting)
        seconds = time.perf_counter() - start
    assert receipts == args.count, f"{receipts} receipts for {args.count} messages"
    return seconds


def send_many(client: smq.Client, args: argparse.Namespace) -> Row:
    values = payload.events(args.size)[:MESSAGES_PER_CALL]
    calls = args.count // len(values)
    with client.producer(args.topic, linger=args.linger, timeout=300) as producer:
        producer.send(values[0]).result(60)
        start = time.perf_counter()
        deliveries = [producer.send_many(values) for _ in range(calls)]
        receipts = sum(int((delivery.result(300).offsets >= 0).sum()) for delivery in deliveries)
        seconds = time.perf_counter() - start
    rows = calls * len(values)
    assert receipts == rows, f"{receipts} receipts for {rows} messages"
    return {"seconds": seconds, "rows": rows, "bytes": rows * args.size}


def latency(client: smq.Client, args: argparse.Namespace) -> Row:
    values = payload.events(args.size)
    keys = [b"%d" % key for key in range(args.keys)] or [None]
    taken = np.full(args.count, np.nan)
    failed: list[str] = []

    def arrived(number: int, sent: float) -> Callable[[smq.Delivery[smq.Receipt]], None]:
        def call(delivery: smq.Delivery[smq.Receipt]) -> None:
            taken[number] = time.perf_counter() - sent
            error = delivery.exception(0)
            if error is not None:
                failed.append(repr(error))

        return call

    with client.producer(args.topic, linger=args.linger, timeout=60) as producer:
        producer.send(values[0]).result(60)
        start = time.perf_counter()
        for number in at_rate(args.rate, args.count):
            sent = time.perf_counter()
            delivery = producer.send(values[number % len(values)], key=keys[number % len(keys)])
            delivery.add_done_callback(arrived(number, sent))
        producer.flush(60)
        seconds = time.perf_counter() - start
    assert not failed and not np.isnan(taken).any(), failed[:3]
    return {"seconds": seconds, "rows": args.count, **quantiles(taken[args.count // 5 :].tolist())}


def consume(client: smq.Client, args: argparse.Namespace) -> Row:
    """The clock starts when the first batch is there; its rows do not count."""
    rows = size = 0
    with client.consumer(args.topic, start="earliest") as consumer:
        requested_at = time.perf_counter()
        first = consumer.poll(60)
        assert first is not None, "nothing came for 60 s"
        head = len(first)
        start = time.perf_counter()
        while head + rows < args.count:
            batch = consumer.poll(60)
            assert batch is not None, f"only {head + rows} of {args.count} messages came"
            rows += len(batch)
            size += pc.sum(pc.binary_length(batch.table["value"])).as_py()
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": rows, "bytes": size, "first_batch_s": start - requested_at}


WHATS = {f.__name__: f for f in (write, send, send_typed, send_many, latency, consume)} | references.WHATS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("leader")
    parser.add_argument("topic")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--keys", type=int, default=0, help="how many; 0: messages have none")
    parser.add_argument("--linger", type=float, default=0.005)
    parser.add_argument("--batch-bytes", type=int, default=1 << 20)
    parser.add_argument("--table-bytes", type=int, default=8 << 20)
    parser.add_argument("--window", type=int, default=32 << 20)
    args = parser.parse_args()
    with smq.connect(args.leader) as client:
        row = WHATS[args.what](client, args)
    print(json.dumps(row), flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
