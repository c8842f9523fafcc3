"""The leader changes a Topic's spec: what others write at the same time decides whether that is a conflict."""

from __future__ import annotations

from typing import Any

import pytest

from smq_core.errors import Conflict
from smq_operator.kube.client.kinds import TOPICS, Kind, Resource
from smq_storage.object_store.store import open_store
from smq_storage.topic_manifests.parser import parse_api_resource
from support.fault_injection.kube_faults import KubeFault, KubeOperator
from support.in_memory.brokers import FakeFleet
from support.kube.api_in_memory import KubeApiInMemory
from support.kube.manifest_cases import manifest
from support.virtual_time import run_in_virtual_time

KEY = ("default", "t")


class BusyApi(KubeApiInMemory):
    """Another program changes the Topic each time after it was read, ``times`` times."""

    def __init__(self, change: dict[str, Any], times: int) -> None:
        super().__init__()
        self.change = change
        self.times = times

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Resource | None:
        found = await super().find(kind, name, namespace)
        if self.times:
            self.times -= 1
            await self.patch(TOPICS, KEY[1], KEY[0], self.change | {"status": {"count": self.times}})
        return found


def replicas_after(api: KubeApiInMemory) -> int:
    """The Topic's replicas after somebody wanted three. Raises Conflict."""
    made = manifest({"partitions": 16}, name=KEY[1])
    made["metadata"] |= {"namespace": KEY[0], "generation": 1}
    topic, _ = parse_api_resource(api.put(TOPICS, made))

    async def changed() -> None:
        store = open_store("memory://")
        operator = KubeOperator(api, FakeFleet(store), store, KubeFault("call", 0))
        await operator.platform.change_spec("default/t", topic.spec, {"replicas": 3})

    try:
        run_in_virtual_time(changed())
    finally:
        spec = api.there(TOPICS)[KEY]["spec"]
    return spec["replicas"]


def test_a_status_that_is_written_meanwhile_is_no_conflict() -> None:
    api = BusyApi({}, times=3)
    assert replicas_after(api) == 3
    assert not api.times


def test_a_spec_that_is_written_meanwhile_is_a_conflict() -> None:
    api = BusyApi({"spec": {"replicas": 4}}, times=1)
    with pytest.raises(Conflict, match="was changed meanwhile"):
        replicas_after(api)
    assert api.there(TOPICS)[KEY]["spec"]["replicas"] == 4
