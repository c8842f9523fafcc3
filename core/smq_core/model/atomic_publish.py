"""Atomic publishes of one topic: who may publish for an app, which versions it has published, and what is unfinished.

The leader changes this document by compare-and-swap. A version is committed when it is in the document: from then on
all rows of its files come into the log, whatever crashes. The functions here compute the next document.

::

    idle --claim--> idle (another owner)
      │ ^
      │ └──────── complete ───────┐
      └──commit N+1──> publishing N+1 (claims are taken, the next version waits)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from smq_core.errors import InvalidRequest, Overloaded, PermissionDenied, ProducerFenced, Unavailable
from smq_core.model.entities import SECOND, Layout, Micros
from smq_core.model.interval_set import IntervalSet, contains
from smq_core.model.names import check_name

# Of one topic.
MAX_APPS = 1000
# Of one publish.
MAX_FILES = 1000
# Of all unfinished publishes of one topic together, so that the document stays below about 2 MiB.
MAX_UNFINISHED_FILES = 4000
# The idle time after which an app is forgotten when its place is needed for a new one.
APP_EXPIRY: Micros = 30 * 24 * 3600 * SECOND
# The same, for an app that publishes one version only. Longer than anybody repeats a call.
ONE_OFF_EXPIRY: Micros = 3600 * SECOND
# How many former owners of each app are known. One that was replaced before these may take the app back.
MAX_FORMER_OWNERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicFile:
    """An upload of a publish. ``upload`` is its name below ``_uploads/<topic uid>/``, ``bytes`` the size of the file.

    All its rows have timestamps ``timestamp_min .. timestamp_max``, in microseconds.
    """

    upload: str
    etag: str
    rows: int
    bytes: int
    timestamp_min: int
    timestamp_max: int
    schema_version: int = 0


@dataclass(frozen=True, slots=True)
class LayoutMark:
    """Which segments the rows of a publish may be in: those of the layout at the commit, and all that came later.

    A layout from before the commit will do: then the mark also has segments that were sealed before the commit.
    """

    version: int
    segments: tuple[int, ...]
    next_number: int

    @staticmethod
    def of(layout: Layout) -> LayoutMark:
        numbers = tuple(sorted(segment.number for segment in layout.segments))
        return LayoutMark(layout.version, numbers, layout.next_number)

    def has(self, number: int) -> bool:
        """Whether the segment of this number may have rows of the publish."""
        return number >= self.next_number or number in self.segments

    def has_any(self, numbers: IntervalSet) -> bool:
        """Whether any segment with one of these numbers may have rows of the publish."""
        return any(stop > self.next_number for _, stop in numbers) or any(contains(numbers, it) for it in self.segments)


@dataclass(frozen=True, slots=True)
class AtomicPublish:
    """A committed version whose rows are not all in the log yet."""

    version: int
    files: tuple[AtomicFile, ...]
    layout: LayoutMark
    committed_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """One app. ``owner`` is the token of the process that may publish. ``version`` is the last one that is committed.

    The rows are written as ``producer``, a random id, in an epoch for each publish. ``request`` identifies the call
    that committed the version, so that its repeat gets the same answer. ``unfinished`` is None once all rows are in the
    log. ``former_owners`` were replaced and do not come back, the newest last. ``one_off``: no further version is
    expected. ``identity`` is who claimed it first in a release with security.
    """

    app: str
    owner: str
    producer: str
    epoch: int = 0
    version: int | None = None
    request: str = ""
    unfinished: AtomicPublish | None = None
    active_at: Micros = 0
    former_owners: tuple[str, ...] = ()
    one_off: bool = False
    identity: str = ""


@dataclass(frozen=True, slots=True)
class AtomicPublishes:
    """The document. ``writer`` is unique for each write."""

    apps: tuple[AppState, ...] = field(default=())
    writer: str = ""

    def app(self, name: str) -> AppState | None:
        return next((it for it in self.apps if it.app == name), None)

    @property
    def unfinished(self) -> list[AppState]:
        return [it for it in self.apps if it.unfinished is not None]

    def _with(self, state: AppState) -> AtomicPublishes:
        if self.app(state.app) is None:
            return replace(self, apps=(*self.apps, state))
        return replace(self, apps=tuple(state if it.app == state.app else it for it in self.apps))


class CommitResult(StrEnum):
    """What became of a request to publish a version."""

    COMMITTED = "committed"
    ALREADY_PUBLISHED = "already published"


def claim_app(
    document: AtomicPublishes,
    app: str,
    owner: str,
    producer: str,
    now: Micros,
    *,
    one_off: bool = False,
    identity: str = "",
    may_take_over: bool = True,
) -> AtomicPublishes:
    """The document in which this owner may publish for the app. It is the same one if it may already.

    ``producer`` is the id that a new app gets, and ``one_off`` whether it publishes one version only. ``identity`` is
    the caller's in a release with security; the apps of others are its own only if it ``may_take_over``. Raises
    InvalidRequest, ProducerFenced for an owner that was replaced, PermissionDenied, and Overloaded if the topic has too
    many apps.
    """
    check_name("an app's name", app)
    check_name("an owner's name", owner)
    state = document.app(app)
    if state is not None and state.identity not in ("", identity) and not may_take_over:
        raise PermissionDenied(
            f"app {app!r} is one of {state.identity}: use another name for the app of {identity}, or let somebody who "
            "administers the topic take it over",
            identity=identity,
        )
    if state is not None and state.owner == owner:
        return document
    if state is not None:
        if owner in state.former_owners:
            raise _fenced(app, "This owner had it before and was replaced")
        former = (*state.former_owners, state.owner)[-MAX_FORMER_OWNERS:]
        known = identity or state.identity
        return document._with(replace(state, owner=owner, active_at=now, former_owners=former, identity=known))
    if len(document.apps) >= MAX_APPS:
        document = _without_expired(document, now)
    made = AppState(app=app, owner=owner, producer=producer, active_at=now, one_off=one_off, identity=identity)
    return document._with(made)


def commit_version(
    document: AtomicPublishes,
    app: str,
    owner: str,
    version: int,
    request: str,
    files: Sequence[AtomicFile],
    layout: LayoutMark,
    now: Micros,
) -> tuple[AtomicPublishes, CommitResult]:
    """The document with this version. It is the same one if the version, or a later one, is committed already.

    ``layout`` must have been read after the document. Raises InvalidRequest, ProducerFenced if another owner has
    claimed the app, Unavailable while the version before is unfinished, and Overloaded.
    """
    state = document.app(app)
    if version < 0:
        raise InvalidRequest(f"a version is 0 or more, not {version}")
    if state is not None and (version, request) == (state.version, state.request):
        return document, CommitResult.COMMITTED
    if state is None or state.owner != owner:
        is_known = state is not None and state.version is not None and version <= state.version
        outcome = (
            f"Version {version} may have been published, because the app's last version is {state.version}"
            if is_known and state is not None
            else f"This call did not publish version {version}"
        )
        raise _fenced(app, outcome)
    if state.version is not None and version <= state.version:
        return document, CommitResult.ALREADY_PUBLISHED
    if state.unfinished is not None:
        raise Unavailable(
            f"version {state.unfinished.version} of app {app!r} is not in all segments yet, and version {version} "
            "follows it: try again"
        )
    _check_files(document, files)
    done = replace(state, epoch=state.epoch + 1, version=version, request=request, active_at=now)
    publish = AtomicPublish(version, tuple(files), layout, now) if files else None
    return document._with(replace(done, unfinished=publish)), CommitResult.COMMITTED


def complete_version(document: AtomicPublishes, app: str, epoch: int, now: Micros) -> AtomicPublishes:
    """The document after all rows of the publish of this epoch are in the log; the same one if it knew that."""
    state = document.app(app)
    if state is None or state.unfinished is None or state.epoch != epoch:
        return document
    return document._with(replace(state, unfinished=None, active_at=now))


def _fenced(app: str, outcome: str) -> ProducerFenced:
    return ProducerFenced(
        f"another owner publishes for app {app!r} now. {outcome}. If this process should go on, open a new client: its "
        "first publish takes the app over"
    )


def _check_files(document: AtomicPublishes, files: Sequence[AtomicFile]) -> None:
    if len(files) > MAX_FILES:
        raise InvalidRequest(
            f"one publish has at most {MAX_FILES} files, not {len(files)}: write larger files, or several versions"
        )
    names = [file.upload for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"the upload {twice!r} is in the publish twice")
    unfinished = sum(len(it.unfinished.files) for it in document.unfinished if it.unfinished is not None)
    if unfinished + len(files) > MAX_UNFINISHED_FILES:
        raise Overloaded(
            f"{unfinished} files of unfinished publishes are waiting, at most {MAX_UNFINISHED_FILES} may: try again "
            "later"
        )


def _without_expired(document: AtomicPublishes, now: Micros) -> AtomicPublishes:
    """The document without the app that was idle longest. Raises Overloaded if all of them are in use."""
    idle = [
        it
        for it in document.apps
        if it.unfinished is None and now - it.active_at > (ONE_OFF_EXPIRY if it.one_off else APP_EXPIRY)
    ]
    if not idle:
        raise Overloaded(
            f"the topic has {len(document.apps)} apps, which is the limit, and all have published in the last 30 days "
            "(in the last hour, if they publish only once): use one of them, or try again later"
        )
    oldest = min(idle, key=lambda it: it.active_at)
    return replace(document, apps=tuple(it for it in document.apps if it is not oldest))
