"""A broker logs in at a leader over TLS with its token, and says why it is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from smq_broker.access.credentials import Login
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_broker.leader_client.login import MAX_RETRY_SECONDS, REFUSED_RETRY_SECONDS, RETRY_SECONDS, LeaderLogin
from smq_core.access.peers import Role, broker_server_name
from smq_core.errors import NotLeader, PermissionDenied, SmqError, Unauthenticated, Unavailable
from smq_proto.v1 import data_pb2 as pb
from support.processes.secure_leader_stub import Release, SecureLeader

INCARNATION = "i-1"


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


@pytest.fixture
def leader(release: Release) -> Iterator[SecureLeader]:
    with SecureLeader(release) as made:
        yield made


def login_at(release: Release, *leaders: str, ca_file: str = "", token_file: str = "") -> LeaderLogin:
    channels = LeaderChannels(ca_file or str(release.ca_file), token_file or str(release.token_file))
    return LeaderLogin(INCARNATION, leaders=lambda: leaders, channels=channels)


def test_a_leader_gives_a_certificate_and_what_verifies_grants(release: Release, leader: SecureLeader) -> None:
    login = login_at(release, leader.address).once()
    assert login.release == release.name
    assert login.certificate.roots == release.authority.roots and login.certificate.expires_at > time.time()
    assert b"PRIVATE KEY" in login.certificate.key
    with pytest.raises(PermissionDenied):
        login.verifier.verify(pb.SignedGrant())
    assert leader.logins == [(f"Bearer {release.token}", INCARNATION)]


def test_the_token_is_read_anew_each_time(release: Release, leader: SecureLeader) -> None:
    login = login_at(release, leader.address)
    release.token_file.write_text("another one")
    with pytest.raises(Unauthenticated, match="nobody knows this token"):
        login.once()
    release.token_file.write_text(release.token)
    assert login.once().release == release.name


@pytest.mark.parametrize("text", ["", "two\nlines", "\x00", "é"])
def test_what_is_no_token_is_not_sent(release: Release, leader: SecureLeader, text: str) -> None:
    release.token_file.write_text(text)
    with pytest.raises(Unauthenticated, match="has no token") as caught:
        login_at(release, leader.address).once()
    assert not leader.logins
    assert not text or text not in caught.value.message


def test_files_that_cannot_be_read_are_named(release: Release, leader: SecureLeader) -> None:
    with pytest.raises(Unauthenticated, match=r"token cannot be read.*none"):
        login_at(release, leader.address, token_file="/none").once()
    with pytest.raises(Unauthenticated, match=r"roots of the release cannot be read.*none"):
        login_at(release, leader.address, ca_file="/none").once()


def test_the_token_goes_to_a_leader_of_this_release_only(tmp_path: Path, release: Release) -> None:
    with SecureLeader(Release(tmp_path, "release-2")) as stranger:
        with pytest.raises(Unavailable, match="does not answer"):
            login_at(release, stranger.address).once()
        assert not stranger.logins
    broker = release.certificate(Role.BROKER, "i-2", server_names=[broker_server_name("i-2")])
    with SecureLeader(release, own=broker) as impostor:
        with pytest.raises(Unavailable, match="does not answer"):
            login_at(release, impostor.address).once()
        assert not impostor.logins


def test_the_next_leader_is_tried_and_redirects_are_followed(release: Release, leader: SecureLeader) -> None:
    assert login_at(release, "127.0.0.1:1", leader.address).once().release == release.name
    with SecureLeader(release) as standby:
        standby.rejection = NotLeader("another one leads", leader=leader.address)
        assert login_at(release, standby.address).once().release == release.name
        standby.rejection = NotLeader("nobody leads", leader=standby.address)
        with pytest.raises(Unavailable, match="nobody leads"):
            login_at(release, standby.address).once()


def test_a_certificate_that_has_expired_is_none(release: Release, leader: SecureLeader) -> None:
    channels = LeaderChannels(str(release.ca_file), str(release.token_file))
    late = LeaderLogin(
        INCARNATION,
        leaders=lambda: [leader.address],
        channels=channels,
        clock=lambda: time.time() + 2 * leader.lifetime_seconds,
    )
    with pytest.raises(Unavailable, match="expired"):
        late.once()


@pytest.mark.parametrize(
    ("error", "first_pause", "shown"),
    [
        (Unauthenticated("no such token"), REFUSED_RETRY_SECONDS, "refuses this broker: no such token"),
        (PermissionDenied("not your Pod"), REFUSED_RETRY_SECONDS, "refuses this broker: not your Pod"),
        (Unavailable("a:1 does not answer"), RETRY_SECONDS, "no leader has given.*a:1 does not answer"),
    ],
)
def test_it_is_tried_again_and_the_reason_is_shown(
    error: SmqError, first_pause: float, shown: str, release: Release, leader: SecureLeader
) -> None:
    login = login_at(release, leader.address)
    once, failures, pauses, reasons = login.once, [error] * 5, [], []  # type: ignore[var-annotated]

    def fail_first() -> Login:
        if failures:
            raise failures.pop()
        return once()

    login.once = fail_first  # type: ignore[method-assign]
    with capture_logs():
        found = login.until_given(
            lambda seconds: bool(pauses.append(seconds)), lambda reason, _: reasons.append(reason)
        )  # type: ignore[func-returns-value]
    assert found is not None and found.release == release.name
    assert pauses[:2] == [first_pause, 2 * first_pause] and len(pauses) == 5
    assert first_pause != RETRY_SECONDS or max(pauses) <= MAX_RETRY_SECONDS
    assert len(reasons) == 5 and all(re.search(shown, reason) for reason in reasons)
    failures.append(error)
    with capture_logs():
        assert login.until_given(lambda _: True, lambda reason, _: reasons.append(reason)) is None, (
            "the process was stopped"
        )
