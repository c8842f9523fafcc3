"""Sends numbered values at a steady rate with an idempotent producer of librdkafka, and reads them in a group of one if
it has a name. What it prints and what it is told is described in steady_clients.py.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import confluent_kafka

KEYS = 20
_lock = threading.Lock()


def say(line: str) -> None:
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def produce(bootstrap: str, topic: str, name: str, per_second: int, stop: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random"}
    producer = confluent_kafka.Producer(settings)
    failed, sent, began = 0, 0, time.monotonic()

    def delivered(at: float, error: Any, message: Any) -> None:
        nonlocal failed
        if error is not None:
            failed += 1
            say(f"F {error}")
            return
        key, value = message.key().decode(), message.value().decode()
        micros = round((time.monotonic() - at) * 1e6)
        say(f"A {key} {value} {message.partition()} {message.offset()} {micros}")

    while not stop.is_set():
        producer.poll(0.001)
        if sent > (time.monotonic() - began) * per_second:
            continue
        at = time.monotonic()
        producer.produce(
            topic,
            f"{name}:{sent}",
            f"{name}-{sent % KEYS}",
            on_delivery=lambda error, message, at=at: delivered(at, error, message),
        )
        sent += 1
    producer.flush()
    say(f"stopped {sent} {failed}")


def consume(bootstrap: str, topic: str, group: str, stop: threading.Event) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic], on_assign=lambda *_: say("J"))
    while not stop.is_set():
        for it in consumer.consume(1000, timeout=0.2):
            if it.error() is None:
                say(f"R {it.key().decode()} {it.value().decode()} {it.partition()} {it.offset()}")
    consumer.commit(asynchronous=False)
    consumer.close()


def main() -> None:
    bootstrap, topic, name, per_second, group = sys.argv[1:]
    stop_producing, stop_consuming = threading.Event(), threading.Event()
    producer = threading.Thread(target=produce, args=(bootstrap, topic, name, int(per_second), stop_producing))
    consumer = threading.Thread(target=consume, args=(bootstrap, topic, group, stop_consuming))
    producer.start()
    if group:
        consumer.start()
    sys.stdin.readline()
    stop_producing.set()
    producer.join()
    sys.stdin.readline()
    stop_consuming.set()
    if group:
        consumer.join()
    say("ended")


if __name__ == "__main__":
    main()
