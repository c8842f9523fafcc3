# mypy: disable-error-code="import-not-found"
"""The loads for systems with Kafka's protocol. Run as a script by the interpreter that has confluent-kafka.

``kafka_load.py WHAT BOOTSTRAP TOPIC …`` prints one JSON object. The loads are those of ``benchmarks.loads.clients``.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.loads import rate as rates

Row = dict[str, Any]
NUMBER = 12


def producer(args: argparse.Namespace, **settings: object) -> Producer:
    config: dict[str, object] = {
        "bootstrap.servers": args.bootstrap,
        "acks": "all",
        "enable.idempotence": not args.plain,
        "linger.ms": args.linger_ms,
        "batch.size": 262_144,
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 262_144,
        "log_level": 0,
    }
    made = Producer(config | settings)
    made.list_topics(args.topic, 20)
    return made


def consumer(args: argparse.Namespace, partitions: int) -> Consumer:
    config = {
        "bootstrap.servers": args.bootstrap,
        "group.id": f"bench-{time.time_ns()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 262_144,
        "log_level": 0,
    }
    made = Consumer(config)
    made.assign([TopicPartition(args.topic, number, 0) for number in range(partitions)])
    return made


def values(args: argparse.Namespace) -> list[bytes]:
    return Path(args.payload).read_bytes().splitlines()


def produce(args: argparse.Namespace) -> Row:
    """One ``produce`` call a record, all acked at the end; ``--callback``: a receipt for each."""
    made, events = producer(args), values(args)
    kinds, topic = len(events), args.topic
    failed: list[KafkaError] = []
    receipts = 0

    def arrived(error: KafkaError | None, message: Message) -> None:
        nonlocal receipts
        receipts += 1
        if error is not None:
            failed.append(error)

    extra = {"on_delivery": arrived} if args.callback else {}
    start = time.perf_counter()
    for number in range(args.count):
        while True:
            try:
                made.produce(topic, events[number % kinds], **extra)
                break
            except BufferError:
                made.poll(0.01)
        if args.callback and not number & 1023:
            made.poll(0)
    left = made.flush(300)
    seconds = time.perf_counter() - start
    assert left == 0 and not failed, (left, failed[:3])
    assert not args.callback or receipts == args.count, receipts
    return {"seconds": seconds, "rows": args.count, "bytes": args.count * len(events[0])}


def latency(args: argparse.Namespace) -> Row:
    made, events = producer(args), values(args)
    taken: list[float] = []
    failed: list[KafkaError] = []
    done = threading.Event()

    def polling() -> None:
        while not done.is_set():
            made.poll(0.1)

    thread = threading.Thread(target=polling)
    thread.start()
    start = time.perf_counter()
    for number in rates.at_rate(args.rate, args.count):
        sent = time.perf_counter()

        def arrived(error: KafkaError | None, message: Message, sent: float = sent) -> None:
            taken.append(time.perf_counter() - sent)
            if error is not None:
                failed.append(error)

        made.produce(args.topic, events[number % len(events)], on_delivery=arrived)
    left = made.flush(60)
    done.set()
    thread.join()
    assert left == 0 and not failed, (left, failed[:3])
    return {"seconds": time.perf_counter() - start, "rows": args.count, **rates.quantiles(taken[args.count // 5 :])}


def fan_in(args: argparse.Namespace) -> Row:
    """Many producers in this process; each message goes to the next one. Prints ``started`` when all are warm."""
    settings = {"queue.buffering.max.kbytes": 32_768}
    made, value = [producer(args, **settings) for _ in range(args.producers)], values(args)[0]
    done = threading.Event()

    def polling() -> None:
        while not done.is_set():
            for one in made:
                one.poll(0)
            time.sleep(0.002)

    thread = threading.Thread(target=polling)
    thread.start()

    def send(count: int) -> tuple[list[float], list[str]]:
        taken: list[float] = []
        failed: list[str] = []
        for number in rates.at_rate(args.rate, count):
            sent = time.perf_counter()

            def arrived(error: KafkaError | None, message: Message, sent: float = sent) -> None:
                taken.append(time.perf_counter() - sent)
                if error is not None:
                    failed.append(str(error))

            made[number % len(made)].produce(args.topic, value, b"%d" % (number % 1024), on_delivery=arrived)
        for one in made:
            one.flush(60)
        return taken, failed

    send(max(len(made) * 2, int(args.rate * 2)))
    print("started", flush=True)
    rates.wait_for_go(args.go)
    spent = time.process_time()
    start = time.perf_counter()
    taken, failed = send(args.count)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - spent
    done.set()
    thread.join()
    return {
        "seconds": seconds,
        "rows": args.count,
        "cpu_s": cpu,
        "failed": len(failed),
        "taken_ms": [round(it * 1e3, 2) for it in taken],
    }


def steady(args: argparse.Namespace) -> Row:
    """Prints ``started`` first; the times of acks (CLOCK_MONOTONIC) go to ``--times``, one a line."""
    made = producer(
        args,
        **{"delivery.timeout.ms": 120_000, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500},
    )
    pad = b"x" * (args.size - NUMBER)
    acked: list[tuple[float, int]] = []
    longest = 0.0
    failed: list[KafkaError] = []

    print("started", flush=True)
    for number in rates.at_rate(args.rate, args.count):
        sent = time.monotonic()

        def arrived(error: KafkaError | None, message: Message, sent: float = sent) -> None:
            nonlocal longest
            now = time.monotonic()
            if error is not None:
                failed.append(error)
                return
            acked.append((now, message.partition()))
            longest = max(longest, now - sent)

        made.produce(
            args.topic, b"%0*d" % (NUMBER, number + 1) + pad, partition=number % args.partitions, on_delivery=arrived
        )
        made.poll(0)
    made.flush(180)
    Path(args.times).write_text("\n".join(f"{at:.6f} {partition}" for at, partition in acked))
    first = str(failed[0]) if failed else None
    return {"acked": len(acked), "errors": len(failed), "first_error": first, "longest_ack_s": longest}


def consume(args: argparse.Namespace) -> Row:
    """The clock starts when the first messages are there; they do not count."""
    made = consumer(args, args.partitions)
    requested_at = time.perf_counter()
    head = 0
    while not head:
        head = len(made.consume(1000, 1.0))
        assert time.perf_counter() - requested_at < 60, "nothing came for 60 s"
    rows = size = 0
    start = came = time.perf_counter()
    while head + rows < args.count:
        for message in made.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            size += len(message.value())
            rows += 1
            came = time.perf_counter()
        assert time.perf_counter() - came < 20, f"after {head + rows} of {args.count} messages none came for 20 s"
    seconds = time.perf_counter() - start
    made.close()
    return {"seconds": seconds, "rows": rows, "bytes": size, "first_batch_s": start - requested_at}


def numbers(args: argparse.Namespace) -> Row:
    """How many of the numbers 1 .. count were read, how often more than once, and how many are missing."""
    made = consumer(args, args.partitions)
    seen = [0] * (args.count + 1)
    quiet = time.monotonic()
    while time.monotonic() - quiet < 5:
        for message in made.consume(10_000, 1.0):
            if message.error() is None:
                seen[int(message.value()[:NUMBER])] += 1
                quiet = time.monotonic()
    made.close()
    distinct = sum(1 for times in seen[1:] if times)
    return {
        "distinct": distinct,
        "doubled": sum(1 for times in seen[1:] if times > 1),
        "missing": args.count - distinct,
    }


def create(args: argparse.Namespace) -> Row:
    name = f"bench{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": args.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, args.partitions, args.replicas)]).values():
        future.result(30)
    time.sleep(0.5)
    return {"topic": name}


def drop(args: argparse.Namespace) -> Row:
    admin = AdminClient({"bootstrap.servers": args.bootstrap, "log_level": 0})
    for future in admin.delete_topics([args.topic]).values():
        future.result(30)
    return {}


def brokers(args: argparse.Namespace) -> Row:
    """How many brokers answer and belong to the cluster."""
    admin = AdminClient({"bootstrap.servers": args.bootstrap, "log_level": 0})
    try:
        return {"brokers": len(admin.list_topics(timeout=5).brokers)}
    except KafkaException:
        return {"brokers": 0}


def leader(args: argparse.Namespace) -> Row:
    """The node that leads partition 0, and how many replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": args.bootstrap, "log_level": 0})
    partition = admin.list_topics(args.topic, 10).topics[args.topic].partitions[0]
    return {"leader": partition.leader, "in_sync": len(partition.isrs)}


WHATS = {f.__name__: f for f in (produce, latency, fan_in, steady, consume, numbers, create, drop, brokers, leader)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--payload")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--linger-ms", type=float, default=5.0)
    parser.add_argument("--callback", action="store_true")
    parser.add_argument("--plain", action="store_true", help="no idempotence, for what does not know it")
    parser.add_argument("--times")
    parser.add_argument("--go")
    args = parser.parse_args()
    print(json.dumps(WHATS[args.what](args)), flush=True)


if __name__ == "__main__":
    main()
