"""A layout that was deleted by mistake is rebuilt from real journals and chunk files: nothing is lost or doubled."""

from __future__ import annotations

import os
import signal

import pytest

import smq as smq_client
from smq_storage.catalog import paths
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.store import Store
from support.processes.cli import smq
from support.processes.leader import LeaderProcess, manifest
from support.waiting import eventually

pytestmark = pytest.mark.integration


def publish(leader: LeaderProcess, numbers: range) -> None:
    with smq_client.connect(leader.address) as client, client.producer("t") as producer:
        for delivery in [producer.send(b"%d" % number, key=b"%d" % number) for number in numbers]:
            delivery.result()


def read_all(leader: LeaderProcess) -> list[int]:
    ran = smq("consume", "t", "--from", "earliest", "-e", leader=leader.address)
    assert ran.code == 0, ran
    return sorted(map(int, ran.out.split()))


@pytest.mark.slow
def test_a_deleted_layout_is_recovered(leader: LeaderProcess, store: Store):
    leader.apply(manifest("t", flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open("t")
    publish(leader, range(100))
    assert smq("segment", "split", segment.name, leader=leader.address).code == 0
    publish(leader, range(100, 200))
    pids = leader.pids()
    leader.kill()
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    current = read_current(store, "default/t")
    assert current is not None
    layout = paths.layout("default/t", current[0])
    for path in (layout, paths.current("default/t")):
        store.delete(path)

    leader.start()
    leader.wait_for_brokers()
    eventually(
        lambda: "smq topic recover t" in smq("topic", "describe", "t", leader=leader.address).out, what="the refusal"
    )
    eventually(
        lambda: smq("topic", "recover", "t", "--dry-run", leader=leader.address).code == 0, what="the brokers' reports"
    )
    refused = smq("topic", "recover", "t", leader=leader.address)
    assert refused.code == 1 and "--yes" in refused.err, "without a terminal nobody can confirm"
    assert not any(found.path == layout for found in store.list(""))
    recovered = smq("topic", "recover", "t", "--yes", leader=leader.address)
    assert recovered.code == 0 and layout in recovered.out, recovered
    assert "May be lost" not in recovered.out

    eventually(lambda: smq("topic", "list", leader=leader.address).out.count("yes") == 1, what="Ready")
    publish(leader, range(200, 300))
    assert read_all(leader) == list(range(300))
    again = smq("topic", "recover", "t", "--yes", leader=leader.address)
    assert again.code == 1 and "nothing was changed" in again.err
