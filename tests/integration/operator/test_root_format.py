"""A broker and a leader that are pointed at a root of format 1 end with a message, and change nothing in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smq_storage.object_store.store import Store, StoreSettings
from support.processes.broker import BrokerProcess, BrokerProcesses
from support.processes.leader import LeaderProcess
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration

UID = "2afe066c243f4f1fabac23bbce5514de"
FORMAT_1 = {
    "default/flights/current.json": b'{"uid": "%s"}' % UID.encode(),
    f"default/flights/{UID}/topic.json": b"{}",
    f"default/flights/{UID}/layout.json": b"{}",
    f"default/flights/{UID}/index/00000000.json": b"{}",
    f"default/flights/{UID}/_groups/delays.json": b"{}",
    f"default/flights/{UID}/flights-0-64-0/00000000000000000000.parquet": b"PAR1",
    "_deleted/9b0795e550b041378d16c05696c4b437.json": b"{}",
}
REFUSED = "holds topics in format 1 (it has default/flights/current.json)"


@pytest.fixture
def files(store: Store) -> Callable[[], dict[str, bytes]]:
    """Reads the root, in which there are the files of format 1."""
    for path, data in FORMAT_1.items():
        store.put(path, data)
    return lambda: {found.path: bytes(store.get(found.path).data) for found in store.list("")}


@pytest.fixture
def broker(tmp_path: Path, settings: StoreSettings, files: Callable[[], dict[str, bytes]]):
    started = BrokerProcesses(tmp_path, settings)
    yield started.start("b1", wait=False)[0]
    started.stop()


@pytest.mark.slow
def test_a_broker_refuses_a_root_of_format_1(broker: BrokerProcess, files: Callable[[], dict[str, bytes]]) -> None:
    assert broker.wait() == 3
    message = broker.event("store.rejected")["error"]
    assert REFUSED in message and "Use an empty root (--filer-url)" in message
    assert files() == FORMAT_1


@pytest.mark.slow
def test_a_leader_refuses_a_root_of_format_1(
    new_leader: Callable[..., LeaderProcess], files: Callable[[], dict[str, bytes]]
) -> None:
    leader = new_leader(brokers=2)
    assert leader.launch().wait(HANG_GUARD) == 2
    output = leader.log.read_text()
    assert REFUSED in output and "Use an empty root (--filer-url)" in output
    assert not leader.pids(), "it started brokers"
    assert files() == FORMAT_1
