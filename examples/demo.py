"""`make demo`: sends a flood through SeaweedMQ, which scales out and in again, and checks every count.

It starts SeaweedFS, a leader and two brokers as processes of this machine, and a topic with one segment. It publishes
the flights that left New York City in 2013 over and over, first slowly, then as a flood: segments split, brokers are
added, and two of them are killed with kill -9. After the flood, the segments merge and the extra brokers are removed. A
consumer group of two members reads everything meanwhile, and a stream on Spark counts it, if there is Java. Finally all
brokers are stopped, and DuckDB reads the same messages from the Parquet files. The exit code is 1 if a count is wrong.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from rich.console import Console

import smq
from examples.demo_check import check_read, per_carrier, read_files, report
from examples.demo_display import DemoDisplay
from examples.demo_member import DemoMember
from examples.demo_publisher import Publisher
from examples.demo_stream import DemoStream
from examples.demo_timeline import accepting, alive
from examples.flights import flights
from smq.cli.dev.cluster import DevCluster

TOPIC = "flights"
BROKERS, MOST_BROKERS = 2, 4
QUIET, FLOOD = 500, 60_000
"""Messages per second. The topic's target is only 2,000 for each segment, so the flood exceeds it on any machine."""
QUIET_FOR, FLOOD_FOR, KILL_AFTER = 3.0, 30.0, (10.0, 20.0)
"""Seconds. ``KILL_AFTER`` counts from the start of the flood."""
# Small brokers that this machine can overload, and short waits, so that the demo takes about a minute.
LEADER = ("--broker-capacity", "384Ki", "--scale-in-after", "4s")
MANIFEST = Path(__file__).parent / "topics" / "demo.yaml"

console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def main() -> int:
    """Runs the demo. Returns the exit code, 0 if every count is right."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # raises SystemExit, so that all processes are stopped
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
    """Runs the demo in this folder. True if every count is right."""
    cluster = DevCluster(folder, listen="127.0.0.1:0", brokers=BROKERS, max_brokers=MOST_BROKERS, more=LEADER)
    stream = None
    try:
        cluster.start(console.print)
        cluster.wait_ready()
        with smq.connect(cluster.address) as client:
            create_topic(client)
            stream = start_stream(cluster)
            sent, what_was_read = publish_and_read(client, cluster, source)
        counted = None
        if stream is not None:
            console.print("Spark counts what it has not read yet")
            counted = stream.finish()
        console.print("comparing every message that was read with what was sent")
        read = check_read(what_was_read, sent)
        cluster.stop_leader(console.print)
        console.print("no broker runs any more; DuckDB reads the files: SELECT carrier, count(*) FROM '**/*.parquet'")
        files = read_files(cluster.seaweed.store(), folder / "copy")
    finally:
        if stream is not None:
            stream.kill()
        cluster.stop(console.print)
    table, right = report(sent_per_carrier(source, sent), read, files, counted)
    console.print(table)
    return right


def create_topic(client: smq.Client) -> None:
    """Returns when the topic has a segment."""
    admin = client.admin()
    admin.apply(MANIFEST.read_text())
    while not any(topic.name.endswith(TOPIC) and topic.ready for topic in admin.topics()):
        time.sleep(0.1)


def start_stream(cluster: DevCluster) -> DemoStream | None:
    """The stream on Spark; None, with the reason printed, if this machine has no Spark or no Java."""
    try:
        return DemoStream(cluster.address, cluster.folder / "spark")
    except smq.SmqError as missing:
        console.print(f"this goes on without its stream: {missing.message}")
        return None


def publish_and_read(client: smq.Client, cluster: DevCluster, source: pa.Table) -> tuple[int, pa.Table]:
    """Publishes while a group reads and brokers are killed. Returns the number of sent messages, and the read ones."""
    admin = client.admin()
    members = [DemoMember(cluster.address, cluster.folder / f"member-{i}.parquet") for i in range(2)]

    with DemoDisplay(admin, console) as show:
        show.wait("the topic", lambda: admin.topic(TOPIC).ready)
        show.wait("the group", lambda: [len(g.members) for g in admin.groups(TOPIC)] == [len(members)])
        publisher = Publisher(client, TOPIC, source, QUIET)
        show.progress("durable", lambda: publisher.durable, lambda: publisher.sent)
        show.progress("read by the group", lambda: sum(m.count for m in members), lambda: publisher.sent)
        show.say(f"one segment, {BROKERS} brokers, a group of {len(members)}; {QUIET:,} flights a second")
        publisher.start()
        show.during(QUIET_FOR, publisher.check)
        flood(show, publisher, admin, cluster.folder)
        publisher.rate = QUIET
        show.say(f"the flood is over: {QUIET:,} flights a second again")
        show.wait("one segment", lambda: publisher.check() and accepting(admin.topic(TOPIC)) == 1)
        show.say("one segment again")
        show.wait("the brokers to go", lambda: publisher.check() and alive(admin.brokers()) == BROKERS)
        show.say(f"{BROKERS} brokers again")
        publisher.finish()
        show.wait("the publisher", lambda: not publisher.check())
        # Both counts must agree, because a message may be read twice, or be missing in the brokers' last reports.
        everything = partial(group_has_read_everything, admin, members, publisher)
        if show.until(everything):
            show.say(f"{publisher.durable:,} messages are durable, and the group has read them")
        else:
            show.say(f"the group does not reach the end; it has read {sum(m.count for m in members):,}")
    if publisher.durable != publisher.sent:
        raise smq.SmqError(f"{publisher.sent:,} messages were sent, but only {publisher.durable:,} are durable")
    return publisher.sent, pa.concat_tables([member.stop() for member in members])


def flood(show: DemoDisplay, publisher: Publisher, admin: smq.Admin, folder: Path) -> None:
    """Publishes at the flood's rate until segments split, brokers were added, and two brokers were killed."""
    began = time.monotonic()
    publisher.rate = FLOOD
    show.say(f"a flood: {FLOOD:,} flights a second, or as many as the brokers accept")
    show.wait("a split", lambda: publisher.check() and accepting(admin.topic(TOPIC)) > 1)
    show.say(f"split after {time.monotonic() - began:.1f} s")
    show.wait("more brokers", lambda: publisher.check() and alive(admin.brokers()) > BROKERS)
    show.say(f"more brokers after {time.monotonic() - began:.1f} s")
    for after in KILL_AFTER:
        show.during(began + after - time.monotonic(), publisher.check)
        text, hit = kill_a_primary(admin, folder)
        show.say(text)
        killed = time.monotonic()
        show.wait("the failover", partial(gone, hit, admin))
        show.say(f"its {len(hit)} segments continue on other brokers after {time.monotonic() - killed:.1f} s")
    show.during(began + FLOOD_FOR - time.monotonic(), publisher.check)


def kill_a_primary(admin: smq.Admin, folder: Path) -> tuple[str, set[str]]:
    """Kills the broker that is the primary of most segments. Returns a line to show, and the segments it hosted."""
    segments = [s for s in admin.segments(TOPIC) if s.brokers]
    primaries = [s.brokers[0] for s in segments if s.phase == "open"] or [s.brokers[0] for s in segments]
    victim = max(set(primaries), key=primaries.count)
    pid = json.loads((folder / "brokers" / f"{victim}.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    text = f"kill -9 {pid}: {victim}, the primary of {primaries.count(victim)} segments; it will be started again"
    return text, {s.name for s in segments if victim in s.brokers}


def gone(sealed: set[str], admin: smq.Admin) -> bool:
    """Whether these segments are sealed and replaced by successors."""
    return not sealed & {s.name for s in admin.segments(TOPIC)}


def group_has_read_everything(admin: smq.Admin, members: Sequence[DemoMember], publisher: Publisher) -> bool:
    """Whether the members' counts, and the group's lag as `smq group list` shows it, say so."""
    (group,) = admin.groups(TOPIC)
    return group.lag == 0 and sum(m.count for m in members) >= publisher.durable


def sent_per_carrier(source: pa.Table, sent: int) -> dict[str, int]:
    """The expected counts: the flights of each carrier among the first ``sent`` of the repeated source."""
    rounds, rest = divmod(sent, source.num_rows)
    whole, part = per_carrier(source), per_carrier(source.slice(0, rest))
    return {carrier: count * rounds + part.get(carrier, 0) for carrier, count in whole.items()}


if __name__ == "__main__":
    sys.exit(main())
