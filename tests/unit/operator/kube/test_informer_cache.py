"""The cache of resources: news may come in any order, and twice."""

from __future__ import annotations

from typing import Any

from smq_operator.kube.client.kinds import NODES, PODS, Kind, Resource
from smq_operator.kube.informer.cache import ResourceCache

A = ("ns", "a")


def pod(version: int, uid: str = "u1", name: str = "a", namespace: str = "ns") -> Resource:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version), "managedFields": []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def record_changes(cache: ResourceCache) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def listen(kind: Kind, key: tuple[str, str], resource: Resource | None) -> None:
        found.append((key[1], resource and resource["metadata"]["resourceVersion"]))

    cache.on_change(listen)
    return found


def test_only_changes_are_notified() -> None:
    cache = ResourceCache()
    news = record_changes(cache)
    cache.put(PODS, pod(5))
    cache.put(PODS, pod(5))
    cache.put(PODS, pod(4))
    assert news == [("a", "5")]
    assert cache.pods[A]["metadata"]["resourceVersion"] == "5"
    assert "managedFields" not in cache.pods[A]["metadata"]


def test_one_that_was_deleted_does_not_come_back_by_an_older_list() -> None:
    cache = ResourceCache()
    news = record_changes(cache)
    cache.put(PODS, pod(5))
    cache.drop(PODS, pod(6))
    cache.replace(PODS, [pod(5)], version=5)
    assert cache.pods == {}
    assert news == [("a", "5"), ("a", "6"), ("a", None)], "its last state is reported too"


def test_a_list_removes_what_it_lacks_but_nothing_newer() -> None:
    cache = ResourceCache()
    cache.put(PODS, pod(5))
    cache.put(PODS, pod(9, "u2", "b"))
    news = record_changes(cache)
    cache.replace(PODS, [], version=7)
    assert list(cache.pods) == [("ns", "b")]
    assert news == [("a", None)]


def test_a_list_of_one_namespace_says_nothing_of_others() -> None:
    cache = ResourceCache()
    cache.put(PODS, pod(5, namespace="other"))
    cache.replace(PODS, [pod(6, "u2")], version=7, namespace="ns")
    assert set(cache.pods) == {A, ("other", "a")}


def test_another_resource_of_the_same_name_takes_its_place_once() -> None:
    cache = ResourceCache()
    cache.put(PODS, pod(5))
    news = record_changes(cache)
    cache.put(PODS, pod(8, "u2"))
    cache.put(PODS, pod(6))  # news of the earlier one, late
    cache.drop(PODS, pod(7))
    assert cache.pods[A]["metadata"]["uid"] == "u2"
    assert news == [("a", "8")]


def test_a_list_with_a_replaced_resource_notifies_once() -> None:
    cache = ResourceCache()
    cache.put(PODS, pod(5))
    news = record_changes(cache)
    cache.replace(PODS, [pod(8, "u2")], version=9)
    assert news == [("a", "8")]
    assert cache.synced == {PODS}
    assert NODES not in cache.synced
