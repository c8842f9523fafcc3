"""`make demo`: a flood through all of SeaweedMQ, which grows with it and shrinks again, and every count checked.

It starts SeaweedFS, a leader and two brokers as processes of this machine, and a topic of one segment. The flights that
left New York City in 2013 are published over and over, at first a few, then a flood: segments split, brokers come, and
two of them are killed with kill -9. When the flood is over, the segments merge and the brokers go. A consumer group of
two members reads everything meanwhile, and in the end the same messages are read a third way: by DuckDB, from the
Parquet files, with all brokers stopped. Exit code 1 when any count is wrong.
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
from examples.demo_map import accepting, alive
from examples.demo_member import Member
from examples.demo_publisher import Publisher
from examples.demo_show import Show
from examples.flights import flights
from smq.cli.lag import lag
from smq.cli.local import LocalCluster
from smq.cli.segments import readable_ends

TOPIC = "flights"
BROKERS, MOST_BROKERS = 2, 4
QUIET, FLOOD = 500, 60_000
"""Messages per second; the topic's target is 5,000 for each segment, so that a slow machine is flooded too."""
QUIET_FOR, FLOOD_FOR, KILL_AFTER = 3.0, 30.0, (10.0, 20.0)
"""Seconds; brokers are killed so long after the flood began."""
LEADER = ("--broker-capacity", "1Mi", "--scale-in-after", "4s")
"""Small brokers, so that this machine can flood them; and little patience, so that a minute shows everything."""
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
    cluster = LocalCluster(folder, listen="127.0.0.1:0", brokers=BROKERS, max_brokers=MOST_BROKERS, more=LEADER)
    try:
        cluster.start(console.print)
        cluster.wait_ready()
        with smq.connect(cluster.address) as client:
            sent, what_was_read = publish_and_read(client, cluster, source)
        console.print("comparing every message that was read with what was sent")
        read = check_read(what_was_read, sent)
        cluster.stop_leader(console.print)
        console.print("no broker runs any more; DuckDB reads the files: SELECT carrier, count(*) FROM '**/*.parquet'")
        files = read_files(cluster.seaweed.store(), folder / "copy")
    finally:
        cluster.stop(console.print)
    table, right = report(sent_per_carrier(source, sent), read, files)
    console.print(table)
    return right


def publish_and_read(client: smq.Client, cluster: LocalCluster, source: pa.Table) -> tuple[int, pa.Table]:
    """A flood, while a group reads and brokers are killed. Returns how many messages were sent, and what was read."""
    admin = client.admin()
    admin.apply(MANIFEST.read_text())
    members = [Member(cluster.address, cluster.folder / f"member-{i}.parquet") for i in range(2)]

    with Show(admin, console) as show:
        show.wait("the topic", lambda: admin.topic(TOPIC).ready)
        show.wait("the group", lambda: [len(g.members) for g in admin.groups(TOPIC)] == [len(members)])
        publisher = Publisher(client, TOPIC, source, QUIET)
        show.progress("durable", lambda: publisher.durable, lambda: publisher.sent)
        show.progress("read by the group", lambda: sum(m.count for m in members), lambda: publisher.sent)
        show.say(f"one segment, {BROKERS} brokers, a group of {len(members)}; {QUIET:,} flights a second")
        publisher.start()
        show.during(QUIET_FOR, publisher.check)
        flood(show, publisher, admin, cluster.folder)
        publisher.pace = QUIET
        show.say(f"the flood is over: {QUIET:,} flights a second again")
        show.wait("one segment", lambda: publisher.check() and accepting(admin.topic(TOPIC)) == 1)
        show.say("one segment again")
        show.wait("the brokers to go", lambda: publisher.check() and alive(admin.brokers()) == BROKERS)
        show.say(f"{BROKERS} brokers again")
        publisher.finish()
        show.wait("the publisher", lambda: not publisher.check())
        # A message may be read again, or not be in the brokers' last reports yet: so both must say so.
        everything = partial(group_has_read_everything, admin, members, publisher)
        if show.until(everything):
            show.say(f"{publisher.durable:,} messages are durable, and the group has read them")
        else:
            show.say(f"the group does not come to the end: it has read {sum(m.count for m in members):,}")
    if publisher.durable != publisher.sent:
        raise smq.SmqError(f"{publisher.sent:,} messages were sent, but {publisher.durable:,} told durable")
    return publisher.sent, pa.concat_tables([member.stop() for member in members])


def flood(show: Show, publisher: Publisher, admin: smq.Admin, folder: Path) -> None:
    """Until it has lasted for long enough, and more segments and brokers were there, two of which were killed."""
    began = time.monotonic()
    publisher.pace = FLOOD
    show.say(f"a flood: {FLOOD:,} flights a second, if they are taken")
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
        show.say(f"its {len(hit)} segments go on elsewhere after {time.monotonic() - killed:.1f} s")
    show.during(began + FLOOD_FOR - time.monotonic(), publisher.check)


def kill_a_primary(admin: smq.Admin, folder: Path) -> tuple[str, set[str]]:
    """kill -9 of the broker that is the primary of most segments. Returns what to say, and the segments it held."""
    segments = [s for s in admin.segments(TOPIC) if s.brokers]
    primaries = [s.brokers[0] for s in segments if s.phase == "open"] or [s.brokers[0] for s in segments]
    victim = max(set(primaries), key=primaries.count)
    pid = json.loads((folder / "brokers" / f"{victim}.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    text = f"kill -9 {pid}: {victim}, the primary of {primaries.count(victim)} segments; it will be started again"
    return text, {s.name for s in segments if victim in s.brokers}


def gone(sealed: set[str], admin: smq.Admin) -> bool:
    """Whether these segments are sealed, and others go on in their place."""
    return not sealed & {s.name for s in admin.segments(TOPIC)}


def group_has_read_everything(admin: smq.Admin, members: Sequence[Member], publisher: Publisher) -> bool:
    """By its members' counts, and by what it has not committed, as `smq group list` says it."""
    (group,) = admin.groups(TOPIC)
    behind = lag(admin.segments(TOPIC, all=True), group.positions, readable_ends(admin))
    return not behind and sum(m.count for m in members) >= publisher.durable


def sent_per_carrier(source: pa.Table, sent: int) -> dict[str, int]:
    """The truth: how many of the first ``sent`` flights of the source, over and over, each carrier has."""
    rounds, rest = divmod(sent, source.num_rows)
    whole, part = per_carrier(source), per_carrier(source.slice(0, rest))
    return {carrier: count * rounds + part.get(carrier, 0) for carrier, count in whole.items()}


if __name__ == "__main__":
    sys.exit(main())
