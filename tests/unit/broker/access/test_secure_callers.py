"""What each caller may do at a secure broker: by its certificate, and by the grants that it has presented."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from smq_broker.access import secure_callers
from smq_broker.access.callers import OPEN_CALLER
from smq_core.access.broker_calls import BROKER_CALLS, GRANTS, PRODUCERS, REPLICA, TAIL
from smq_core.access.grants import GRANT_SECONDS, LEADERLESS_GRACE_SECONDS, Grant
from smq_core.access.peers import EXPIRY_GRACE_SECONDS, Role
from smq_core.access.rights import Right
from smq_core.errors import GrantMissing, InvalidRequest, PermissionDenied, SmqError, Unauthenticated
from smq_proto.signed_grants import GrantSigner, new_signing_key
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.secure_access import PeerContext, SecureBrokerAccess
from support.processes.broker import make_topic

TOPIC, OTHER = make_topic("travel/flights"), make_topic("travel/hotels")


@pytest.fixture
def broker() -> Iterator[SecureBrokerAccess]:
    with capture_logs():
        yield SecureBrokerAccess(TOPIC)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "10.0.0.1",
        "smq://release-1/client/",
        "smq://release-1/admin/ada?exp=2000000",
        "smq://release-2/client/ada?exp=2000000",
        "smq://release-2/leader/l?exp=2000000",
        f"smq://release-1/client/ada?exp={1_000_000 - EXPIRY_GRACE_SECONDS - 1}",
        b"\xff\xfe",
    ],
)
def test_a_caller_without_a_certificate_of_this_release_is_nobody(
    broker: SecureBrokerAccess, name: str | bytes
) -> None:
    with pytest.raises(Unauthenticated):
        broker.access.caller(PeerContext(name))
    assert broker.denied("Unauthenticated") == 1


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("call", [*BROKER_CALLS, "unheard-of"])
def test_only_the_roles_of_the_table_are_admitted(broker: SecureBrokerAccess, call: str, role: Role) -> None:
    caller = broker.access.caller(PeerContext(broker.uri(role)))
    if call in BROKER_CALLS and role in BROKER_CALLS[call].roles:
        caller.admit(call)
        return
    with pytest.raises(PermissionDenied) as caught:
        caller.admit(call)
    assert not isinstance(caught.value, GrantMissing) and broker.denied("PermissionDenied") == 1


@pytest.mark.parametrize(
    ("call", "presented", "missing"),
    [
        (PRODUCERS, Right.PRODUCE, None),
        (PRODUCERS, Right.CONSUME, "produce"),
        (PRODUCERS, Right.ADMINISTER, "produce"),
        (PRODUCERS, None, "produce"),
        (TAIL, Right.CONSUME, None),
        (TAIL, Right.PRODUCE, "consume"),
        (TAIL, None, "consume"),
        ("outcome", Right.PRODUCE, None),
        ("outcome", Right.CONSUME, "produce"),
        ("claim", Right.PRODUCE, None),
        ("claim", Right.CONSUME, "produce"),
        ("locate", Right.PRODUCE, None),
        ("locate", Right.CONSUME, None),
        ("locate", Right.ADMINISTER, "produce"),
        ("locate", None, "produce"),
    ],
)
def test_a_client_needs_a_grant_of_the_right(
    broker: SecureBrokerAccess, call: str, presented: Right | None, missing: str | None
) -> None:
    if presented is not None:
        broker.present(broker.grant(presented))
    caller = broker.caller(call=call)
    with pytest.raises(GrantMissing):
        caller.require(OTHER.uid)
    with pytest.raises(GrantMissing):
        caller.require("")
    if missing is None:
        caller.require(TOPIC.uid)
        return
    with pytest.raises(GrantMissing) as caught:
        caller.require(TOPIC.uid)
    error = caught.value
    assert (error.topic, error.right, error.identity) == (TOPIC.name, missing, "ada")
    assert f'create topics/{missing} "flights" in namespace "travel"' in error.access


def test_the_grants_of_one_identity_are_none_of_another(broker: SecureBrokerAccess) -> None:
    broker.present(broker.grant(Right.CONSUME))
    with pytest.raises(GrantMissing):
        broker.caller(name="bob", call=TAIL).require(TOPIC.uid)


@pytest.mark.parametrize("call", [PRODUCERS, TAIL, "outcome", "claim", "locate"])
def test_the_leader_needs_no_grant(broker: SecureBrokerAccess, call: str) -> None:
    caller = broker.caller(Role.LEADER, "leader-1", call)
    caller.require(TOPIC.uid)
    caller.recheck()


def test_a_broker_replicates_as_itself_only(broker: SecureBrokerAccess) -> None:
    caller = broker.caller(Role.BROKER, "i-1", REPLICA)
    caller.require_incarnation("i-1")
    with pytest.raises(PermissionDenied, match="broker i-1 may not replicate as i-2"):
        caller.require_incarnation("i-2")


@pytest.mark.parametrize(
    ("grant", "error"),
    [
        (lambda it: it.grant(Right.PRODUCE, identity="bob"), PermissionDenied),
        (lambda it: it.grant(Right.PRODUCE, release="release-2"), PermissionDenied),
    ],
)
def test_a_grant_of_another_is_refused(
    broker: SecureBrokerAccess, grant: Callable[[SecureBrokerAccess], Grant], error: type[SmqError]
) -> None:
    with pytest.raises(error):
        broker.present(grant(broker))
    for name in ("ada", "bob"):
        with pytest.raises(GrantMissing):
            broker.caller(name=name, call=PRODUCERS).require(TOPIC.uid)


def test_a_grant_that_the_leader_has_not_signed_is_refused(broker: SecureBrokerAccess) -> None:
    with pytest.raises(PermissionDenied, match="no leader of this release"):
        broker.present(broker.grant(Right.PRODUCE), signer=GrantSigner(new_signing_key()))
    with pytest.raises(PermissionDenied):
        broker.caller(call=GRANTS).present(pb.PresentGrants(grants=[pb.SignedGrant()]))
    altered = broker.signer.sign(broker.grant(Right.PRODUCE))
    altered.grant = altered.grant.replace(b"ada", b"bob")
    with pytest.raises((PermissionDenied, InvalidRequest)):
        broker.caller(name="bob", call=GRANTS).present(pb.PresentGrants(grants=[altered]))
    assert broker.denied("PermissionDenied") == 3


def test_a_stream_ends_when_its_grant_has_expired(broker: SecureBrokerAccess) -> None:
    broker.present(broker.grant(Right.CONSUME))
    caller = broker.caller(call=TAIL)
    caller.require(TOPIC.uid)
    broker.now = broker.leader_seen_at = broker.now + GRANT_SECONDS + 1
    with pytest.raises(GrantMissing):
        caller.recheck()
    broker.present(broker.grant(Right.CONSUME))
    caller.recheck()


def test_a_grant_counts_for_longer_while_this_broker_has_no_leader(broker: SecureBrokerAccess) -> None:
    broker.present(broker.grant(Right.CONSUME))
    caller = broker.caller(call=TAIL)
    caller.require(TOPIC.uid)
    broker.now += GRANT_SECONDS + LEADERLESS_GRACE_SECONDS - 1
    caller.recheck()
    broker.now += 2
    with pytest.raises(GrantMissing):
        caller.recheck()


@pytest.mark.parametrize("role", Role)
def test_a_stream_ends_when_its_certificate_has_expired(broker: SecureBrokerAccess, role: Role) -> None:
    caller = broker.access.caller(PeerContext(broker.uri(role, seconds=10)))
    broker.now += 10 + EXPIRY_GRACE_SECONDS
    caller.recheck()
    broker.now += 1
    with pytest.raises(Unauthenticated, match="connect again"):
        caller.recheck()


def test_a_stream_checks_again_every_few_seconds(broker: SecureBrokerAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(secure_callers.time, "monotonic", lambda: now)
    caller = broker.caller(Role.LEADER, call=TAIL)
    assert now < caller.check_at <= now + 10
    now = caller.check_at
    caller.recheck()
    assert now < caller.check_at <= now + 10


def test_a_client_sees_the_segments_of_its_topics_only(broker: SecureBrokerAccess) -> None:
    status = pb.BrokerStatus(
        broker="b",
        incarnation="i",
        draining=True,
        tail_bytes=7,
        filer_problem="travel/hotels failed",
        journal_problem="travel/hotels failed",
        segments=[pb.SegmentReport(topic=it.name, uid=it.uid) for it in (TOPIC, OTHER)],
    )
    broker.present(broker.grant(Right.CONSUME))
    seen = broker.caller(call="status").visible(status)
    assert [it.topic for it in seen.segments] == [TOPIC.name]
    assert (seen.broker, seen.incarnation, seen.draining) == ("b", "i", True) and "hotels" not in str(seen)
    assert not broker.caller(name="bob", call="status").visible(status).segments
    for role in (Role.BROKER, Role.LEADER):
        assert broker.caller(role, call="status").visible(status) == status
    assert OPEN_CALLER.visible(status) is status


def test_a_denial_is_logged_once_for_each_caller_and_call(broker: SecureBrokerAccess) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            for name in ("ada", "bob\nforged"):
                for call in (PRODUCERS, "open"):
                    caller = broker.caller(name=name)
                    with pytest.raises(PermissionDenied):
                        caller.admit(call)
                        caller.require(f"{'x' * 100_000}", "y" * 100_000)
    assert [(line["event"], line["call"], line["log_level"]) for line in logs] == [
        ("access.denied", PRODUCERS, "info"),
        ("access.denied", "open", "warning"),
    ] * 2
    assert all(len(str(line)) < 2000 and "\n" not in line["who"] for line in logs)
    assert broker.denied("GrantMissing") == broker.denied("PermissionDenied") == 6


def test_each_action_and_stream_of_a_broker_has_a_rule() -> None:
    broker = BrokerParts("b1", open_store("memory://"))
    actions = {name for name, _ in broker.actions().descriptions()}
    assert actions | {PRODUCERS, REPLICA, TAIL} == set(BROKER_CALLS)
    broker.stop()


def test_a_right_that_counts_only_without_a_leader_is_counted(broker: SecureBrokerAccess) -> None:
    broker.present(broker.grant(Right.CONSUME))
    caller = broker.caller(call=TAIL)
    caller.require(TOPIC.uid)
    assert broker.graces() == 0.0
    broker.now += GRANT_SECONDS + 1  # the leader was seen last when it gave the grant
    caller.require(TOPIC.uid)
    assert broker.graces() == 1.0
    broker.leader_seen_at = broker.now
    with pytest.raises(GrantMissing):
        caller.require(TOPIC.uid)
    assert broker.graces() == 1.0
