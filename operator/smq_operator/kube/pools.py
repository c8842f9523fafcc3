"""The broker Deployments: how many brokers each shall have and may have, and what one of them carries.

People bound them by the annotations ``seaweedmq.io/min-brokers`` and ``max-brokers``. A CPU is taken for 50 MiB/s;
``seaweedmq.io/broker-capacity`` (bytes a second, such as 80Mi) says it better. ``seaweedmq.io/scale-in-after`` (2m) is
for how long one broker fewer must have been enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from smq_core.fleet import FleetPolicy
from smq_core.pools import Pool
from smq_operator.kube.kinds import Resource, key_of
from smq_storage.units import parse_duration, parse_size

MINIMUM, MAXIMUM = "seaweedmq.io/min-brokers", "seaweedmq.io/max-brokers"
CAPACITY, SCALE_IN_AFTER = "seaweedmq.io/broker-capacity", "seaweedmq.io/scale-in-after"
POOL = "seaweedmq.io/pool"
BYTES_PER_CPU = 50 * 2**20
BATCHES_PER_CPU = 4_000
USUAL_CPUS = 2.0


def pool_of(deployment: Resource) -> Pool:
    """One pool as its Deployment says; a bound that is nonsense, or not given, is where the Deployment is."""
    wanted = int(deployment["spec"].get("replicas", 1))
    notes = deployment["metadata"].get("annotations") or {}
    minimum = _count(notes.get(MINIMUM), wanted)
    return Pool(key_of(deployment)[1], wanted, minimum, max(_count(notes.get(MAXIMUM), max(wanted, minimum)), minimum))


def nonsense_of(deployment: Resource) -> list[str]:
    """What its annotations say that cannot be followed, and what to write."""
    notes = deployment["metadata"].get("annotations") or {}
    found = [
        f'{name}: {notes[name]!r} is no count of brokers: write a whole number such as "3"'
        for name in (MINIMUM, MAXIMUM)
        if name in notes and not str(notes[name]).isdigit()
    ]
    if not found and _count(notes.get(MAXIMUM), 2**31) < _count(notes.get(MINIMUM), 0):
        found.append(f"{MAXIMUM} is below {MINIMUM}: raise the one or lower the other")
    if CAPACITY in notes and _size(notes[CAPACITY]) is None:
        found.append(f"{CAPACITY}: {notes[CAPACITY]!r} is no size: write bytes per second such as 80Mi")
    if SCALE_IN_AFTER in notes and _duration(notes[SCALE_IN_AFTER]) is None:
        found.append(f"{SCALE_IN_AFTER}: {notes[SCALE_IN_AFTER]!r} is no duration: write one such as 2m")
    return found


def policy_of(deployments: Iterable[Resource]) -> FleetPolicy | None:
    """The bounds of all pools together, and what the weakest broker carries; None without any Deployment."""
    all_of_them = list(deployments)
    if not all_of_them:
        return None
    pools = [pool_of(deployment) for deployment in all_of_them]
    minimum = max(sum(pool.minimum for pool in pools), 1)
    cpus = min(_cpus(deployment) for deployment in all_of_them)
    return FleetPolicy(
        minimum,
        max(sum(pool.maximum for pool in pools), minimum),
        min(_capacity(deployment) for deployment in all_of_them),
        BATCHES_PER_CPU * cpus,
        max((after for after in map(_scale_in_after, all_of_them) if after is not None), default=None),
    )


def _scale_in_after(deployment: Resource) -> int | None:
    return _duration((deployment["metadata"].get("annotations") or {}).get(SCALE_IN_AFTER))


def _capacity(deployment: Resource) -> float:
    told = _size((deployment["metadata"].get("annotations") or {}).get(CAPACITY))
    return told or BYTES_PER_CPU * _cpus(deployment)


def _cpus(deployment: Resource) -> float:
    """What one broker of it is sure to get."""
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
    return USUAL_CPUS


def _count(text: object, otherwise: int) -> int:
    return int(str(text)) if str(text).isdigit() else otherwise


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
