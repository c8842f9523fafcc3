"""Variables for other programs in the environment of leader, brokers and clients change nothing."""

from pathlib import Path

import pytest

import smq
from support.data.store_variables import VARIABLES
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import Seaweed, prefix, seaweed
from support.processes.useless_proxy import set_proxies
from support.waiting import eventually

__all__ = ["prefix", "seaweed"]
pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_a_cluster_uses_the_filer_that_its_flags_name_and_no_proxy(
    tmp_path: Path, seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(f"AWS_{name}", "nonsense")
    set_proxies(monkeypatch)
    store = seaweed.settings(prefix)
    flags = ("--filer-url", store.url, "--filer-endpoint", seaweed.endpoint, "--filer-region", "us-east-1")
    cluster = LocalCluster(tmp_path, store, brokers=2, arguments=(*flags, "--broker-arg=--relay=127.0.0.1:0"))
    try:
        cluster.start()
        cluster.create("t", flush={"interval": "1s"})
        with cluster.connect() as client:
            with client.producer("t") as producer:
                assert producer.send(b"k", b"v").result(60)
            assert eventually(lambda: client.files("t").urls, what="a chunk is in the filer")
        relay = eventually(lambda: cluster.relay_address("broker-1"), what="a broker relays")
        with smq.connect(via=relay) as client, client.producer("t") as producer:
            assert producer.send(b"k", b"through the relay").result(60)
        with (
            smq.connect(filer_url=store.url, filer_endpoint=seaweed.endpoint) as reader,
            reader.consumer("t") as consumer,
        ):
            assert consumer.poll(60).table.num_rows == 1
        assert any("_layout.json" in found.path for found in seaweed.store(prefix).list(""))
    finally:
        cluster.stop()
