from __future__ import annotations

import structlog

from smq_operator.security.access import audit
from smq_operator.security.access.audit import AccessAudit, DenialReason


def test_a_denial_is_logged_once_in_ten_seconds_and_counted_each_time(monkeypatch) -> None:
    now, monkeypatched = [0.0], monkeypatch
    denials = AccessAudit(lambda: now[0])

    def deny(identity: str = "bob", access: str = "get x") -> int:
        with structlog.testing.capture_logs() as logs:
            denials.record_denial(DenialReason.FORBIDDEN, identity=identity, access=access, peer="p", message="m")
        return len(logs)

    assert [deny(), deny(), deny(identity="eve"), deny(access="get y")] == [1, 0, 1, 1]
    now[0] = 9.9
    assert deny() == 0
    now[0] = 10.0
    assert [deny(), deny()] == [1, 0]
    assert denials.denied == {DenialReason.FORBIDDEN: 7}
    names = [deny(access=f'create topics/produce "t{number}" in namespace "n"') for number in range(3)]
    assert names == [1, 0, 0], "a caller chooses the names"
    monkeypatched.setattr(audit, "MAX_REMEMBERED", 3)
    for number in range(10):
        deny(access=str(number))
    assert len(denials._logged) <= 3 + 1
