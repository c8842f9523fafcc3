"""The broker Deployments: how many brokers each has and may have, and the load that one broker can carry.

Their annotations ``seaweedmq.io/min-brokers`` and ``max-brokers`` bound the count. A CPU counts as 50 MiB/s unless
``seaweedmq.io/broker-capacity`` gives the capacity of a broker in bytes per second (such as 80Mi). The operator removes
a broker when one fewer has been enough for ``seaweedmq.io/scale-in-after`` (2m).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from smq_core.model.units import parse_duration, parse_size
from smq_core.scaling.broker_fleet import FleetPolicy
from smq_core.scaling.broker_pools import BrokerPool
from smq_operator.kube.client.kinds import Resource, key_of

MIN_BROKERS_ANNOTATION, MAX_BROKERS_ANNOTATION = "seaweedmq.io/min-brokers", "seaweedmq.io/max-brokers"
CAPACITY_ANNOTATION, SCALE_IN_AFTER_ANNOTATION = "seaweedmq.io/broker-capacity", "seaweedmq.io/scale-in-after"
POOL_LABEL = "seaweedmq.io/pool"
BYTES_PER_CPU = 50 * 2**20
BATCHES_PER_CPU = 4_000
DEFAULT_CPUS = 2.0


def pool_of(deployment: Resource) -> BrokerPool:
    """The pool of that Deployment. A bound that is invalid or missing equals the current number of replicas."""
    desired_count = int(deployment["spec"].get("replicas", 1))
    annotations = deployment["metadata"].get("annotations") or {}
    minimum = _count(annotations.get(MIN_BROKERS_ANNOTATION), desired_count)
    return BrokerPool(
        key_of(deployment)[1],
        desired_count,
        minimum,
        max(_count(annotations.get(MAX_BROKERS_ANNOTATION), max(desired_count, minimum)), minimum),
    )


def invalid_annotations_of(deployment: Resource) -> list[str]:
    """Messages about its invalid annotations, with what to write instead."""
    annotations = deployment["metadata"].get("annotations") or {}
    found = [
        f'{name}: {annotations[name]!r} is no count of brokers: write a whole number such as "3"'
        for name in (MIN_BROKERS_ANNOTATION, MAX_BROKERS_ANNOTATION)
        if name in annotations and not str(annotations[name]).isdigit()
    ]
    if not found and _count(annotations.get(MAX_BROKERS_ANNOTATION), 2**31) < _count(
        annotations.get(MIN_BROKERS_ANNOTATION), 0
    ):
        found.append(f"{MAX_BROKERS_ANNOTATION} is below {MIN_BROKERS_ANNOTATION}: raise the one or lower the other")
    if CAPACITY_ANNOTATION in annotations and _size(annotations[CAPACITY_ANNOTATION]) is None:
        value = annotations[CAPACITY_ANNOTATION]
        found.append(f"{CAPACITY_ANNOTATION}: {value!r} is no size: write bytes per second such as 80Mi")
    if SCALE_IN_AFTER_ANNOTATION in annotations and _duration(annotations[SCALE_IN_AFTER_ANNOTATION]) is None:
        value = annotations[SCALE_IN_AFTER_ANNOTATION]
        found.append(f"{SCALE_IN_AFTER_ANNOTATION}: {value!r} is no duration: write one such as 2m")
    return found


def policy_of(deployments: Iterable[Resource]) -> FleetPolicy | None:
    """The bounds of all pools together and the capacity of the weakest broker; None without Deployments."""
    all_of_them = list(deployments)
    if not all_of_them:
        return None
    pools = [pool_of(deployment) for deployment in all_of_them]
    minimum = max(sum(pool.minimum for pool in pools), 1)
    cpus = min(_cpus(deployment) for deployment in all_of_them)
    return FleetPolicy(
        minimum=minimum,
        maximum=max(sum(pool.maximum for pool in pools), minimum),
        bytes_per_second=min(_capacity(deployment) for deployment in all_of_them),
        batches_per_second=BATCHES_PER_CPU * cpus,
        scale_in_after=max((after for after in map(_scale_in_after, all_of_them) if after is not None), default=None),
    )


def _scale_in_after(deployment: Resource) -> int | None:
    return _duration((deployment["metadata"].get("annotations") or {}).get(SCALE_IN_AFTER_ANNOTATION))


def _capacity(deployment: Resource) -> float:
    configured = _size((deployment["metadata"].get("annotations") or {}).get(CAPACITY_ANNOTATION))
    return configured or BYTES_PER_CPU * _cpus(deployment)


def _cpus(deployment: Resource) -> float:
    """The CPUs that one of its brokers is guaranteed."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or [{}]
    resources: Mapping[str, Any] = containers[0].get("resources") or {}
    for part in ("requests", "limits"):
        text = str((resources.get(part) or {}).get("cpu", ""))
        try:
            cpus = float(text[:-1]) / 1000 if text.endswith("m") else float(text)
        except ValueError:
            continue
        if cpus > 0:
            return cpus
    return DEFAULT_CPUS


def _count(text: object, default: int) -> int:
    return int(str(text)) if str(text).isdigit() else default


def _size(text: object) -> int | None:
    try:
        return parse_size(str(text)) if text is not None else None
    except ValueError:
        return None


def _duration(text: object) -> int | None:
    try:
        return parse_duration(text) if text is not None else None
    except ValueError:
        return None
