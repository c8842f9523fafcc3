"""What must be right in the cluster before this operator can lead well: rights, definitions, no other release.

What keeps it from leading is said at /readyz; everything is said in the log and by Events about its Pod, once,
and again when it is over. It is looked at now and then, so nothing need be restarted when it was put right.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from smq_operator.kube import definitions, rights
from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.errors import Forbidden, KubeError
from smq_operator.kube.events import About, EventWriter, Happened
from smq_operator.kube.kinds import CRDS, DEPLOYMENTS, PODS, SEGMENTS, TOPICS, Resource
from smq_operator.kube.settings import COMPONENT, INSTANCE, NAME, KubeSettings

log = structlog.get_logger()

AGAIN_EVERY = 30.0
BLOCKED_AGAIN_EVERY = 3.0
SHOWN = 6
STAYS = 3.0
"""Seconds between two looks at why the operator is not ready: what is the same twice is told."""
_RANDOM = re.compile(r"[0-9a-f]{16,}|[0-9.]+ ?[nµm]?s\b")
"""What differs from one message to the next though nothing else does: names made at random, durations."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``blocks``: the operator cannot lead while it is so."""

    reason: str
    message: str
    blocks: bool = False


class Checks:
    """See the module's docstring."""

    def __init__(self, api: KubeApi, kube: KubeSettings, cache: Cache, events: EventWriter) -> None:
        self._api = api
        self._kube = kube
        self._cache = cache
        self._events = events
        self._told: dict[str, Finding] = {}

    async def passed(self, say: Callable[[str], None]) -> None:
        """Returns when nothing keeps this operator from leading; ``say`` is told what does."""
        while blocking := [finding for finding in await self.look() if finding.blocks]:
            say("; ".join(finding.message for finding in blocking))
            await asyncio.sleep(BLOCKED_AGAIN_EVERY)

    async def keep(self) -> None:
        """Looks now and then until it is cancelled."""
        while True:
            await asyncio.sleep(AGAIN_EVERY)
            await self.look()

    async def tell(self, why_not_ready: Callable[[], str]) -> None:
        """Events for what keeps the operator from being ready for a while, such as a filer that refuses it."""
        told = before = ""
        while True:
            await asyncio.sleep(STAYS)
            why = why_not_ready()
            now = _RANDOM.sub("", why)
            if now and now == before and now != told:
                told = now
                try:
                    pod = await self._api.find(PODS, self._kube.pod, self._kube.home) if self._kube.pod else None
                except KubeError as error:
                    log.debug("event.not.written", message=error.message)
                    pod = None
                if pod is not None:
                    self._events.tell(Happened(About.of(PODS, pod), "NotReady", why, warning=True))
            before = now

    async def look(self) -> list[Finding]:
        """Looks once and tells what is new."""
        try:
            found = [*await self._rights(), *await self._definitions(), *await self._rivals()]
        except KubeError as error:
            log.warning("checks.failed", message=error.message)
            return list(self._told.values())
        now = {finding.reason: finding for finding in found}
        for reason, finding in now.items():
            if self._told.get(reason) != finding:
                log.error("check.failed", reason=reason, message=finding.message)
                self._event(reason, finding.message, warning=True)
        for reason in [reason for reason in self._told if reason not in now]:
            log.info("check.passed", reason=reason)
            self._event(reason, "this is over", warning=False)
        self._told = now
        return found

    async def _rights(self) -> list[Finding]:
        lacking = await rights.missing(self._api, self._kube)
        found = []
        for essential, reason, meaning in (
            (True, "RightsMissing", "cannot lead without the right"),
            (False, "RightsMissingPartly", "leads, but cannot do all of its work without the right"),
        ):
            those = [str(right) for right in lacking if right.essential is essential]
            if those:
                shown = "; ".join(those[:SHOWN]) + (f"; and {len(those) - SHOWN} more" if len(those) > SHOWN else "")
                message = f"the operator {meaning} to: {shown}. Give it by helm upgrade, or in its Role"
                found.append(Finding(reason, message, essential))
        return found

    async def _definitions(self) -> list[Finding]:
        try:
            published = await self._api.call("GET", definitions.PUBLISHED, what="get the published schemas")
        except Forbidden:
            return []
        names = {TOPICS.kind: TOPICS.plural, SEGMENTS.kind: SEGMENTS.plural}
        return [
            Finding(
                f"{kind}DefinitionOld",
                f"the {CRDS.kind} {names[kind]}.{TOPICS.group} is older than this operator: it lacks "
                f"{', '.join(paths[:SHOWN])}, which is dropped from resources without a word. Run helm upgrade with "
                "crds.install=true, or kubectl apply --server-side -f crds/",
            )
            for kind, paths in definitions.missing(published).items()
        ]

    async def _rivals(self) -> list[Finding]:
        """Operators of other releases in this Namespace lead the same Topics: the oldest release has them."""
        selector = f"{NAME}=seaweedmq,{COMPONENT}=operator"
        found, _ = await self._api.list(DEPLOYMENTS, self._kube.home, selector)
        ours = [_age(each) for each in found if _release(each) == self._kube.release]
        others = [each for each in found if _release(each) != self._kube.release]
        if not others:
            return []
        oldest = min(others, key=_age)
        first = bool(ours) and min(ours) < _age(oldest)
        message = (
            f"release {_release(oldest)} in namespace {self._kube.home} would lead the same Topics as release "
            f"{self._kube.release}: "
            + ("this one was there first, and leads" if first else "it was there first, and leads")
            + ". Keep one release, or install the other in a Namespace of its own with operator.clusterWide=false"
        )
        return [Finding("TwoReleases", message, blocks=not first)]

    def _event(self, reason: str, message: str, *, warning: bool) -> None:
        pod = self._cache.pods.get((self._kube.home, self._kube.pod))
        if pod is not None:
            self._events.tell(Happened(About.of(PODS, pod), reason, message, warning))


def _release(deployment: Resource) -> str:
    release: str = deployment["metadata"]["labels"].get(INSTANCE, "")
    return release


def _age(deployment: Resource) -> tuple[str, str]:
    return deployment["metadata"]["creationTimestamp"], deployment["metadata"]["name"]
