"""`make demo`: a real data set through all of SeaweedMQ, with two brokers killed on the way, and every count checked.

It starts SeaweedFS, a leader and three brokers as processes of this machine, publishes all flights that left New York
City in 2013 several times over, reads them with a consumer group of two members, and in the end reads the same
messages a third way: DuckDB on the Parquet files, with all brokers stopped. Exit code 1 when any count is wrong.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

import smq
from examples.demo_check import check_read, per_carrier, read_files, report
from examples.demo_member import Member
from examples.demo_show import Show
from examples.flights import flights
from smq.cli.lag import lag
from smq.cli.local import LocalCluster
from smq.cli.rows import fit
from smq.cli.segments import readable_ends
from smq_core.model import Column

TOPIC = "flights"
ROUNDS = 10
ROWS_PER_WRITE = 8192
KILL_AT = (0.25, 0.6)  # share of all messages that is durable by then
MANIFEST = Path(__file__).parent / "topics" / "demo.yaml"

console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def main() -> int:
    """The exit code: 0 when every count is right."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is stopped
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smq-demo-") as folder:
        try:
            right = run(flights(), Path(folder))
        except smq.SmqError as error:
            console.print(f"the demo failed: {error.message}")
            return 1
        except KeyboardInterrupt:
            return 130
    console.print(f"{'all counts are right' if right else 'COUNTS ARE WRONG'}; {time.monotonic() - began:.0f} s")
    return 0 if right else 1


def run(source: pa.Table, folder: Path) -> bool:
    """The whole story. True when every count is right."""
    cluster = LocalCluster(folder, listen="127.0.0.1:0", brokers=3)
    try:
        cluster.start(console.print)
        cluster.wait_ready()
        with smq.connect(cluster.address) as client:
            what_was_read = publish_and_read(client, cluster, source)
        console.print("comparing every message that was read with what was sent")
        read = check_read(what_was_read, source.num_rows * ROUNDS)
        cluster.stop_leader(console.print)
        console.print("no broker runs any more; DuckDB reads the files: SELECT carrier, count(*) FROM '**/*.parquet'")
        files = read_files(cluster.seaweed.store(), folder / "copy")
    finally:
        cluster.stop(console.print)
    truth = {carrier: count * ROUNDS for carrier, count in per_carrier(source).items()}
    table, right = report(truth, read, files)
    console.print(table)
    return right


def publish_and_read(client: smq.Client, cluster: LocalCluster, source: pa.Table) -> pa.Table:
    """Publishes all rounds while a group reads and brokers are killed. Returns what the group read."""
    admin = client.admin()
    admin.apply(MANIFEST.read_text())
    total = source.num_rows * ROUNDS
    members = [Member(cluster.address, cluster.folder / f"member-{i}.parquet") for i in range(2)]

    with Show(admin, console) as show:
        show.wait("the topic", lambda: admin.topic(TOPIC).ready)
        show.wait("the group", lambda: [len(g.members) for g in admin.groups(TOPIC)] == [len(members)])
        publisher = Publisher(client, source)
        show.progress("durable", lambda: publisher.durable, total)
        show.progress("read by the group", lambda: sum(m.count for m in members), total)
        show.say(f"a group of {len(members)} reads; {source.num_rows:,} flights are published {ROUNDS} times")
        publisher.start()
        for share in KILL_AT:
            show.wait("messages", partial(publisher.has_come_to, share * total))
            text, hit = kill_a_primary(admin, cluster.folder)
            show.say(text)
            killed = time.monotonic()
            show.wait("the failover", partial(all_open_without, hit, admin))
            show.say(f"its {len(hit)} segments go on elsewhere after {time.monotonic() - killed:.1f} s")
        show.wait("the publisher", lambda: not publisher.is_alive())
        if publisher.error is not None:
            raise publisher.error
        show.say(f"published: {publisher.durable:,} messages are durable, {publisher.rate():,.0f} a second")
        show.until(lambda: group_is_behind(admin) == 0)
        show.say(f"the group has read {sum(m.count for m in members):,} messages")
    return pa.concat_tables([member.stop() for member in members])


def kill_a_primary(admin: smq.Admin, folder: Path) -> tuple[str, set[str]]:
    """kill -9 of the broker that is the primary of most segments. Returns what to say, and the segments it held."""
    segments = admin.segments(TOPIC)
    primaries = [s.brokers[0] for s in segments if s.phase == "open"]
    victim = max(set(primaries), key=primaries.count)
    pid = json.loads((folder / "brokers" / f"{victim}.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    text = f"kill -9 {pid}: {victim}, the primary of {primaries.count(victim)} segments; it will be started again"
    return text, {s.name for s in segments if victim in s.brokers}


def all_open_without(sealed: set[str], admin: smq.Admin) -> bool:
    """Whether these segments are sealed, and all others open on two brokers each."""
    living = admin.segments(TOPIC)
    return all(s.name not in sealed and s.phase == "open" and len(s.brokers) == 2 for s in living)


def group_is_behind(admin: smq.Admin) -> int:
    """How many messages the group has not committed, as `smq group list` says it."""
    (group,) = admin.groups(TOPIC)
    return lag(admin.segments(TOPIC, all=True), group.positions, readable_ends(admin))


class Publisher(threading.Thread):
    """Writes all flights ROUNDS times, as fast as they are taken. ``error`` is what went wrong, if anything did."""

    def __init__(self, client: smq.Client, source: pa.Table) -> None:
        super().__init__(name="publisher", daemon=True)
        columns = [Column(*c) for c in client.admin().topic(TOPIC).schema]
        fitted = fit(source, [c for c in columns if c.name not in ("round", "number")])
        self._source = fitted.combine_chunks()
        self._client = client
        self._seconds = 0.0
        self._lock = threading.Lock()  # what is durable is told by a thread for each segment
        self.durable = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        began = time.monotonic()
        try:
            with self._client.producer(TOPIC) as producer:
                for round_ in range(ROUNDS):
                    for start in range(0, self._source.num_rows, ROWS_PER_WRITE):
                        delivery = producer.write(self._numbered(round_, start))
                        delivery.add_done_callback(self._count)
        except BaseException as error:
            self.error = error
        self._seconds = time.monotonic() - began

    def has_come_to(self, messages: float) -> bool:
        """Whether so many are durable, or there will be no more."""
        return self.durable >= messages or self.error is not None

    def rate(self) -> float:
        """Messages per second, over all of it."""
        return self.durable / self._seconds

    def _numbered(self, round_: int, start: int) -> pa.Table:
        rows = self._source.slice(start, ROWS_PER_WRITE)
        first = round_ * self._source.num_rows + start
        numbers = np.arange(first, first + rows.num_rows, dtype=np.int64)
        rounds = np.full(rows.num_rows, round_, dtype=np.int32)
        return rows.append_column("round", pa.array(rounds)).append_column("number", pa.array(numbers))

    def _count(self, delivery: smq.Delivery[smq.TableReceipt]) -> None:
        rows = len(delivery.result())
        with self._lock:
            self.durable += rows


if __name__ == "__main__":
    sys.exit(main())
