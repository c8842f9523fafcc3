"""The access of callers in clear text, while a release is permissive."""

from __future__ import annotations

from collections.abc import Sequence

from smq_core.access.leader_calls import CallSubject
from smq_operator.security.access.access_control import AccessControl, has_token
from smq_operator.security.callers import Caller, current_peer

# Whoever calls in clear text without a token. Handlers see no caller at all, as in a release without security.
ANONYMOUS = Caller(identity="anonymous", method="Open")


class AnonymousAccess(AccessControl):
    """A caller without a token may do everything, and each such call is recorded. Others have the rights of theirs."""

    def __init__(self, known: AccessControl) -> None:
        super().__init__(known.tokens, known.authorizer, known.audit, known.idle)

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], call: str) -> Caller:
        return await super().authenticate(metadata, call) if has_token(metadata) else ANONYMOUS

    async def authorize(self, caller: Caller, call: str, subject: CallSubject) -> bool:
        if caller is not ANONYMOUS:
            return await super().authorize(caller, call, subject)
        self.audit.record_open_call(call, current_peer())
        return True
