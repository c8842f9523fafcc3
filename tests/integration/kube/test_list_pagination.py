"""Lists come in pages, and are whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from smq_operator.kube.client import api as apis
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import NotFound
from smq_operator.kube.client.kinds import TOPICS, Resource
from support.kube.client import KubeClient
from support.kube.operator_process import topic

pytestmark = pytest.mark.integration
NAMES = [f"t{number}" for number in range(5)]


@pytest.fixture
def api(kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    for name in NAMES:
        kube.create(topic(namespace, name))
    monkeypatch.setattr(apis, "PAGE_SIZE", 2)
    api = KubeApi.connect({"KUBECONFIG": str(kube.kubeconfig)})
    yield api
    api.close()


async def listed(api: KubeApi, namespace: str) -> list[Resource]:
    found, version = await api.list(TOPICS, namespace)
    assert version >= max(int(resource["metadata"]["resourceVersion"]) for resource in found)
    assert {(resource["apiVersion"], resource["kind"]) for resource in found} == {(TOPICS.api_version, TOPICS.kind)}
    assert not any("managedFields" in resource["metadata"] for resource in found)
    return found


async def test_a_list_of_several_pages_is_whole(api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[Mapping[str, str]] = []
    call = api.call

    async def count(*arguments: Any, query: Mapping[str, str], **more: Any) -> Resource:
        queries.append(dict(query))
        return await call(*arguments, query=query, **more)

    monkeypatch.setattr(api, "call", count)
    assert [resource["metadata"]["name"] for resource in await listed(api, namespace)] == NAMES
    assert len(queries) == 3


async def test_a_list_whose_pages_took_too_long_is_read_at_once(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server forgets after some minutes where a list went on."""
    call = api.call

    async def forgetful(*arguments: Any, query: Mapping[str, str], **more: Any) -> Resource:
        if "continue" in query:
            raise NotFound("The provided continue parameter is too old")
        return await call(*arguments, query=query, **more)

    monkeypatch.setattr(api, "call", forgetful)
    assert [resource["metadata"]["name"] for resource in await listed(api, namespace)] == NAMES
