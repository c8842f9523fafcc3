"""What must be right in the cluster before this operator can lead well: rights, definitions, no other release.

What keeps it from leading is said at /readyz; everything is said in the log and by Events about its Pod, once,
and again when it is over. It is looked at now and then, so nothing need be restarted when it was put right.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from smq_operator.kube import definitions, rights
from smq_operator.kube.api import KubeApi
from smq_operator.kube.errors import Forbidden, KubeError
from smq_operator.kube.events import About, EventWriter, Happened
from smq_operator.kube.kinds import CRDS, DEPLOYMENTS, PODS, SEGMENTS, TOPICS, Resource
from smq_operator.kube.rivals import SELECTOR, rival_of
from smq_operator.kube.settings import KubeSettings

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
    """``blocks``: the operator cannot lead while it is so. ``also``: an Event is written about that too."""

    reason: str
    message: str
    blocks: bool = False
    also: About | None = None


class Checks:
    """See the module's docstring."""

    def __init__(self, api: KubeApi, kube: KubeSettings, events: EventWriter) -> None:
        self._api = api
        self._kube = kube
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
                await self._event("NotReady", why, warning=True)
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
                await self._event(reason, finding.message, warning=True)
                if finding.also is not None:
                    self._events.tell(Happened(finding.also, reason, finding.message, warning=True))
        for reason in [reason for reason in self._told if reason not in now]:
            log.info("check.passed", reason=reason)
            await self._event(reason, "this is over", warning=False)
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
        """Operators of other releases that would lead the same Topics."""
        rival = rival_of(self._kube, await self._operators())
        if rival is None:
            return []
        also = About.of(DEPLOYMENTS, rival.deployment)
        return [
            Finding("TwoReleases", rival.message, not rival.first, also if also.namespace != self._kube.home else None)
        ]

    async def _operators(self) -> list[Resource]:
        """Deployments of operators: in all Namespaces if Topics of all are led and the right is there, else at home."""
        if not self._kube.namespace:
            with contextlib.suppress(Forbidden):  # the right that is missing is told by another check
                return (await self._api.list(DEPLOYMENTS, "", SELECTOR))[0]
        return (await self._api.list(DEPLOYMENTS, self._kube.home, SELECTOR))[0]

    async def _event(self, reason: str, message: str, *, warning: bool) -> None:
        """About this operator's Pod, of which the cache may not know yet."""
        try:
            pod = await self._api.find(PODS, self._kube.pod, self._kube.home) if self._kube.pod else None
        except KubeError as error:
            log.debug("event.not.written", message=error.message)
            return
        if pod is not None:
            self._events.tell(Happened(About.of(PODS, pod), reason, message, warning))
