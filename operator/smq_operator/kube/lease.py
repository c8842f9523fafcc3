"""The Lease that core's Candidate decides on, read and written through the API, and the label that follows it.

The Service selects the operator Pod with the label ``seaweedmq.io/leader``. The holder gives it to its own Pod and
takes it from every other, so that one that stands still, and cannot do it itself, is not asked either.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Callable

import structlog

from smq_core.election import Act, Candidate, Lease
from smq_core.model import SECOND
from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.errors import Conflict, KubeError, NotFound, Unreachable
from smq_operator.kube.kinds import LEASES, PODS, Resource
from smq_operator.kube.peers import leading_peer

log = structlog.get_logger()

LEADER = "seaweedmq.io/leader"
ADDRESS = "seaweedmq.io/address"
LOOK_EVERY = 0.2
CALL_WITHIN = 5.0
AFTER_FAILURE = 1.0


class Seat:
    """One candidate for the Lease ``name``. ``pod`` is its own Pod's name; empty outside of a cluster."""

    def __init__(
        self, api: KubeApi, cache: Cache, clock: Callable[[], int], namespace: str, name: str, pod: str, address: str
    ) -> None:
        self._api = api
        self._cache = cache
        self._now = clock
        self._namespace, self._name, self._pod, self._address = namespace, name, pod, address
        self.candidate = Candidate(f"{pod or 'operator'}_{uuid.uuid4().hex[:12]}")
        self.back: Callable[[], None] = lambda: None
        """Called when the API server answers again after it did not."""
        self._lease: Resource | None = None
        self._away = self._trouble = ""
        self._marked: dict[str, str] = {}
        """By Pod: the version at which it was last marked, or unmarked."""
        self._unmarked = ""
        self._successor = ""
        """An operator that says it leads, though this one could not see it take the Lease."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Takes part until it is cancelled, or has led and lost; ``changed`` is called after every look."""
        while not self.candidate.lost:
            try:
                async with asyncio.timeout(CALL_WITHIN):
                    await self._step()
                self._heard()
                await self._mark()
            except Conflict:
                self.candidate.refused()
            except (KubeError, TimeoutError) as error:
                self._failed(error)
                await self._ask_peers()
                await asyncio.sleep(AFTER_FAILURE)
            changed()
            await asyncio.sleep(LOOK_EVERY)

    @property
    def holder(self) -> str:
        """Where the leader is reached, as far as is known; empty when there is none."""
        if self._successor:
            return self._successor
        lease = self.candidate.lease
        if lease is None or lease.holder in ("", self.candidate.me):
            return ""
        return lease.address

    @property
    def identity(self) -> str:
        """What all operators that take part in this Lease have in common, and no others; empty while nobody knows."""
        uid = (self._lease or {}).get("metadata", {}).get("uid", "")
        return f"lease {uid}" if uid else ""

    @property
    def trouble(self) -> str:
        """Why the Lease cannot be had; empty when it can."""
        return self._trouble

    async def leave(self) -> None:
        """Gives the Lease back, so that another takes it at once."""
        if not self.candidate.leads or self._lease is None:
            return
        self.candidate.leads = False
        body = self._body("", self.candidate.duration)
        body["spec"]["leaseDurationSeconds"] = 1
        body["metadata"]["resourceVersion"] = self._lease["metadata"]["resourceVersion"]
        try:
            async with asyncio.timeout(CALL_WITHIN):
                await self._label(self._pod, None)
                await self._api.replace(LEASES, body)
            log.info("lease.released", lease=self._name)
        except (KubeError, TimeoutError) as error:
            log.warning("lease.not.released", lease=self._name, message=str(error))

    # ---- one look

    async def _step(self) -> None:
        began = self._now()
        act = self.candidate.act(began)
        if act is Act.READ:
            found = await self._api.find(LEASES, self._name, self._namespace)
            self._lease = found
            self.candidate.seen(None if found is None else _lease_of(found), began)
        elif act in (Act.TAKE, Act.RENEW):
            led = self.candidate.leads
            self._lease = await self._write()
            self.candidate.written(_lease_of(self._lease), began)
            if not led:
                log.info("lease.taken", lease=self._name, holder=self.candidate.me, address=self._address)

    async def _write(self) -> Resource:
        body = self._body(self.candidate.me, self.candidate.duration)
        if self._lease is None:
            return await self._api.create(LEASES, body)
        body["metadata"]["resourceVersion"] = self._lease["metadata"]["resourceVersion"]
        try:
            return await self._api.replace(LEASES, body)
        except NotFound as gone:
            raise Conflict(gone.message) from gone

    def _body(self, holder: str, duration: int) -> Resource:
        old = (self._lease or {}).get("spec", {})
        taken = old.get("holderIdentity") != holder
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": LEASES.api,
            "kind": LEASES.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "annotations": {ADDRESS: self._address if holder else ""},
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

    async def _mark(self) -> None:
        """Whoever leads is marked, and nobody else."""
        leads = self.candidate.leads
        for (namespace, name), pod in list(self._cache.pods.items()):
            mine = bool(self._pod) and name == self._pod
            if namespace != self._namespace or not (leads or mine):
                continue
            marked, version = LEADER in (pod["metadata"].get("labels") or {}), pod["metadata"]["resourceVersion"]
            if marked is not (leads and mine) and self._marked.get(name) != version:
                self._marked[name] = version  # what comes of it is seen in the next version
                await self._label(name, None if marked else "true")

    async def _label(self, name: str, value: str | None) -> None:
        if not name:
            return
        try:
            await self._api.patch(PODS, name, self._namespace, {"metadata": {"labels": {LEADER: value}}})
            log.info("leader.marked" if value else "leader.unmarked", pod=name)
        except NotFound:
            return
        except KubeError as error:
            self._marked.pop(name, None)
            if error.message != self._unmarked:
                self._unmarked = error.message
                log.error(
                    "leader.not.marked",
                    pod=name,
                    message=error.message,
                    advice="brokers and clients find the leader by this label",
                )

    # ---- the API server comes and goes

    async def _ask_peers(self) -> None:
        if self.candidate.overdue(self._now()):
            self._successor = await leading_peer(self._cache, self._pod)
            if self._successor:
                self.candidate.doubted(self._now())

    def _heard(self) -> None:
        if self._away:
            self._away = self._trouble = ""
            log.info("kube.answers.again", lease=self._name)
            self.back()

    def _failed(self, error: Exception) -> None:
        message = str(error) or f"the API server did not answer within {CALL_WITHIN} s"
        unreachable = isinstance(error, (Unreachable, TimeoutError))
        if not unreachable:
            self.candidate.doubted(self._now())
        kind = "away" if unreachable else message
        self._trouble = f"the Lease {self._name} cannot be had: {message}"
        if kind != self._away:
            self._away = kind
            advice = "it is tried again; a leader leads on meanwhile" if unreachable else "give the operator that right"
            log.warning("lease.unreachable", lease=self._name, message=message, advice=advice)


def _lease_of(found: Resource) -> Lease:
    spec, metadata = found.get("spec") or {}, found["metadata"]
    return Lease(
        metadata["resourceVersion"],
        spec.get("holderIdentity") or "",
        int(spec.get("leaseDurationSeconds") or 1) * SECOND,
        (metadata.get("annotations") or {}).get(ADDRESS, ""),
    )
