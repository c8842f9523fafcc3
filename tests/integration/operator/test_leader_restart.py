"""A leader ends and another one takes over. The brokers continue meanwhile, and no state is lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.data.segment_writer import sealed_segments, write
from support.processes.leader import LeaderProcess, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


def is_running(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.slow
def test_a_new_leader_adopts_the_brokers_and_changes_nothing(leader: LeaderProcess):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 10)
    before, pids, version = leader.alive(), leader.pids(), leader.locate().layout.version
    leader.kill()
    producer.wait_acked(producer.send(producer.rows(5)))
    leader.start()
    leader.wait_for_brokers()
    assert leader.alive() == before
    assert leader.pids() == pids
    assert leader.wait_until_open()[0].name == segment.name
    assert leader.locate().layout.version == version, "a leader that finds all well decides nothing"
    producer.wait_acked(producer.send(producer.rows(5)))
    producer.close()


@pytest.mark.slow
def test_a_broker_that_died_without_a_leader_is_proved_gone(new_leader: Callable[..., LeaderProcess]):
    leader = new_leader("--no-journal").start()
    leader.wait_for_brokers()
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 10).close()
    leader.kill()
    dead = [leader.kill_broker(replica.broker) for replica in segment.replicas]
    leader.start()
    entry = sealed_segments(leader, segment.name)
    assert entry.end == 0, "both replicas are proved gone, so the filer alone decides"
    for incarnation in dead:
        leader.wait_until_open(without=incarnation)


@pytest.mark.slow
def test_the_journal_of_a_broker_that_died_without_a_leader_is_sealed(leader: LeaderProcess):
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 10).close()
    leader.kill()
    for replica in segment.replicas:
        leader.kill_broker(replica.broker)
    leader.start()
    entry = sealed_segments(leader, segment.name)
    assert (entry.end, entry.HasField("lost")) == (10, False)


@pytest.mark.slow
def test_a_leader_killed_before_it_wrote_a_pid_down_finds_the_process(leader: LeaderProcess):
    leader.apply(manifest())
    leader.wait_until_open()
    leader.kill()
    path = leader.folder / "brokers" / "broker-1.json"
    record = json.loads(path.read_text())
    pid = leader.pid("broker-1")
    path.write_text(json.dumps(record | {"pid": None, "started": None}))
    leader.start()
    leader.wait_for_brokers()
    assert leader.pid("broker-1") == pid
    assert leader.alive()["broker-1"] == record["incarnation"]


@pytest.mark.slow
def test_a_pid_that_is_another_process_by_now_is_a_dead_broker(leader: LeaderProcess):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    leader.kill()
    name = segment.replicas[0].broker
    dead = leader.kill_broker(name)
    path = leader.folder / "brokers" / f"{name}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"pid": os.getpid()}))
    leader.start()
    leader.wait_until_open(without=dead)
    assert is_running(os.getpid())


@pytest.mark.slow
def test_a_record_that_cannot_be_read_harms_no_other(leader: LeaderProcess):
    leader.kill()
    (leader.folder / "brokers" / "broker-9.json").write_text("{")
    leader.start()
    leader.wait_for_brokers()
    assert leader.events("broker_record.damaged")[0]["file"] == "broker-9.json"


@pytest.mark.slow
def test_brokers_end_after_their_leader_and_lose_nothing(leader: LeaderProcess):
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 30)
    pids = leader.pids()
    assert leader.terminate() == 0
    assert not [pid for pid in pids.values() if is_running(pid)]
    producer.close()
    leader.start()
    leader.wait_for_brokers()
    entry = sealed_segments(leader, segment.name)
    assert entry.end == 30, "the tail was written before the brokers left"
    leader.wait_until_open()


@pytest.mark.slow
def test_brokers_may_outlive_their_leader(new_leader: Callable[..., LeaderProcess]):
    leader = new_leader("--keep-brokers").start()
    leader.wait_for_brokers()
    before, pids = leader.alive(), leader.pids()
    assert leader.terminate() == 0
    assert all(is_running(pid) for pid in pids.values())
    leader.start()
    leader.wait_for_brokers()
    assert leader.alive() == before


@pytest.mark.slow
def test_a_leader_at_another_address_replaces_brokers_that_would_never_find_it(leader: LeaderProcess):
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 30).close()
    before = leader.alive()
    leader.kill()
    leader.move()
    leader.start()
    leader.wait_for_brokers()
    assert set(leader.alive()) == set(before)
    assert not set(leader.alive().values()) & set(before.values())
    assert sealed_segments(leader, segment.name).end == 30


def test_the_folder_has_one_leader(leader: LeaderProcess, new_leader: Callable[..., LeaderProcess]):
    second = new_leader()
    assert second.folder == leader.folder
    process = second.launch()
    assert process.wait(HANG_GUARD) == 2
    output = second.log.read_text()
    assert f"another leader (pid {leader.process.pid}) runs on {leader.folder}" in output
    assert "--dir" in output
    leader.alive()


@pytest.mark.slow
def test_fewer_brokers_than_before_end_the_others(leader: LeaderProcess):
    third = leader.pid("broker-3")
    leader.kill()
    leader.start("--brokers", "2")
    eventually(lambda: not is_running(third), what="broker-3 has left")
    leader.wait_for_brokers(2)
    assert set(leader.alive()) == {"broker-1", "broker-2"}


@pytest.mark.slow
def test_a_broker_that_crashes_again_and_again_is_started_ever_more_slowly(new_leader: Callable[..., LeaderProcess]):
    leader = new_leader("--broker-arg=--memory=nonsense", brokers=1).start()
    eventually(lambda: len(leader.events("broker.terminated")) >= 4)
    pauses = [float(event["retry_in_seconds"]) for event in leader.events("broker.terminated")[:4]]
    # On a slow machine a broker that needs long to crash passes for a healthy one, which starts the backoff anew.
    assert pauses[0] == 0.2 and all(pause in (0.2, 2 * last) for last, pause in itertools.pairwise(pauses))
    assert leader.http_get("/healthz")[0] == 200


@pytest.mark.slow
def test_the_leader_does_not_stand_in_the_way_of_ctrl_c(new_leader: Callable[..., LeaderProcess]):
    leader = new_leader(brokers=1).start()
    leader.wait_for_brokers()
    leader.process.send_signal(signal.SIGINT)
    try:
        assert leader.process.wait(HANG_GUARD) == 0
    except subprocess.TimeoutExpired:
        raise AssertionError(leader.log.read_text()[-2000:]) from None
