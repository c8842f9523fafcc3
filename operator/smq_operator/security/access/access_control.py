"""Lets callers in, or not: who they are, what the call needs, and whether they have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smq_core.access.leader_calls import LEADER_CALLS, CallNeeds, CallSubject
from smq_core.access.rights import Access, Right, topic_right
from smq_core.errors import PermissionDenied, Unauthenticated
from smq_operator.security.access.audit import AccessAudit, DenialReason
from smq_operator.security.callers import AccessDecision, Authorizer, Caller, TokenVerifier, current_peer

METADATA_KEY = "authorization"
SCHEME = "bearer "
# Longer ones are none; tokens of Kubernetes have one or two kilobytes.
MAX_TOKEN_LENGTH = 8_000
NO_TOKEN = (
    "this release needs a token, and the call has none: give one by token_file= or SMQ_TOKEN_FILE, or a client "
    "certificate by cert_file= or SMQ_CERT_FILE"
)


@dataclass(frozen=True, slots=True)
class IdleChecks:
    """The same by older answers, for what hundreds of clients repeat that do nothing."""

    tokens: TokenVerifier
    authorizer: Authorizer


class AccessControl:
    """Every denial goes through here, and is recorded with where its call comes from (``current_peer``).

    ``idle`` is None where an answer costs nothing.
    """

    def __init__(
        self, tokens: TokenVerifier, authorizer: Authorizer, audit: AccessAudit, idle: IdleChecks | None = None
    ) -> None:
        self.tokens = tokens
        self.authorizer = authorizer
        self.audit = audit
        self.idle = idle or IdleChecks(tokens, authorizer)

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], call: str) -> Caller:
        """Who has the token in the metadata of a call. Raises Unauthenticated, Unavailable.

        What changes something for others, and a login, need an answer of the last minute.
        Raises PermissionDenied for a call of brokers by anybody else: its request may be larger than others.
        """
        entry = LEADER_CALLS.get(call)
        tokens = self.tokens if entry is None or entry.is_audited else self.idle.tokens
        caller = await tokens.verify(bearer_token(metadata))
        if entry is not None and entry.is_of_brokers and not caller.is_broker:
            raise PermissionDenied(
                f"{caller.identity} may not call {call}: only a broker may, with the token of its own process",
                identity=caller.identity,
                access=call,
            )
        return caller

    async def authorize(self, caller: Caller, call: str, subject: CallSubject) -> bool:
        """Returns False if the caller gets only what is in namespaces that it may list. Raises PermissionDenied."""
        entry = LEADER_CALLS.get(call)
        if entry is None:
            raise self.rejection(caller, call, f"nobody may call {call}")
        needs = entry.needs(subject)
        if needs.incarnation is not None or caller.is_broker:
            self._check_broker(caller, call, needs)
            return True
        for alternatives in needs.all_of:
            decision = await self.any_of(caller, alternatives, repeated=entry.is_repeated)
            if not decision.allowed and needs.lists_namespaces:
                return False
            if not decision.allowed:
                raise self.denial(caller, alternatives, decision)
        return True

    def _check_broker(self, caller: Caller, call: str, needs: CallNeeds) -> None:
        if needs.incarnation is None:
            if not needs.brokers_too:
                raise self.rejection(caller, call, f"{caller.identity} may not call {call}: use the token of a client")
        elif not caller.proves(needs.incarnation):
            about = needs.incarnation or "no incarnation"
            why = f"{caller.identity} may not call {call} for {about}: only that broker may, with its own token"
            raise self.rejection(caller, call, why)

    async def any_of(self, caller: Caller, alternatives: Sequence[Access], *, repeated: bool = False) -> AccessDecision:
        """Whether the caller has one of these rights; if not, the reason why it lacks the first.

        What is ``repeated`` is allowed by an older answer, too, and never denied by one.
        """
        if caller.is_broker:
            return AccessDecision(False, "brokers have no rights to topics")
        if repeated:
            for access in alternatives:
                older = await self.idle.authorizer.allows(caller, access)
                if older.allowed:
                    return older
        first: AccessDecision | None = None
        for access in alternatives:
            decision = await self.authorizer.allows(caller, access)
            if decision.allowed:
                return decision
            first = first or decision
        return first or AccessDecision(False, "nothing allows it")

    async def rights_when_idle(self, caller: Caller, topic: str) -> Mapping[Right, AccessDecision]:
        """Which rights the caller has to a topic, by answers that may be older; by fresh ones if it seems to have none.

        One that was just given is among them after a fresh answer to any other call. ``topic`` is ``namespace/name``.
        """
        if caller.is_broker:
            return dict.fromkeys(Right, await self.any_of(caller, ()))
        found: Mapping[Right, AccessDecision] = {}
        for authorizer in (self.idle.authorizer, self.authorizer):
            found = {right: await authorizer.allows(caller, topic_right(right, topic)) for right in Right}
            if any(decision.allowed for decision in found.values()):
                break
        return found

    def denial(self, caller: Caller, alternatives: Sequence[Access], decision: AccessDecision) -> PermissionDenied:
        """The error of a caller that has none of these rights. It is recorded."""
        return self.rejection(caller, _either(alternatives), denial_text(caller, alternatives, decision))

    def rejection(self, caller: Caller, access: str, message: str) -> PermissionDenied:
        """The error of a caller that may not do this, with any right. It is recorded."""
        self.audit.record_denial(
            DenialReason.FORBIDDEN, identity=caller.identity, access=access, peer=current_peer(), message=message
        )
        return PermissionDenied(message, identity=caller.identity, access=access)

    def record_refused(self, error: Unauthenticated | PermissionDenied, call: str, has_token: bool) -> None:
        """Records a caller that ``authenticate`` refuses."""
        reason, identity = DenialReason.INVALID_TOKEN if has_token else DenialReason.NO_TOKEN, ""
        if isinstance(error, PermissionDenied):
            reason, identity = DenialReason.FORBIDDEN, error.identity
        self.audit.record_denial(reason, identity=identity, access=call, peer=current_peer(), message=error.message)


def denial_text(caller: Caller, alternatives: Sequence[Access], decision: AccessDecision) -> str:
    """Who may not do what, and why. ``decision`` is that about the first of ``alternatives``."""
    return f"{caller.identity} may not {_either(alternatives)}: {decision.reason}"


def _either(alternatives: Sequence[Access]) -> str:
    """Without the patterns of a group, which only repeat its name."""
    return " or ".join(str(it) for it in alternatives if it.name == alternatives[0].name)


def has_token(metadata: Sequence[tuple[str, str | bytes]]) -> bool:
    return any(key == METADATA_KEY for key, _ in metadata)


def bearer_token(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    """The token in the metadata of a call. Raises Unauthenticated if there is none, or more than one."""
    given = [value for key, value in metadata if key == METADATA_KEY]
    if not given:
        raise Unauthenticated(NO_TOKEN)
    value = given[0]
    if len(given) > 1 or not isinstance(value, str) or not value.lower().startswith(SCHEME):
        raise Unauthenticated("the metadata `authorization` of this call is not one `Bearer` token")
    token = value[len(SCHEME) :].strip()
    if not token or len(token) > MAX_TOKEN_LENGTH or not token.isprintable():
        raise Unauthenticated("the token of this call is empty, too long, or no text")
    return token
