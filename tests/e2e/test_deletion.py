"""Topics and Namespaces that are deleted on a real cluster: what stays, what goes, and that nothing hangs."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.release import SPACE, Release, unique
from smq_storage.object_store.store import Store, StoreSettings
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
SPEC = {"partitions": 16, "segments": {"min": 2}, "flush": {"interval": "1s"}}


def store(release: Release) -> Store:
    """The filer, as seen from this machine."""
    return StoreSettings(url="s3://smq", endpoint=f"http://{release.address('smq-seaweedfs', 8333)}").open()


def files(release: Release, topic: dict[str, Any]) -> list[str]:
    """What the filer has of this life of the topic; the name's ``_current.json`` is not part of it."""
    named = topic["metadata"]
    return [entry.path for entry in store(release).list(f"{SPACE}/{named['name']}/{named['uid']}/")]


def write(release: Release, topic: str) -> None:
    with release.connect() as client, client.producer(topic) as producer:
        for n in range(100):
            producer.send(b"%d" % n, key=b"%d" % n)


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_deleted_topics_data_stays_or_goes_as_its_policy_says(release: Release, policy: str) -> None:
    name = unique("deleted")
    topic = release.topic(name, **SPEC, deletionPolicy=policy)
    write(release, name)
    eventually(lambda: any(path.endswith(".parquet") for path in files(release, topic)), what="chunks are written")
    release.kube.delete(topic)
    eventually(lambda: release.kube.find(topic) is None, what="the resource is gone")
    eventually(lambda: not segments(release, name), what="its Segments are gone")
    if policy == "Delete":
        eventually(lambda: not files(release, topic), what="the topic's data is deleted", pause=0.5)
    else:
        assert any(path.endswith(".parquet") for path in files(release, topic))


@pytest.mark.parametrize("alive", [True, False], ids=["with the operator", "without the operator"])
def test_a_namespace_goes_with_its_topics(release: Release, alive: bool) -> None:
    name = unique("space")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    release.kube.create(space)
    named = {"name": "events", "namespace": name}
    topic = {"apiVersion": "seaweedmq.io/v1alpha1", "kind": "Topic", "metadata": named, "spec": SPEC}
    release.kube.create(topic)
    found = "seaweedmq.io/v1alpha1", "Segment", name
    eventually(lambda: len(release.kube.list(*found)) >= 2, what="the topic has its Segments")
    try:
        if not alive:
            scale(release, 0)
        release.kube.delete(space)
        eventually(lambda: release.kube.find(space) is None, what="the Namespace is gone", pause=0.2)
    finally:
        if not alive:
            scale(release, 2)
    release.wait_ready()


def scale(release: Release, replicas: int) -> None:
    release.kube.patch(release.deployment("operator"), {"spec": {"replicas": replicas}})
    eventually(lambda: len(release.pods("operator")) == replicas, what=f"there are {replicas} operators")


def segments(release: Release, topic: str) -> list[dict[str, Any]]:
    return [s for s in release.kube.list("seaweedmq.io/v1alpha1", "Segment", SPACE) if s["spec"]["topic"] == topic]
