"""The first split that a program meets does not make it load libraries, which would pause all of its threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration

SENDS_UNTIL_THE_SEGMENT_IS_SPLIT = """
import sys
import smq

def send_some(producer):
    return [producer.send(b"value", key=b"%d" % number) for number in range(50)]

with smq.connect(sys.argv[1]) as client, client.producer(sys.argv[2]) as producer:
    first = producer.send(b"value").result(60).segment
    loaded = set(sys.modules)
    print("sending", flush=True)
    segments = {first}
    while len(segments) < 3:
        under_way = [send_some(producer) for _ in range(10)]
        segments.update(delivery.result(60).segment for some in under_way for delivery in some)
    print(*sorted(set(sys.modules) - loaded))
"""


def test_a_producer_loads_nothing(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    program = [sys.executable, "-c", SENDS_UNTIL_THE_SEGMENT_IS_SPLIT, cluster.address, topic]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "sending\n"
            admin = client.admin()
            admin.split(topic, admin.segments(topic)[0].name)
            loaded, _ = child.communicate(timeout=HANG_GUARD)
        finally:
            child.kill()
    assert child.returncode == 0
    assert loaded.split() == []
