"""The label by which brokers and clients find the leader's Pod."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from smq_operator.kube.client.errors import ApiServerUnreachable
from smq_operator.kube.client.kinds import PODS, Kind
from smq_operator.kube.election.lease import LEADER_LABEL, LeaseElector
from smq_operator.kube.informer.cache import ResourceCache


async def test_a_label_that_could_not_be_set_is_set_with_the_next_step() -> None:
    patched: list[tuple[str, Any]] = []

    async def patch(kind: Kind, name: str, namespace: str, body: Any) -> None:
        patched.append((name, body["metadata"]["labels"][LEADER_LABEL]))
        if len(patched) == 1:
            raise ApiServerUnreachable("broken by the test")

    cache = ResourceCache()
    metadata = {"name": "me", "namespace": "smq", "uid": "u1", "resourceVersion": "1"}
    cache.put(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    api: Any = SimpleNamespace(patch=patch)
    elector = LeaseElector(
        api=api,
        cache=cache,
        clock=lambda: 0,
        namespace="smq",
        name="lease",
        pod="me",
        address="me:1",
        on_reconnect=lambda: None,
    )
    elector.candidate.leads = True
    for _ in range(3):  # the third one waits for the Pod's next version, which shows the result
        await elector._sync_leader_label()
    assert patched == [("me", "true")] * 2
