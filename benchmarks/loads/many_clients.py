"""Loads of many producers or consumers in one process, at a fixed rate in all.

``python -m benchmarks.loads.many_clients WHAT LEADER TOPIC …`` prints ``started`` when all are warm, and a JSON object
at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from contextlib import ExitStack
from typing import Any

import smq
from benchmarks.loads.rate import at_rate, wait_for_go

Row = dict[str, Any]
WARM_UP_SECONDS = 2.0


def fan_in(client: smq.Client, args: argparse.Namespace) -> Row:
    """Each message goes to the next producer. ``taken_ms``: from ``send`` to its ack, of each message."""
    value = b"x" * args.size
    with ExitStack() as ends:
        producers = [
            ends.enter_context(client.producer(args.topic, linger=args.linger, timeout=60))
            for _ in range(args.producers)
        ]
        for delivery in [producer.send(value, key=b"%d" % number) for number, producer in enumerate(producers)]:
            delivery.result(60)
        _send(producers, value, args.rate, int(args.rate * WARM_UP_SECONDS))
        print("started", flush=True)
        wait_for_go(args.go)
        threads = threading.active_count()
        spent = time.process_time()
        start = time.perf_counter()
        taken, failed, waited = _send(producers, value, args.rate, args.count)
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "rows": args.count,
            "cpu_s": time.process_time() - spent,
            "threads": threads,
            "failed": len(failed),
            "first_error": failed[0] if failed else None,
            "blocked_s": waited,
            "taken_ms": [round(it * 1e3, 2) for it in taken],
        }


def _send(producers: list[smq.Producer], value: bytes, rate: float, count: int) -> tuple[list[float], list[str], float]:
    """The latency of each message that was acked, errors, and for how many seconds ``send`` was blocked."""
    taken: list[float] = []
    failed: list[str] = []
    waited = 0.0

    def arrived(delivery: smq.Delivery[smq.Receipt], sent: float) -> None:
        error = delivery.exception(0)
        if error is None:
            taken.append(time.perf_counter() - sent)
        else:
            failed.append(repr(error))

    for number in at_rate(rate, count):
        sent = time.perf_counter()
        delivery = producers[number % len(producers)].send(value, key=b"%d" % (number % 1024))
        waited += time.perf_counter() - sent
        delivery.add_done_callback(lambda it, sent=sent: arrived(it, sent))  # type: ignore[misc]
    for producer in producers:
        producer.flush(60)
    return taken, failed, waited


def idle(client: smq.Client, args: argparse.Namespace) -> Row:
    """Each producer has sent one message to each segment, and then nothing for ``seconds``."""
    with ExitStack() as ends:
        first = ends.enter_context(client.producer(args.topic, timeout=60))
        for delivery in [first.send(b"x", key=b"%d" % number) for number in range(8)]:
            delivery.result(60)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # without what one producer loads
        producers = [ends.enter_context(client.producer(args.topic, timeout=60)) for _ in range(args.producers)]
        for producer in producers:
            for delivery in [producer.send(b"x", key=b"%d" % number) for number in range(8)]:
                delivery.result(60)
        print("started", flush=True)
        time.sleep(3.0)
        spent = time.process_time()
        time.sleep(args.seconds)
        return {
            "cpu_s": time.process_time() - spent,
            "seconds": args.seconds,
            "threads": threading.active_count(),
            "kb_each": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / args.producers,
        }


def tail(client: smq.Client, args: argparse.Namespace) -> Row:
    """Consumers at the tail, all in one group or each for itself: ``p99_ms`` of each, from the time in the value to
    ``poll``'s return, for ``seconds`` after the harness says go.
    """
    stop, counting = threading.Event(), threading.Event()
    taken: list[list[float]] = [[] for _ in range(args.consumers)]

    def read(number: int, consumer: smq.Consumer) -> None:
        while not stop.is_set():
            batch = consumer.poll(0.5)
            if batch is None:
                continue
            if not counting.is_set():
                continue
            now = time.monotonic()
            for value in batch.table["value"].to_pylist():
                taken[number].append(now - float(value[:20]))

    with ExitStack() as ends:
        consumers = [
            ends.enter_context(client.consumer(args.topic, start="latest", group=args.group or None))
            for _ in range(args.consumers)
        ]
        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in enumerate(consumers)]
        for thread in threads:
            thread.start()
        print("started", flush=True)
        wait_for_go(args.go)
        counting.set()
        spent = time.process_time()
        time.sleep(args.seconds)
        cpu = time.process_time() - spent
        stop.set()
        for thread in threads:
            thread.join(30)
        active = threading.active_count()
    received = [len(one) for one in taken]
    ranked = [sorted(one) for one in taken]
    return {
        "cpu_s": cpu,
        "seconds": args.seconds,
        "received": received,
        "threads": active,
        "p50_ms": [round(one[len(one) // 2] * 1e3, 1) for one in ranked if one],
        "p99_ms": [round(one[int(len(one) * 0.99)] * 1e3, 1) for one in ranked if one],
    }


def timed(client: smq.Client, args: argparse.Namespace) -> Row:
    """One producer whose values begin with the time of ``send`` (CLOCK_MONOTONIC), for ``tail``."""
    with client.producer(args.topic, timeout=60) as producer:
        print("started", flush=True)
        for number in at_rate(args.rate, args.count):
            producer.send(b"%020.6f" % time.monotonic() + b"x" * (args.size - 20), key=b"%d" % (number % 1024))
    return {"rows": args.count}


WHATS = {f.__name__: f for f in (fan_in, idle, tail, timed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("leader")
    parser.add_argument("topic")
    parser.add_argument("--producers", type=int, default=100)
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--group", default="")
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1000.0, help="of all producers of this process together")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--linger", type=float, default=0.005)
    parser.add_argument("--go", help="a file to wait for when all is warm")
    args = parser.parse_args()
    with smq.connect(args.leader) as client:
        row = WHATS[args.what](client, args)
    print(json.dumps(row), flush=True)
    os._exit(0)  # the interpreter's own end takes 0.3 s of CPU from the processes that still measure


if __name__ == "__main__":
    main()
