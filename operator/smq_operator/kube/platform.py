"""The platform port over a cluster: topics are Topic resources, brokers are the Pods of Deployments.

Reads come from the cache; writes are calls to the API server. ``termination`` proves that brokers are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from smq_core.errors import Conflict, InvalidRequest, SmqError, SpecRejected, Unavailable, UnknownTopic
from smq_core.model.entities import TopicSpec
from smq_core.model.incarnation_ids import parse_incarnation
from smq_core.scaling.broker_fleet import FleetPolicy
from smq_core.scaling.broker_pools import distribute_brokers
from smq_operator.kube.broker_pools import POOL_LABEL, invalid_annotations_of, policy_of, pool_of
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import Forbidden, InvalidResource, KubeError, NotFound, ResourceConflict
from smq_operator.kube.client.kinds import DEPLOYMENTS, PODS, TOPICS, Key, Kind, Resource, key_of
from smq_operator.kube.desired_topics import DesiredTopics
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.list_watch import Informer
from smq_operator.kube.settings import COMPONENT_LABEL, KubeSettings
from smq_operator.kube.termination import TerminationTracker
from smq_operator.platform_port import AppliedManifest, DesiredTopic, Problem, TerminationProof
from smq_operator.runtime.task_runner import TaskRunner
from smq_storage.topic_manifests.parser import (
    AUTOSCALING_ANNOTATION,
    PAUSED,
    ManifestDocument,
    TopicManifest,
    check_change,
    parse_api_resource,
)
from smq_storage.topic_manifests.spec_patch import SpecPatch

log = structlog.get_logger(__name__)

DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
DELETE_FIRST_COST = "-1000"
# A requested count stands for this long whatever the cache says: it may be stale, or the call may have failed.
SCALE_HOLD_SECONDS = 5.0


class KubePlatform:
    """See the module's docstring. Calls ``on_not_ready`` with what prevents it from starting."""

    def __init__(
        self,
        *,
        api: KubeApi,
        cache: ResourceCache,
        desired_topics: DesiredTopics,
        informer: Informer,
        termination_tracker: TerminationTracker,
        settings: KubeSettings,
        on_not_ready: Callable[[str], None],
        tasks: TaskRunner,
    ) -> None:
        self._api = api
        self._cache = cache
        self._informer = informer
        self._termination_tracker = termination_tracker
        self._settings = settings
        self._desired_topics = desired_topics
        self._changed: Callable[[], None] = lambda: None
        self._requested_replicas: dict[str, int] = {}
        self._invalid_annotations: dict[str, list[str]] = {}
        self._tasks = tasks
        self._on_not_ready = on_not_ready
        cache.on_change(self._on_resource_change)

    async def start(self, changed: Callable[[], None]) -> None:
        await self._informer.start(self._on_not_ready)
        self._changed = changed
        self._tasks.supervise("informer", self._informer.run)
        changed()

    async def stop(self) -> None:
        """Brokers keep running."""
        self._informer.stop()

    def _on_resource_change(self, kind: Kind, key: Key, resource: Resource | None) -> None:
        if kind is TOPICS:
            self._desired_topics.update(key, resource)
        elif kind is DEPLOYMENTS:
            found = invalid_annotations_of(resource) if resource is not None else []
            if found != self._invalid_annotations.get(key[1], []):
                for message in found:
                    log.error("deployment.annotation_rejected", deployment=key[1], message=message)
            self._invalid_annotations[key[1]] = found
        elif kind is not PODS:
            return
        self._changed()

    # ---- topics

    def desired_topics(self) -> Mapping[str, DesiredTopic]:
        return self._desired_topics.all()

    def problems(self) -> list[Problem]:
        annotations = [
            Problem(f"deployment {name}", message)
            for name, found in self._invalid_annotations.items()
            for message in found
        ]
        return self._desired_topics.problems() + annotations

    async def apply(self, manifest: ManifestDocument, preview: bool = False) -> AppliedManifest:
        desired, given = manifest.topic, manifest.body
        led_namespace = self._settings.namespace
        if led_namespace and desired.namespace != led_namespace:
            raise SpecRejected(
                f"this operator leads only the topics of namespace {led_namespace}, not of {desired.namespace}: "
                f"write metadata.namespace: {led_namespace}",
                field="metadata.namespace",
            )
        metadata = {key: given["metadata"][key] for key in ("labels", "annotations") if given["metadata"].get(key)}
        body = {
            "apiVersion": TOPICS.api_version,
            "kind": TOPICS.kind,
            "metadata": metadata | {"name": desired.name, "namespace": desired.namespace},
            "spec": given.get("spec") or {},
        }
        try:
            old = await self._api.find(TOPICS, desired.name, desired.namespace)
            before = await _parsed(old) if old is not None else None
            if before is not None:
                check_change(before.spec, desired.spec)
            new = await self._api.apply(TOPICS, body, dry_run=preview)
            stored = await _parsed(new)
            after = replace(stored, spec=replace(stored.spec, schema=desired.spec.schema))
            if preview:
                result = "created" if before is None else "unchanged" if before == after else "configured"
                return AppliedManifest(desired.full_name, result, before, after)
            if len(stored.spec.schema) > len(desired.spec.schema):
                # Server-side apply keeps columns that another program wrote. This manifest has all that are desired.
                columns = {"spec": {"schema": (given.get("spec") or {}).get("schema") or []}}
                new = await self._api.patch(TOPICS, desired.name, desired.namespace, columns)
        except KubeError as error:
            raise _to_smq_error(error, f"topic {desired.full_name}", "kubectl apply") from error
        self._cache.put(TOPICS, new)
        if old is None:
            return AppliedManifest(desired.full_name, "created", None, after)
        same = old["metadata"].get("resourceVersion") == new["metadata"].get("resourceVersion")
        return AppliedManifest(desired.full_name, "unchanged" if same else "configured", before, after)

    async def delete(self, topic: str) -> None:
        namespace, _, name = topic.rpartition("/")
        known = self._cache.topics.get((namespace, name))
        try:
            await self._api.delete(TOPICS, name, namespace)
        except NotFound:
            raise UnknownTopic(f"there is no topic {topic}") from None
        except KubeError as error:
            raise _to_smq_error(error, f"topic {topic}", "kubectl delete topic") from error
        if known is not None:
            self._cache.drop(TOPICS, known)

    async def set_paused(self, topic: str, paused: bool) -> None:
        namespace, _, name = topic.rpartition("/")
        change = {"metadata": {"annotations": {AUTOSCALING_ANNOTATION: PAUSED if paused else None}}}
        try:
            self._cache.put(TOPICS, await self._api.patch(TOPICS, name, namespace, change))
        except NotFound:
            raise UnknownTopic(f"there is no topic {topic}") from None
        except KubeError as error:
            raise _to_smq_error(
                error, f"topic {topic}", f"kubectl annotate topic with {AUTOSCALING_ANNOTATION}"
            ) from error

    async def change_spec(self, topic: str, before: TopicSpec, patch: SpecPatch) -> None:
        while not await self._try_change_spec(topic, before, patch):
            pass  # somebody wrote its status or its metadata in between

    async def _try_change_spec(self, topic: str, before: TopicSpec, patch: SpecPatch) -> bool:
        """Whether the resource was still the one that was read. Raises Conflict if its spec is not ``before``."""
        namespace, _, name = topic.rpartition("/")
        try:
            old = await self._api.find(TOPICS, name, namespace)
            if old is None:
                raise UnknownTopic(f"there is no topic {topic}")
            if (await _parsed(old)).spec != before:
                raise Conflict(f"the spec of {topic} was changed meanwhile: look at it and try again")
            change = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": dict(patch)}
            self._cache.put(TOPICS, await self._api.patch(TOPICS, name, namespace, change))
        except NotFound:
            raise UnknownTopic(f"there is no topic {topic}") from None
        except ResourceConflict:
            return False
        except KubeError as error:
            raise _to_smq_error(error, f"topic {topic}", "kubectl edit topic") from error
        return True

    # ---- brokers

    def policy(self) -> FleetPolicy | None:
        """The bounds of the number of brokers, as the Deployments have them now."""
        return policy_of(self._deployments())

    def desired_brokers(self) -> int:
        return sum(
            self._requested_replicas.get(pool.name, pool.desired_count) for pool in map(pool_of, self._deployments())
        )

    def restart_broker(self, name: str) -> None:
        raise InvalidRequest(
            f"on Kubernetes delete the broker's Pod, and its Deployment starts a new one: kubectl delete pod {name} "
            f"--namespace {self._settings.home}"
        )

    def scale_brokers(self, count: int, stop_first: str | None = None) -> None:
        pools = [pool_of(deployment) for deployment in self._deployments()]
        pod = self._cache.pods.get((self._settings.home, stop_first)) if stop_first else None
        shrinks = self._deployment_of(pod) if pod is not None else None
        for name, desired_count in distribute_brokers(pools, count, shrinks).items():
            pool = next(pool for pool in pools if pool.name == name)
            if desired_count != self._requested_replicas.get(name, pool.desired_count):
                first = stop_first if desired_count < pool.desired_count and name == shrinks else None
                self._tasks.spawn(self._scale(name, desired_count, first))
                self._requested_replicas[name] = desired_count

    async def _scale(self, name: str, replicas: int, stop_first: str | None) -> None:
        home = self._settings.home
        try:
            if stop_first is not None:
                note = {"metadata": {"annotations": {DELETION_COST_ANNOTATION: DELETE_FIRST_COST}}}
                await self._api.patch(PODS, stop_first, home, note)
            await self._api.patch_scale(name, home, replicas)
            log.info("deployment.scaled", deployment=name, replicas=replicas, first=stop_first)
        except KubeError as error:
            log.error("deployment.scale_failed", deployment=name, replicas=replicas, message=error.message)
        except Exception as error:
            self._tasks.record_failure("scale", error)
        await asyncio.sleep(SCALE_HOLD_SECONDS)
        if self._requested_replicas.get(name) == replicas:
            del self._requested_replicas[name]
            self._changed()

    def _deployments(self) -> list[Resource]:
        home = self._settings.home
        return [
            deployment
            for (namespace, _), deployment in sorted(self._cache.deployments.items())
            if namespace == home and (deployment["metadata"].get("labels") or {}).get(COMPONENT_LABEL) == "broker"
        ]

    def _deployment_of(self, pod: Resource) -> str | None:
        pool = (pod["metadata"].get("labels") or {}).get(POOL_LABEL)
        for deployment in self._deployments():
            if (deployment["metadata"].get("labels") or {}).get(POOL_LABEL) == pool:
                return key_of(deployment)[1]
        return None

    # ---- termination of brokers

    def termination_proof(self, incarnation: str, reporting: bool = False) -> TerminationProof | None:
        return self._termination_tracker.proof(incarnation, reporting)

    def is_current_incarnation(self, broker: str, incarnation: str) -> bool | None:
        start, pod = parse_incarnation(incarnation), self._cache.pods.get((self._settings.home, broker))
        if start is None or pod is None or pod["metadata"]["uid"] != start.pod:
            return None  # the cache may be stale
        return True


async def _parsed(topic: Resource) -> TopicManifest:
    """Raises SpecRejected. The checks of 400 columns take a part of a second, in which the leader has to go on."""
    return (await asyncio.to_thread(parse_api_resource, topic))[0]


def _to_smq_error(error: KubeError, what: str, instead: str) -> SmqError:
    """The error that the admin API returns."""
    if isinstance(error, InvalidResource):
        return SpecRejected(error.message)
    if isinstance(error, Forbidden):
        return InvalidRequest(f"the operator may not change {what} ({error.message}): use {instead}")
    return Unavailable(f"{what} was not changed: {error.message}")
