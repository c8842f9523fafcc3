"""All brokers and operators of a release end at once, in the middle of a flood.

If the Pods stay, the journals in them do too, and nothing is lost. If the Pods go with their journals, whatever is lost
is reported to everyone who could notice. ``SMQ_WHOLE_RELEASE_KILLS=20`` is how often everything is killed.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.container_processes import restarts, signal_at_once
from e2e.release import SPACE, Release, condition, unique
from support.client_logs.findings import Findings
from support.client_logs.message_rules import read_writers
from support.client_logs.records import log_path, read_lines
from support.waiting import eventually

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))
from client_processes import ClientProcesses

KILLS = int(os.environ.get("SMQ_WHOLE_RELEASE_KILLS", "2"))
PER_SECOND = 400
SPEC = {"partitions": 64, "segments": {"min": 2, "max": 4}, "flush": {"interval": "10s"}}
LABEL = "seaweedmq.io/component=broker"
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800 + 300 * KILLS, func_only=True)]


@contextmanager
def client_processes(release: Release, topic: str, folder: Path) -> Iterator[ClientProcesses]:
    """Two writers, one of them with an id, a reader and a member of a group."""
    filer = {"SMQ_FILER_URL": "s3://smq", "SMQ_FILER_ENDPOINT": f"http://{release.address('smq-seaweedfs', 8333)}"}
    start = partial(subprocess.Popen, env=os.environ | filer)
    clients = ClientProcesses(folder, release.address("smq", 7070), f"{SPACE}/{topic}", start)
    try:
        for number in range(2):
            clients.start_writer(f"w{number}", PER_SECOND, with_id=bool(number))
        clients.start_reader("early")
        clients.start_member("member")
        yield clients
    finally:
        clients.kill()


def wait_for_more(clients: ClientProcesses, count: int) -> int:
    """Waits until each writer got that number of further acks. Returns how many there were in all."""
    before = {name: clients.progress.acked(name) for name in clients.writers}
    eventually(
        lambda: all(clients.progress.acked(name) >= acked + count for name, acked in before.items()),
        what="messages are acked",
        pause=0.05,
    )
    return sum(clients.progress.acked(name) for name in clients.writers)


def processes(release: Release) -> list[dict[str, Any]]:
    """The Pods of all brokers and operators."""
    return [*release.pods("broker"), *release.pods("operator")]


def test_when_all_processes_are_killed_at_once_nothing_is_lost(release: Release, tmp_path: Path) -> None:
    draw = random.Random(0)
    release.wait_ready()
    name = unique("killed")
    topic = release.topic(name, **SPEC)
    with client_processes(release, name, tmp_path) as clients:
        clients.wait_for_acks()
        for number in range(KILLS):
            acked = wait_for_more(clients, draw.randrange(200, 3000))  # how much of the tail is not in a chunk yet
            print(f"\n  {number + 1}: {acked} acks, {kill_processes(release, clients)}", flush=True)
            eventually(lambda: condition(release.kube.get(topic), "Ready") == "True", what="the topic is Ready")
        clients.finish()
    clients.check_logs("--complete")
    assert not missing_messages(tmp_path)
    assert lost_by_segment(release, name) == {}
    assert condition(release.kube.get(topic), "DataLoss") == "False"


@pytest.mark.parametrize("also", [(), ("operator",)], ids=["brokers", "brokers and operators"])
def test_what_is_lost_with_all_brokers_and_their_journals_is_reported(
    release: Release, also: tuple[str, ...], tmp_path: Path
) -> None:
    """Brokers are stopped first, so that they cannot seal their segments before the nodes end them."""
    release.wait_ready()
    name = unique("deleted")
    topic = release.topic(name, **SPEC)
    with client_processes(release, name, tmp_path) as clients:
        clients.wait_for_acks()
        wait_for_more(clients, 1000)
        eventually(lambda: committed(tmp_path), what="the member commits")
        clients.members["member"].kill()
        clients.members["member"].wait()
        acked = wait_for_more(clients, 1000)
        brokers = release.pods("broker")
        signal_at_once(brokers, signal.SIGSTOP)
        for part in also:
            signal_at_once(release.pods(part), signal.SIGKILL)
        release.kube.kubectl("-n", SPACE, "delete", "pod", "-l", LABEL, "--force", "--grace-period=0", "--wait=false")
        signal_at_once(brokers, signal.SIGKILL)
        began = time.monotonic()
        clients.wait_for_acks()
        print(
            f"\n  deleted {len(brokers)} brokers after {acked} acks; acks again after {time.monotonic() - began:.1f} s"
        )
        clients.start_member("member")
        release.wait_ready()
        eventually(lambda: condition(release.kube.get(topic), "Ready") == "True", what="the topic is Ready")
        clients.finish()
    clients.check_logs()
    check_reports(release, name, topic, tmp_path)


def kill_processes(release: Release, clients: ClientProcesses) -> str:
    """Kills all processes of brokers and operators, waits until messages are acked again, and says how long that took.

    The nodes start the containers again in the same Pods.
    """
    pods = processes(release)
    before = restarts(pods)
    killed = signal_at_once(pods, signal.SIGKILL)
    began = time.monotonic()
    eventually(lambda: restarted(release, before), what="all containers were started again", pause=0.2)
    clients.wait_for_acks()
    acks = time.monotonic() - began
    release.wait_ready()
    return f"killed {killed} processes, acks for all after {acks:.1f} s, ready after {time.monotonic() - began:.1f} s"


def restarted(release: Release, before: dict[str, int]) -> bool:
    """Whether the containers of all these Pods were started again, except for Pods that the operator has removed."""
    now = restarts(processes(release))
    return any(uid in now for uid in before) and all(now[uid] > count for uid, count in before.items() if uid in now)


def committed(folder: Path) -> bool:
    return any(words[0] == "committed" for path in folder.glob("groups/*/*.log") for words in read_lines(path))


def lost_by_segment(release: Release, topic: str) -> dict[str, dict[str, Any]]:
    """What the status of each Segment says that it has lost."""
    return {s["metadata"]["name"]: lost for s in release.segments(topic, "Sealed") if (lost := s["status"].get("lost"))}


def missing_messages(folder: Path) -> dict[str, list[int]]:
    """The acked messages that a reader that started afterwards was not given: known offsets by segment."""
    acked = read_writers((folder / "writers").glob("*.log"), Findings()).acked
    fresh = read_lines(log_path(folder / "readers", "fresh", 1))
    given = {" ".join(words[3:6]) for words in fresh if words[0] == "got"}
    missing: dict[str, list[int]] = defaultdict(list)
    for message, (segment, offset) in acked.items():
        if message not in given:
            missing[segment] += [] if offset is None else [offset]
    return missing


def check_reports(release: Release, name: str, topic: dict[str, Any], folder: Path) -> None:
    """The Topic and its Segments report at least what a reader that starts afterwards was not given."""
    missing = missing_messages(folder)
    reported = lost_by_segment(release, name)
    fresh = read_lines(log_path(folder / "readers", "fresh", 1))
    notified = {words[1]: int(words[2]) for words in fresh if words[0] in ("lost", "possibly-lost")}
    count = sum(map(len, missing.values()))
    print(f"  {count} lost; reader: {notified}; Segments: {reported}")
    for segment, offsets in missing.items():
        lost = reported[segment]
        stop = math.inf if lost.get("atLeast") else lost["stop"]
        assert all(lost["start"] <= it < stop for it in offsets), (segment, lost)
    assert {segment: lost["start"] for segment, lost in reported.items()} == notified
    found = release.kube.get(topic)["status"]["conditions"]
    shown = next(c for c in found if c["type"] == "DataLoss")
    print(f"  {shown['status']}: {shown['message']}")
    if missing:
        assert shown["status"] != "False"
        assert all(segment in shown["message"] or " more" in shown["message"] for segment in missing)  # it names five
