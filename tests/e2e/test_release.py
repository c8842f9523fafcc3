"""What users do with a release on a real cluster: install, publish, lose Pods, restart, lose the leader."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import yaml

from e2e.kubectl_plugin import KubectlPlugin
from e2e.load import load
from e2e.release import SPACE, Release, condition, is_ready, unique
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
EXAMPLES = Path(__file__).parents[2] / "examples" / "topics"
SPEC = {"partitions": 64, "segments": {"min": 4, "max": 8}, "flush": {"interval": "1s"}}
ROUND_TRIP = """
import smq
with smq.connect("smq.queue.svc:7070", namespace="queue") as client:
    with client.producer("events") as producer:
        for n in range(1000):
            producer.send(b"%d" % n, key=b"%d" % (n % 7))
    found = set()
    with client.consumer("events", start="earliest") as consumer:
        while len(found) < 1000:
            batch = consumer.poll(120)
            found |= set(batch.table.column("value").to_pylist())
print(len(found))
"""


def test_the_release_is_up_and_says_so(release: Release) -> None:
    assert len(release.pods("broker")) >= 3 and all(map(is_ready, release.pods("broker")))
    assert {pod["spec"]["nodeName"] for pod in release.pods("broker")} <= set(release.nodes)  # spread if nodes are free
    release.test()


def test_the_example_is_applied_and_used_from_a_pod(release: Release) -> None:
    topic = yaml.safe_load((EXAMPLES / "events.yaml").read_text())
    topic["metadata"]["namespace"] = SPACE
    release.kube.apply(topic)
    eventually(lambda: condition(release.kube.get(topic), "Ready") == "True", what="the topic is Ready")
    pod = release.pods("operator")[0]["metadata"]["name"]
    assert release.kube.kubectl("-n", SPACE, "exec", pod, "--", "python3", "-c", ROUND_TRIP).split() == ["1000"]
    headers, rows = release.kube.table("seaweedmq.io/v1alpha1", "Topic", SPACE)
    shown = {row[0]: dict(zip(headers, row, strict=True)) for row in rows}["events"]
    assert (shown["PARTITIONS"], shown["READY"]) == (256, "True") and shown["SEGMENTS"] >= 1


def test_a_client_outside_comes_in_by_any_broker(release: Release) -> None:
    name = unique("outside")
    release.topic(name, **SPEC)
    ledger = MessageLedger()
    with release.connect_outside() as client:
        with client.producer(name) as producer:
            ledger.send(producer, 1000)
        with client.consumer(name, start="earliest") as consumer:
            check_deliveries(ledger, read_back(consumer, ledger.total))


def test_kubectl_smq_needs_no_address(release: Release) -> None:
    smq, topic = KubectlPlugin(release), f"{SPACE}/{unique('plugin')}"
    assert smq.run("topic", "create", topic, "--partitions", "16") == f"topic {topic} created\n"
    assert topic in smq.run("topic", "list").split()
    assert smq.run("publish", topic, stdin="one\ntwo\nthree\n").startswith(f"3 messages published to {topic} ")
    read = smq.run("consume", topic, "--from", "earliest", "--max", "3")
    assert sorted(read.split()) == ["one", "three", "two"]


def test_kubectl_smq_says_that_there_is_no_release_in_a_namespace(release: Release) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        KubectlPlugin(release, namespace="default").run("topic", "list")
    assert failed.value.returncode == 1 and not failed.value.stdout
    assert failed.value.stderr.startswith(
        "kubectl smq: there is no release of the chart seaweedmq in namespace default;"
    )


def test_a_broker_that_is_killed_loses_nothing(release: Release) -> None:
    name = unique("kills")
    release.topic(name, **SPEC)
    with load(release, name) as running:
        for pod in release.pods("broker")[:2]:
            release.kill(pod["metadata"]["name"])
            running.run_rounds()
            release.wait_ready()
    print(f"killed two brokers: longest stall {running.stall:.2f} s")


def test_brokers_are_restarted_one_by_one_under_load(release: Release) -> None:
    name = unique("rollout")
    release.topic(name, **SPEC)
    before = {pod["metadata"]["uid"] for pod in release.pods("broker")}
    began = time.monotonic()
    with load(release, name) as running:
        release.kube.kubectl("-n", SPACE, "rollout", "restart", "deployment/smq-broker")
        release.kube.kubectl("-n", SPACE, "rollout", "status", "deployment/smq-broker")
        release.wait_ready()
    after = {pod["metadata"]["uid"] for pod in release.pods("broker")}
    print(f"rolled {len(after)} brokers in {time.monotonic() - began:.0f} s: longest stall {running.stall:.2f} s")
    assert not before & after


def test_when_the_leader_is_killed_the_next_one_leads(release: Release) -> None:
    name = unique("leader")
    release.topic(name, **SPEC)
    with load(release, name) as running:
        old = release.leader()
        assert old
        began = time.monotonic()
        release.kill(old)
        new = eventually(lambda: _other(release.leader(), old), what="another operator leads", pause=0.1)
        led = time.monotonic() - began
        later = unique("later")
        release.topic(later, **SPEC)
        decided = time.monotonic() - began
        running.run_rounds()
    release.wait_ready()
    print(f"{new} leads {led:.1f} s after its predecessor was killed, and had made a topic after {decided:.1f} s")


def _other(leader: str | None, than: str) -> str | None:
    return leader if leader != than else None
