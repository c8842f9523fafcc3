"""``smq-operator kube``, put together."""

from __future__ import annotations

import asyncio
import uuid

from smq_operator import clock
from smq_operator.desk import Desk
from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.checks import Checks
from smq_operator.kube.deaths import Deaths
from smq_operator.kube.events import EventWriter
from smq_operator.kube.feed import Scope
from smq_operator.kube.kinds import DEPLOYMENTS, NODES, PODS, SEGMENTS, TOPICS
from smq_operator.kube.lease import Seat
from smq_operator.kube.settings import KubeSettings
from smq_operator.kube.stand import Stand
from smq_operator.kube.sync import Sync
from smq_operator.kube.world import KubeWorld
from smq_operator.leader import Candidacy, lead
from smq_operator.settings import Settings
from smq_operator.world import World
from smq_storage import glibc


def scopes(kube: KubeSettings) -> list[Scope]:
    """What is watched: Topics where they are led, what belongs to the release where it is, and Nodes.

    An operator that is bound to a Namespace may have no right to Nodes, and does without.
    """
    own = {PODS: kube.selector, DEPLOYMENTS: kube.selector}
    return [
        Scope((TOPICS, SEGMENTS), kube.namespace),
        Scope((PODS, DEPLOYMENTS), kube.home, own),
        Scope((NODES,), optional=True),
    ]


async def run(settings: Settings, kube: KubeSettings) -> None:
    """Stands by and leads until SIGTERM. Raises what ``leader.lead`` does, and KubeError when no API is to be found."""
    api, cache = KubeApi.connect(), Cache()
    sync = Sync(api, cache, clock.now, scopes(kube))
    deaths = Deaths(cache, clock.now, sync.again, kube.node_grace)
    world = KubeWorld(api, cache, sync, deaths, kube)
    told = ""

    def make_world(address: str) -> World:
        nonlocal told
        told = address
        return world

    def stand(desk: Desk) -> Candidacy:
        seat = Seat(api, cache, clock.now, kube.home, kube.lease, kube.pod, told)
        events = EventWriter(api, kube.pod or "operator", uuid.uuid4().hex[:12], clock.now)
        checks = Checks(api, kube, events)
        return Stand(desk, api, cache, world, sync, deaths, seat, events, checks)

    try:
        await lead(settings, make_world, stand=stand)
    finally:
        sync.stop()
        api.close()


def main(settings: Settings, kube: KubeSettings) -> None:
    # Hundreds of threads that mostly wait need no heaps of their own: each would keep what it freed.
    glibc.set_malloc({glibc.ARENA_MAX: 2})
    asyncio.run(run(settings, kube))
