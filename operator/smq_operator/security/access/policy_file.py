"""Rights from a file, for releases without Kubernetes."""

from __future__ import annotations

from pathlib import Path

from smq_core.access.policy import parse_policy, rule_for
from smq_core.access.rights import Access
from smq_operator.security.callers import AccessDecision, Caller
from smq_operator.security.watched_file import WatchedFile, from_yaml


class PolicyFile:
    """The policy in a file of YAML, which is read anew when it has changed. Raises InvalidRequest at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = WatchedFile(path, from_yaml(parse_policy))

    async def allows(self, caller: Caller, access: Access) -> AccessDecision:
        if self._file.current().allows(caller.identity, caller.groups, access):
            return AccessDecision(True)
        rule = f"identities: [{caller.identity!r}], {rule_for(access)}"
        return AccessDecision(False, f"no rule of {self._path.name} allows it; this one would: {rule}")
