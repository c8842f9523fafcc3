"""The authorities of the release, as this process knows them, and their rotation, which the leader carries out.

They are kept where the platform keeps secrets. Each operator reads them anew every few seconds, so another one can go
on with a rotation that the leader has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Protocol

import structlog

from smq_core.access.authority_rotation import CertificateLives, Rotation
from smq_core.errors import Conflict, InvalidRequest, SmqError
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.authority.certificate_authority import AuthorityKeys

log = structlog.get_logger(__name__)

# How often the store is read. A broker that is behind reports within a second.
STEP_SECONDS = 5.0


class AuthorityStore(Protocol):
    """Where the authorities are kept. Its methods raise Unavailable, and InvalidRequest for what is damaged."""

    given_by: str
    """What the user gives the authority by, for people; empty if the release makes its own ones."""

    async def load(self) -> AuthoritySet: ...

    async def save(self, authorities: AuthoritySet) -> None:
        """Replaces what was loaded last. Raises Conflict if another process has done so meanwhile."""
        ...

    async def publish(self, roots: bytes) -> None:
        """Puts the bundle where brokers and clients find it, if it is not there yet."""
        ...

    async def given(self) -> AuthorityKeys | None:
        """The authority that the user gives, as it is now; None if the release makes its own ones."""
        ...


class Authorities:
    """``known`` was loaded from ``store``. ``clock`` returns seconds since the Unix epoch. Use it on the event loop."""

    def __init__(
        self, store: AuthorityStore, known: AuthoritySet, lives: CertificateLives, clock: Callable[[], float]
    ) -> None:
        self.lives = lives
        self.known = known
        self.signing = known.signing()
        """Replaced as a whole, so any thread may read it."""
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()

    def waits_for(self, brokers_behind: Collection[str]) -> str:
        """See ``Rotation.waits_for``."""
        return self.known.rotation.waits_for(self._clock(), self.lives, brokers_behind)

    async def run(
        self,
        leads: Callable[[], bool],
        brokers_behind: Callable[[], Collection[str]],
        report: Callable[[str], None],
    ) -> None:
        """Follows what is stored, and changes it while this process leads. ``report`` takes each step's ``problem``."""
        while True:
            failure = ""
            try:
                await self.step(leads(), brokers_behind)
            except Conflict:
                log.info("authorities.changed_by_another_operator")
            except SmqError as error:
                failure = error.message
            report(self.problem(failure, brokers_behind()))
            await asyncio.sleep(STEP_SECONDS)

    def problem(self, failure: str, brokers_behind: Collection[str]) -> str:
        """Why certificates cannot be renewed, now or soon, for people; empty if they can.

        ``failure`` is that of the last step; empty if there was none.
        """
        signing, now = self.known.rotation.signing, self._clock()
        if not signing.is_late(now):
            return failure and f"the authority of the release cannot be kept up to date: {failure}"
        ends = datetime.fromtimestamp(signing.expires_at, UTC).isoformat(timespec="seconds")
        waits_for = self.waits_for(brokers_behind)
        if self.known.rotation.introduced is not None and waits_for:
            # Without the seconds that clients have left: a text that changes is another problem each time.
            why = f"the next one waits for {waits_for}" if brokers_behind else "the next one signs within minutes"
        elif failure:
            why = failure
        elif self._store.given_by:
            why = f"renew it in {self._store.given_by}"
        else:
            why = "introduce the next one by `smq auth rotate-ca`"
        return f"authority {signing.id} of the release expires at {ends}, and then nobody can connect: {why}"

    async def step(self, leads: bool, brokers_behind: Callable[[], Collection[str]]) -> None:
        """Reads what is stored, and takes the next step if this process leads. Raises as the store does."""
        async with self._lock:
            known = await self._store.load()
            self._take(known)
            if not leads:
                return
            now, failure, given = self._clock(), None, None
            try:
                given = await self._store.given()
            except SmqError as error:  # the rest does not need it
                failure = error
            if given is not None and not known.knows(given):
                known = known.introduce(given, now)
            elif not self._store.given_by and known.rotation.is_due(now):
                known = known.introduce_own(now, self.lives)
            await self._write(known.advance(now, self.lives, brokers_behind()))
            await self._store.publish(self.known.roots)
            if failure is not None:
                raise failure

    async def rotate(self) -> None:
        """Introduces the next authority now. Does nothing if one is introduced already.

        Raises InvalidRequest if the user gives the authority, Conflict, and as the store does.
        """
        if self._store.given_by:
            raise InvalidRequest(
                f"the authority of this release is given by {self._store.given_by}: renew it there, for example with "
                "`cmctl renew`. The release follows by itself"
            )
        async with self._lock:
            known = await self._store.load()
            self._take(known)
            if known.rotation.introduced is None:
                known = known.introduce_own(self._clock(), self.lives)
            await self._write(known)
            await self._store.publish(self.known.roots)

    async def _write(self, new: AuthoritySet) -> None:
        if new.id != self.known.id or new.rotation != self.known.rotation:
            await self._store.save(new)
            _log_changes(self.known.rotation, new.rotation)
            self._take(new)

    def _take(self, known: AuthoritySet) -> None:
        if known.id != self.known.id:
            self.signing = known.signing()
        self.known = known


def _log_changes(before: Rotation, now: Rotation) -> None:
    former, present = ({it.id: it.phase.value for it in found.authorities} for found in (before, now))
    for authority in former | present:
        if former.get(authority) != present.get(authority):
            log.info("authority.changed", authority=authority, phase=present.get(authority, "dropped"))


def recovered(known: AuthoritySet, given: AuthorityKeys | None, now: float, lives: CertificateLives) -> AuthoritySet:
    """With an authority that counts. Nobody trusts one that has expired, so it is replaced without waiting."""
    if now < known.rotation.signing.expires_at:
        return known
    if given is not None and not known.knows(given):
        known = known.introduce(given, now)
    elif given is None and known.rotation.is_due(now):
        known = known.introduce_own(now, lives)
    return known.advance(now, lives, ())
