"""The world port over a cluster: wishes are Topic resources, brokers are the Pods of Deployments.

Everything is answered from the cache; writes are calls of their own. See ``deaths`` for what counts as a proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog
import yaml

from smq_core.errors import InvalidManifest, InvalidRequest, SmqError, Unavailable, UnknownTopic
from smq_core.fleet import FleetPolicy
from smq_core.pools import spread
from smq_core.starts import start_of
from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.deaths import Deaths
from smq_operator.kube.errors import Forbidden, Invalid, KubeError, NotFound
from smq_operator.kube.kinds import DEPLOYMENTS, PODS, TOPICS, Key, Kind, Resource, key_of
from smq_operator.kube.pools import POOL, nonsense_of, policy_of, pool_of
from smq_operator.kube.settings import COMPONENT, KubeSettings
from smq_operator.kube.sync import Sync
from smq_operator.kube.wishes import Wishes
from smq_operator.world import Problem, Wish
from smq_storage.manifest import AUTOSCALING, PAUSED, check_change, parse_manifest, parse_served

log = structlog.get_logger()

COST = "controller.kubernetes.io/pod-deletion-cost"
GOES_FIRST = "-1000"
ASKED_FOR = 5.0
"""Seconds for which a count that was asked for stands, whatever the cache says: it may be old, or the call failed."""


class KubeWorld:
    """See the module's docstring. ``waits`` is told what keeps it from starting."""

    def __init__(self, api: KubeApi, cache: Cache, sync: Sync, deaths: Deaths, settings: KubeSettings) -> None:
        self._api = api
        self._cache = cache
        self._sync = sync
        self._deaths = deaths
        self._settings = settings
        self._wishes = Wishes()
        self._changed: Callable[[], None] = lambda: None
        self._asked: dict[str, int] = {}
        self._nonsense: dict[str, list[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.waits: Callable[[str], None] = lambda why: None
        cache.on_change(self._news)

    async def start(self, changed: Callable[[], None]) -> None:
        await self._sync.first(self.waits)
        self._changed = changed
        self._spawn(self._sync.keep())
        changed()

    async def stop(self) -> None:
        """Brokers go on."""
        self._sync.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _news(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        if kind is TOPICS:
            self._wishes.take(key, resource)
        elif kind is DEPLOYMENTS:
            found = nonsense_of(resource) if resource is not None else []
            if found != self._nonsense.get(key[1], []):
                for message in found:
                    log.error("deployment.annotation.refused", deployment=key[1], message=message)
            self._nonsense[key[1]] = found
        elif kind is not PODS:
            return
        self._changed()

    # ---- topics

    def wishes(self) -> Mapping[str, Wish]:
        return self._wishes.all()

    def problems(self) -> list[Problem]:
        annotations = [
            Problem(f"deployment {name}", message) for name, found in self._nonsense.items() for message in found
        ]
        return self._wishes.problems() + annotations

    async def apply(self, manifest: str) -> tuple[str, str]:
        wish = parse_manifest(manifest)
        led = self._settings.namespace
        if led and wish.namespace != led:
            raise InvalidManifest(
                f"this operator leads the topics of namespace {led} only, not of {wish.namespace}: "
                f"write metadata.namespace: {led}",
                field="metadata.namespace",
            )
        given = yaml.safe_load(manifest)
        metadata = {key: given["metadata"][key] for key in ("labels", "annotations") if given["metadata"].get(key)}
        body = {
            "apiVersion": TOPICS.api,
            "kind": TOPICS.kind,
            "metadata": metadata | {"name": wish.name, "namespace": wish.namespace},
            "spec": given.get("spec") or {},
        }
        try:
            old = await self._api.find(TOPICS, wish.name, wish.namespace)
            if old is not None:
                check_change(parse_served(old)[0].spec, wish.spec)
            new = await self._api.apply(TOPICS, body)
        except KubeError as error:
            raise _refusal(error, f"topic {wish.full_name}", "kubectl apply") from error
        self._cache.put(TOPICS, new)
        if old is None:
            return wish.full_name, "created"
        same = old["metadata"].get("resourceVersion") == new["metadata"].get("resourceVersion")
        return wish.full_name, "unchanged" if same else "configured"

    async def delete(self, topic: str) -> None:
        namespace, _, name = topic.rpartition("/")
        known = self._cache.topics.get((namespace, name))
        try:
            await self._api.delete(TOPICS, name, namespace)
        except NotFound:
            raise UnknownTopic(f"there is no topic {topic}") from None
        except KubeError as error:
            raise _refusal(error, f"topic {topic}", "kubectl delete topic") from error
        if known is not None:
            self._cache.drop(TOPICS, known)

    async def set_paused(self, topic: str, paused: bool) -> None:
        namespace, _, name = topic.rpartition("/")
        change = {"metadata": {"annotations": {AUTOSCALING: PAUSED if paused else None}}}
        try:
            self._cache.put(TOPICS, await self._api.patch(TOPICS, name, namespace, change))
        except NotFound:
            raise UnknownTopic(f"there is no topic {topic}") from None
        except KubeError as error:
            raise _refusal(error, f"topic {topic}", f"kubectl annotate topic with {AUTOSCALING}") from error

    # ---- brokers

    def policy(self) -> FleetPolicy | None:
        """The bounds of the number of brokers, as the Deployments have them now."""
        return policy_of(self._deployments())

    def brokers_wanted(self) -> int:
        return sum(self._asked.get(pool.name, pool.wanted) for pool in map(pool_of, self._deployments()))

    def want_brokers(self, count: int, go: str | None = None) -> None:
        pools = [pool_of(deployment) for deployment in self._deployments()]
        pod = self._cache.pods.get((self._settings.home, go)) if go else None
        shrinks = self._deployment_of(pod) if pod is not None else None
        for name, wanted in spread(pools, count, shrinks).items():
            pool = next(pool for pool in pools if pool.name == name)
            if wanted != self._asked.get(name, pool.wanted):
                self._asked[name] = wanted
                first = go if wanted < pool.wanted and name == shrinks else None
                self._spawn(self._scale(name, wanted, first))

    async def _scale(self, name: str, replicas: int, go: str | None) -> None:
        home = self._settings.home
        try:
            if go is not None:
                note = {"metadata": {"annotations": {COST: GOES_FIRST}}}
                await self._api.patch(PODS, go, home, note)
            await self._api.patch_scale(name, home, replicas)
            log.info("deployment.scaled", deployment=name, replicas=replicas, first=go)
        except KubeError as error:
            log.error("deployment.not.scaled", deployment=name, replicas=replicas, message=error.message)
        await asyncio.sleep(ASKED_FOR)
        if self._asked.get(name) == replicas:
            del self._asked[name]
            self._changed()

    def _deployments(self) -> list[Resource]:
        home = self._settings.home
        return [
            deployment
            for (namespace, _), deployment in sorted(self._cache.deployments.items())
            if namespace == home and (deployment["metadata"].get("labels") or {}).get(COMPONENT) == "broker"
        ]

    def _deployment_of(self, pod: Resource) -> str | None:
        pool = (pod["metadata"].get("labels") or {}).get(POOL)
        for deployment in self._deployments():
            if (deployment["metadata"].get("labels") or {}).get(POOL) == pool:
                return key_of(deployment)[1]
        return None

    # ---- life and death

    def proof_of_death(self, incarnation: str) -> str | None:
        return self._deaths.proof(incarnation)

    def claims(self, broker: str, incarnation: str) -> bool | None:
        start, pod = start_of(incarnation), self._cache.pods.get((self._settings.home, broker))
        if start is None or pod is None or pod["metadata"]["uid"] != start.pod:
            return None  # the cache may be behind
        return True


def _refusal(error: KubeError, what: str, instead: str) -> SmqError:
    """What a person is told by the control API."""
    if isinstance(error, Invalid):
        return InvalidManifest(error.message)
    if isinstance(error, Forbidden):
        return InvalidRequest(f"the operator may not change {what} ({error.message}): use {instead}")
    return Unavailable(f"{what} is as it was: {error.message}")
