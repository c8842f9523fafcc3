"""Reads and writes the Lease that core's ``LeaseCandidate`` decides on, and labels the Pod of its holder.

The Service selects the operator Pod with the label ``seaweedmq.io/leader``. The holder sets it on its own Pod and
removes it from every other one, because a paused process cannot remove its own.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Callable, Sequence

import structlog

from smq_core.leader_election import LeaseAction, LeaseCandidate, LeaseRecord
from smq_core.model.entities import SECOND
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import ApiServerUnreachable, KubeError, NotFound, ResourceConflict
from smq_operator.kube.client.kinds import LEASES, PODS, Resource
from smq_operator.kube.election.peers import PeerDialer, leading_peer, open_channel
from smq_operator.kube.informer.cache import ResourceCache

log = structlog.get_logger(__name__)

LEADER_LABEL = "seaweedmq.io/leader"
ADDRESS_ANNOTATION = "seaweedmq.io/address"
POLL_INTERVAL_SECONDS = 0.2
CALL_TIMEOUT_SECONDS = 5.0
RETRY_DELAY_SECONDS = 1.0


class LeaseElector:
    """One candidate for the Lease ``name``. ``pod`` is its own Pod's name; empty outside of a cluster.

    ``on_reconnect`` is called when the API server answers again after it did not.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        cache: ResourceCache,
        clock: Callable[[], int],
        namespace: str,
        name: str,
        pod: str,
        address: str,
        on_reconnect: Callable[[], None],
        dials: Sequence[PeerDialer] = (open_channel,),
    ) -> None:
        self._dials = dials
        self._api = api
        self._cache = cache
        self._now = clock
        self._namespace, self._name, self._pod, self._address = namespace, name, pod, address
        self.candidate = LeaseCandidate(f"{pod or 'operator'}_{uuid.uuid4().hex[:12]}")
        self._on_reconnect = on_reconnect
        self._lease: Resource | None = None
        self._outage = self._problem = ""
        self._labeled_versions: dict[str, str] = {}
        """By Pod: the version at which its label was last set or removed."""
        self._last_label_error = ""
        self._successor = ""
        """The address of an operator that leads, though this one could not see it acquire the Lease."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Takes part until it is cancelled or loses the Lease. Calls ``changed`` after every step."""
        while not self.candidate.lost:
            try:
                async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                    await self._step()
                self._reconnected()
                await self._sync_leader_label()
            except ResourceConflict:
                self.candidate.refused()
            except (KubeError, TimeoutError) as error:
                self._failed(error)
                await self._find_leading_peer()
                await asyncio.sleep(RETRY_DELAY_SECONDS)
            changed()
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    @property
    def holder(self) -> str:
        """The address of the leader, if another process leads and its address is known; else empty."""
        if self._successor:
            return self._successor
        lease = self.candidate.lease
        if lease is None or lease.holder in ("", self.candidate.identity):
            return ""
        return lease.address

    @property
    def identity(self) -> str:
        """An id that only the operators of this Lease share; empty until the Lease is read."""
        uid = (self._lease or {}).get("metadata", {}).get("uid", "")
        return f"lease {uid}" if uid else ""

    @property
    def problem(self) -> str:
        """Why the Lease cannot be accessed; empty if it can."""
        return self._problem

    async def leave(self) -> None:
        """Releases the Lease, so that another operator acquires it at once."""
        if not self.candidate.leads or self._lease is None:
            return
        self.candidate.leads = False
        body = self._body("", self.candidate.duration)
        body["spec"]["leaseDurationSeconds"] = 1
        body["metadata"]["resourceVersion"] = self._lease["metadata"]["resourceVersion"]
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                await self._set_label(self._pod, None)
                await self._api.replace(LEASES, body)
            log.info("lease.released", lease=self._name)
        except (KubeError, TimeoutError) as error:
            log.warning("lease.release_failed", lease=self._name, message=str(error))

    # ---- one step

    async def _step(self) -> None:
        began = self._now()
        next_action = self.candidate.next_action(began)
        if next_action is LeaseAction.READ:
            found = await self._api.find(LEASES, self._name, self._namespace)
            self._lease = found
            self.candidate.observed(None if found is None else _lease_of(found), began)
        elif next_action in (LeaseAction.TAKE, LeaseAction.RENEW):
            was_leader = self.candidate.leads
            self._lease = await self._write()
            self.candidate.written(_lease_of(self._lease), began)
            if not was_leader:
                log.info("lease.acquired", lease=self._name, holder=self.candidate.identity, address=self._address)

    async def _write(self) -> Resource:
        body = self._body(self.candidate.identity, self.candidate.duration)
        if self._lease is None:
            return await self._api.create(LEASES, body)
        body["metadata"]["resourceVersion"] = self._lease["metadata"]["resourceVersion"]
        try:
            return await self._api.replace(LEASES, body)
        except NotFound as gone:
            raise ResourceConflict(gone.message) from gone

    def _body(self, holder: str, duration: int) -> Resource:
        old = (self._lease or {}).get("spec", {})
        taken = old.get("holderIdentity") != holder
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "annotations": {ADDRESS_ANNOTATION: self._address if holder else ""},
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": duration // SECOND,
                "acquireTime": now if taken else old.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": int(old.get("leaseTransitions") or 0) + (1 if taken and holder else 0),
            },
        }

    # ---- the label

    async def _sync_leader_label(self) -> None:
        """Sets the label on the leader's Pod and removes it from all others."""
        leads = self.candidate.leads
        for (namespace, name), pod in list(self._cache.pods.items()):
            mine = bool(self._pod) and name == self._pod
            if namespace != self._namespace or not (leads or mine):
                continue
            labeled, version = LEADER_LABEL in (pod["metadata"].get("labels") or {}), pod["metadata"]["resourceVersion"]
            if labeled is not (leads and mine) and self._labeled_versions.get(name) != version:
                self._labeled_versions[name] = version  # the next version shows the result
                await self._set_label(name, None if labeled else "true")

    async def _set_label(self, name: str, value: str | None) -> None:
        if not name:
            return
        try:
            await self._api.patch(PODS, name, self._namespace, {"metadata": {"labels": {LEADER_LABEL: value}}})
            log.info("leader.labeled" if value else "leader.unlabeled", pod=name)
        except NotFound:
            return
        except KubeError as error:
            self._labeled_versions.pop(name, None)
            if error.message != self._last_label_error:
                self._last_label_error = error.message
                log.error(
                    "leader.label_failed",
                    pod=name,
                    message=error.message,
                    advice="brokers and clients find the leader by this label",
                )

    # ---- outages of the API server

    async def _find_leading_peer(self) -> None:
        if self.candidate.lease_expired(self._now()):
            self._successor = await leading_peer(self._cache, self._pod, self._dials)
            if self._successor:
                self.candidate.renewal_rejected(self._now())

    def _reconnected(self) -> None:
        if self._outage:
            self._outage = self._problem = ""
            log.info("api_server.reconnected", lease=self._name)
            self._on_reconnect()

    def _failed(self, error: Exception) -> None:
        message = str(error) or f"the API server did not respond within {CALL_TIMEOUT_SECONDS} s"
        unreachable = isinstance(error, (ApiServerUnreachable, TimeoutError))
        if not unreachable:
            self.candidate.renewal_rejected(self._now())
        kind = "away" if unreachable else message
        self._problem = f"the Lease {self._name} cannot be accessed: {message}"
        if kind != self._outage:
            self._outage = kind
            advice = (
                "it is retried; a leader continues meanwhile" if unreachable else "grant the operator this permission"
            )
            log.warning("lease.access_failed", lease=self._name, message=message, advice=advice)


def _lease_of(found: Resource) -> LeaseRecord:
    spec, metadata = found.get("spec") or {}, found["metadata"]
    return LeaseRecord(
        metadata["resourceVersion"],
        spec.get("holderIdentity") or "",
        int(spec.get("leaseDurationSeconds") or 1) * SECOND,
        (metadata.get("annotations") or {}).get(ADDRESS_ANNOTATION, ""),
    )
