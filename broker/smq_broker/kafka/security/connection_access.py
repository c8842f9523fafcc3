"""The checks of each request of a secure release: before its handler, and for each topic and group in it.

This is the only place where they are made. ``kafka_calls`` says which right an API needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.access.callers import StreamQuota
from smq_broker.access.denials import Denials
from smq_broker.kafka.protocol.entities import api_name
from smq_broker.kafka.protocol.messages import ClientConnection, ProtocolError
from smq_broker.kafka.protocol.sessions import OPEN_ACCESS, OpenAccess, RequestAccess, Session
from smq_broker.kafka.security.caller_rights import CallerRights
from smq_core.access.kafka_calls import KAFKA_CALLS, KafkaCall
from smq_core.access.rights import Right, group_rights, topic_right, topic_verb
from smq_core.errors import PermissionDenied, SmqError, Unavailable
from smq_core.kafka_topics.names import is_kafka_name, resource_name
from smq_core.model.names import DEFAULT_NAMESPACE, bounded

# A token has eight thousand characters at most.
MAX_FRAME_BYTES_BEFORE_LOGIN = 16 * 1024
# How long a client may take to log in.
LOGIN_SECONDS = 30.0
# How many topics are looked up at once for a client that lists all.
LISTED_AT_ONCE = 16
# Of a name as a client gives it, in what is logged.
MAX_NAME_CHARACTERS = 250


# Returns the topic (``namespace/name``) that Kafka's clients call so, or would. None if no topic can have that name.
FullName: TypeAlias = Callable[[str], Awaitable[str | None]]


class LoginRequired(OpenAccess):
    """See ``ConnectionAccess``. Whoever has logged in may send any request."""

    def admit(self, connection: ClientConnection, api_key: int) -> RequestAccess:
        call = KAFKA_CALLS.get(api_key)
        if call is None:
            raise ProtocolError("unknown_api", f"nobody may use API {api_key}")
        if call.before_login:
            return OPEN_ACCESS
        session = connection.session
        if session is None:
            raise ProtocolError(
                "no_login",
                f"a client uses API {api_key} and has not logged in: set security.protocol=SASL_SSL and a mechanism",
            )
        if reason := self._end_reason(session, asyncio.get_running_loop().time()):
            raise ProtocolError("session", reason)
        return self._of_session(session, api_key, call)

    def _of_session(self, session: Session, api_key: int, call: KafkaCall) -> RequestAccess:
        return OPEN_ACCESS

    def end_reason(self, connection: ClientConnection, now: float) -> str | None:
        session = connection.session
        if session is not None:
            return self._end_reason(session, now)
        return "the client has not logged in" if now - connection.made_at > LOGIN_SECONDS else None

    def max_frame_bytes(self, connection: ClientConnection) -> int | None:
        return MAX_FRAME_BYTES_BEFORE_LOGIN if connection.session is None else None

    @staticmethod
    def _end_reason(session: Session, now: float) -> str | None:
        if now > session.ends_at:
            return f"the token of {session.identity} has expired, and it has not logged in again"
        return session.ended_because or None


class SecureConnections(LoginRequired):
    """Whoever has logged in may do what it has rights to."""

    def __init__(self, rights: CallerRights, denials: Denials, full_name: FullName) -> None:
        self._rights = rights
        self._denials = denials
        self._full_name = full_name

    def _of_session(self, session: Session, api_key: int, call: KafkaCall) -> RequestAccess:
        return SecureRequest(
            session,
            name=api_name(api_key),
            call=call,
            rights=self._rights,
            denials=self._denials,
            full_name=self._full_name,
        )

    def left(self, connection: ClientConnection) -> None:
        if connection.session is not None:
            for stream in connection.session.streams.values():
                stream.close()


class SecureRequest:
    """See ``RequestAccess``. ``name`` is that of the API."""

    def __init__(
        self,
        session: Session,
        *,
        name: str,
        call: KafkaCall,
        rights: CallerRights,
        denials: Denials,
        full_name: FullName,
    ) -> None:
        self._session = session
        self._name = name
        self._call = call
        self._rights = rights
        self._denials = denials
        self._full_name = full_name
        self._allowed: dict[str, str] = {}
        """The topics that the client may use, by the name that it gives them."""

    async def topic(self, name: str) -> ErrorCode:
        try:
            full = await self._full_name(name) if self._call.verb != "create" else _created(name)
            if full is None:
                return self._denied(f"use a topic of the name {bounded(name, MAX_NAME_CHARACTERS)}", _TOPIC_DENIED)
            if self._call.verb:
                allowed = await self._rights.may(self._session, self._call.verb, full)
                access = str(topic_verb(self._call.verb, full))
            else:
                allowed = await self._rights.has(self._session, full, self._call.rights)
                access = _either(self._call.rights, full)
        except Unavailable:
            return ErrorCode.kafka_storage_error  # clients repeat after it
        except SmqError as error:
            return self._denied(f"use topic {_shown(name)}: {error.message}", _TOPIC_DENIED)
        if not allowed:
            return self._denied(access, _TOPIC_DENIED)
        self._allowed[name] = full
        return ErrorCode.none

    async def visible(self, topics: Iterable[str]) -> Collection[str]:
        """Those of namespaces which the client may list, and those to which it has a right."""
        by_namespace: dict[str, list[str]] = {}
        for topic in topics:
            by_namespace.setdefault(topic.partition("/")[0], []).append(topic)
        found: set[str] = set()
        for namespace, names in by_namespace.items():
            if await self._holds(self._rights.may(self._session, "list", f"{namespace}/")):
                found.update(names)
                continue
            for start in range(0, len(names), LISTED_AT_ONCE):
                some = names[start : start + LISTED_AT_ONCE]
                held = await asyncio.gather(
                    *(self._holds(self._rights.has(self._session, it, tuple(Right))) for it in some)
                )
                found.update(it for it, is_held in zip(some, held, strict=True) if is_held)
        return found

    async def group(
        self, group: str, topics: Iterable[str], named: Iterable[str] = (), *, listed: bool = False
    ) -> ErrorCode:
        """A group belongs to the namespaces of its topics; one without topics to that of topics without a prefix."""
        try:
            full = {*topics, *filter(None, [await self._full_name(name) for name in named])}
        except Unavailable:
            return ErrorCode.coordinator_not_available
        namespaces = sorted({topic.partition("/")[0] for topic in full} or {DEFAULT_NAMESPACE})
        for namespace in namespaces:
            try:
                allowed = await self._rights.may(self._session, Right.CONSUME.value, f"{namespace}/", group)
            except Unavailable:
                return ErrorCode.coordinator_not_available
            except SmqError as error:
                return self._denied(f"use group {_shown(group)}: {error.message}", _GROUP_DENIED)
            if not allowed and listed:
                return _GROUP_DENIED
            if not allowed:
                access = str(group_rights(f"{namespace}/", _shown(group))[0])
                return self._denied(access, _GROUP_DENIED)
        return ErrorCode.none

    def stream(self, name: str) -> StreamQuota:
        (right,) = self._call.rights
        return self._rights.stream(self._session, self._allowed[name], right)

    @staticmethod
    async def _holds(answer: Awaitable[bool]) -> bool:
        """What is not known now is not shown."""
        try:
            return await answer
        except SmqError:
            return False

    def _denied(self, access: str, code: ErrorCode) -> ErrorCode:
        identity = self._session.identity
        message = f"{identity} may not {access}"
        error = PermissionDenied(message, identity=identity, access=access)
        self._denials.record(f"client {identity}", f"Kafka {self._name}", error)
        return code


_TOPIC_DENIED = ErrorCode.topic_authorization_failed
_GROUP_DENIED = ErrorCode.group_authorization_failed


def _created(name: str) -> str | None:
    """The topic that a client creates by this name."""
    return f"{DEFAULT_NAMESPACE}/{resource_name(name)}" if is_kafka_name(name) else None


def _either(rights: Sequence[Right], topic: str) -> str:
    return " or ".join(str(topic_right(right, topic)) for right in rights)


def _shown(name: str) -> str:
    return bounded(name, MAX_NAME_CHARACTERS)
