"""Checks of the cluster before this operator leads: permissions, CRD schemas, conflicting releases.

/readyz reports findings that prevent it from leading. The log and Events of its Pod report every finding once when it
appears and once when it is resolved. The checks are repeated, so that a fix needs no restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import Forbidden, KubeError
from smq_operator.kube.client.events import EventRecorder, KubeEvent, ObjectReference
from smq_operator.kube.client.kinds import CRDS, DEPLOYMENTS, PODS, SEGMENTS, TOPICS, Resource
from smq_operator.kube.preflight import crd_schemas, rbac
from smq_operator.kube.preflight.conflicting_releases import OPERATOR_SELECTOR, find_conflicting_release
from smq_operator.kube.settings import KubeSettings

log = structlog.get_logger(__name__)

CHECK_INTERVAL_SECONDS = 30.0
BLOCKED_CHECK_INTERVAL_SECONDS = 3.0
MAX_LISTED = 6
# Seconds between two readiness checks. A reason that is the same twice is reported.
READINESS_POLL_SECONDS = 3.0
# The parts of a message that differ although the reason is the same: random names and durations.
_RANDOM = re.compile(r"[0-9a-f]{16,}|[0-9.]+ ?[nµm]?s\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """``blocks``: the operator cannot lead until it is resolved. ``also_about``: a second object of its Event."""

    reason: str
    message: str
    blocks: bool = False
    also_about: ObjectReference | None = None


class PreflightChecks:
    """See the module's docstring."""

    def __init__(self, api: KubeApi, kube: KubeSettings, events: EventRecorder) -> None:
        self._api = api
        self._kube = kube
        self._events = events
        self._last_findings: dict[str, Finding] = {}

    async def wait_until_passed(self, on_blocked: Callable[[str], None]) -> None:
        """Returns when nothing prevents this operator from leading. Calls ``on_blocked`` with what does."""
        while blocking := [finding for finding in await self.check() if finding.blocks]:
            on_blocked("; ".join(finding.message for finding in blocking))
            await asyncio.sleep(BLOCKED_CHECK_INTERVAL_SECONDS)

    async def run(self) -> None:
        """Repeats the checks until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.check()

    async def report_readiness(self, why_not_ready: Callable[[], str]) -> None:
        """Records Events if the operator stays not ready, for example because the filer denies access."""
        last_reported = before = ""
        while True:
            await asyncio.sleep(READINESS_POLL_SECONDS)
            why = why_not_ready()
            now = _RANDOM.sub("", why)
            if now and now == before and now != last_reported:
                last_reported = now
                await self._event("NotReady", why, warning=True)
            before = now

    async def check(self) -> list[Finding]:
        """Runs all checks once and reports what has changed."""
        try:
            found = [
                *await self._check_rbac(),
                *await self._check_crd_schemas(),
                *await self._check_conflicting_releases(),
            ]
        except KubeError as error:
            log.warning("preflight.failed", message=error.message)
            return list(self._last_findings.values())
        now = {finding.reason: finding for finding in found}
        for reason, finding in now.items():
            if self._last_findings.get(reason) != finding:
                log.error("preflight.check_failed", reason=reason, message=finding.message)
                await self._event(reason, finding.message, warning=True)
                if finding.also_about is not None:
                    self._events.record(KubeEvent(finding.also_about, reason, finding.message, warning=True))
        for reason in [reason for reason in self._last_findings if reason not in now]:
            log.info("preflight.check_passed", reason=reason)
            await self._event(reason, "resolved", warning=False)
        self._last_findings = now
        return found

    async def _check_rbac(self) -> list[Finding]:
        lacking = await rbac.missing(self._api, self._kube)
        found = []
        for essential, reason, meaning in (
            (True, "PermissionsMissing", "cannot lead without the permission"),
            (False, "PermissionsIncomplete", "leads, but cannot do all of its work without the permission"),
        ):
            those = [str(right) for right in lacking if right.essential is essential]
            if those:
                shown = "; ".join(those[:MAX_LISTED]) + (
                    f"; and {len(those) - MAX_LISTED} more" if len(those) > MAX_LISTED else ""
                )
                message = f"the operator {meaning} to: {shown}. Grant it by helm upgrade, or in its Role"
                found.append(Finding(reason, message, essential))
        return found

    async def _check_crd_schemas(self) -> list[Finding]:
        try:
            published = await self._api.call("GET", crd_schemas.OPENAPI_PATH, operation="get the published schemas")
        except Forbidden:
            return []
        names = {TOPICS.kind: TOPICS.plural, SEGMENTS.kind: SEGMENTS.plural}
        return [
            Finding(
                f"{kind}CRDOutdated",
                f"the {CRDS.kind} {names[kind]}.{TOPICS.group} is older than this operator: it lacks "
                f"{', '.join(paths[:MAX_LISTED])}, so the API server silently drops these fields. Run helm upgrade "
                "with crds.install=true, or kubectl apply --server-side -f crds/",
            )
            for kind, paths in crd_schemas.missing(published).items()
        ]

    async def _check_conflicting_releases(self) -> list[Finding]:
        """Operators of other releases that would lead the same Topics."""
        conflict = find_conflicting_release(self._kube, await self._operators())
        if conflict is None:
            return []
        also_about = ObjectReference.of(DEPLOYMENTS, conflict.deployment)
        return [
            Finding(
                "ConflictingReleases",
                conflict.message,
                not conflict.own_is_older,
                also_about if also_about.namespace != self._kube.home else None,
            )
        ]

    async def _operators(self) -> list[Resource]:
        """The operator Deployments.

        They are those of all Namespaces if this operator leads all and may list them, else those of its Namespace.
        """
        if not self._kube.namespace:
            with contextlib.suppress(Forbidden):  # another check reports the missing permission
                return (await self._api.list(DEPLOYMENTS, "", OPERATOR_SELECTOR))[0]
        return (await self._api.list(DEPLOYMENTS, self._kube.home, OPERATOR_SELECTOR))[0]

    async def _event(self, reason: str, message: str, *, warning: bool) -> None:
        """Records an Event of this operator's Pod, which the cache may not have yet."""
        try:
            pod = await self._api.find(PODS, self._kube.pod, self._kube.home) if self._kube.pod else None
        except KubeError as error:
            log.debug("event.skipped", message=error.message)
            return
        if pod is not None:
            self._events.record(KubeEvent(ObjectReference.of(PODS, pod), reason, message, warning))
