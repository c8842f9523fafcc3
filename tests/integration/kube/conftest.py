from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq_storage.object_store.store import StoreSettings
from support.kube.api_server import api_server, kube, namespace
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, broker_in_pod, pod_of
from support.processes.broker import BrokerProcess
from support.processes.seaweed import Seaweed, prefix, seaweed

__all__ = ["api_server", "kube", "namespace", "prefix", "seaweed"]


@pytest.fixture
def settings(seaweed: Seaweed, prefix: str) -> StoreSettings:
    return seaweed.settings(prefix, timeout=3.0)


@pytest.fixture
def new_operator(
    tmp_path: Path, kube: KubeClient, settings: StoreSettings, namespace: str
) -> Iterator[Callable[..., OperatorProcess]]:
    """Makes operators with their Pods (not started), which end with the test."""
    made: list[OperatorProcess] = []

    def make(kubeconfig: Path | None = None) -> OperatorProcess:
        made.append(OperatorProcess(tmp_path / "operators", kube, settings, namespace, kubeconfig=kubeconfig))
        made[-1].create_pod()
        return made[-1]

    yield make
    for operator in made:
        operator.stop()


@pytest.fixture
def operator(new_operator: Callable[..., OperatorProcess]) -> OperatorProcess:
    """One that leads."""
    return new_operator().start()


@pytest.fixture
def new_broker(
    tmp_path: Path, kube: KubeClient, settings: StoreSettings, namespace: str
) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts real brokers whose Pods are resources only."""
    made: list[BrokerProcess] = []

    def make(name: str, *leaders: OperatorProcess, **spec: object) -> BrokerProcess:
        pod = kube.create(pod_of(name, namespace, "broker", **spec))
        made.append(broker_in_pod(pod, tmp_path, settings, ",".join(leader.listen for leader in leaders)))
        return made[-1].wait_ready()

    yield make
    for broker in made:
        if broker.running:
            broker.kill()
