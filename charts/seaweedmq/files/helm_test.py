"""`helm test`: publishes messages to a topic and reads them back."""

import os
import sys
import time

import smq

COUNT, TIMEOUT_SECONDS = 100, 120.0


def published(client: smq.Client, topic: str) -> int:
    """Returns how many messages have a receipt. The topic may be younger than this Pod: it is waited for."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            with client.producer(topic) as producer:
                receipts = [producer.send(b"%d" % n, key=b"%d" % (n % 10)) for n in range(COUNT)]
                producer.flush(TIMEOUT_SECONDS)
                return len({receipt.result(1) for receipt in receipts})
        except (smq.UnknownTopic, smq.Unavailable) as error:
            if time.monotonic() > deadline:
                sys.exit(f"could not publish to {topic}: {error}")
            print(f"not yet: {error}", flush=True)
            time.sleep(1)


def main() -> None:
    topic = os.environ["SMQ_TOPIC"]
    with smq.connect(os.environ["SMQ_LEADER"]) as client:
        print(f"published and acked: {published(client, topic)}", flush=True)
        found: set[bytes] = set()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with client.consumer(topic, start="earliest") as consumer:
            while len(found) < COUNT and time.monotonic() < deadline:
                batch = consumer.poll(1.0)
                if batch is not None:
                    found |= set(batch.table.column("value").to_pylist())
    if len(found) != COUNT:
        sys.exit(f"{len(found)} of {COUNT} messages came back")
    print(f"read back: {len(found)}; all is well")


main()
