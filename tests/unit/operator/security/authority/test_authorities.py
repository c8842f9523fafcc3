"""The rotation as operators carry it out: the leader in steps, and another one that takes over."""

from __future__ import annotations

import asyncio
import json

import pytest

from smq_core.access.authority_rotation import CertificateLives
from smq_core.errors import Conflict, InvalidRequest, SmqError, Unavailable
from smq_operator.security.authority.authorities import Authorities, recovered
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.authority.certificate_authority import given_authority
from support.in_memory.authorities import MemoryAuthorities, own_authorities
from support.user_authority import UserAuthority

LIVES = CertificateLives(client=100, server=1000, authority=30_000, margin=50)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def phases(authorities: Authorities) -> list[str]:
    return [it.phase.value for it in authorities.known.rotation.authorities]


async def test_it_rotates_by_age_and_everybody_finds_the_bundle() -> None:
    clock = Clock()
    leader, stored = own_authorities(clock, lives=LIVES)
    first = leader.signing
    await leader.step(True, list)
    assert not stored.saved and stored.published == first.roots
    clock.now += 20_000
    await leader.step(True, list)
    assert phases(leader) == ["signing", "introduced"]
    assert stored.published == leader.signing.roots != first.roots, "the bundle has both"
    assert leader.signing.keys == first.keys
    clock.now += 100
    await leader.step(True, lambda: ["b1"])
    assert phases(leader) == ["signing", "introduced"] and "b1" in leader.waits_for(["b1"])
    await leader.step(True, list)
    assert phases(leader) == ["retired", "signing"] and leader.signing.keys != first.keys
    former_key = first.keys.key.splitlines()[1]
    assert former_key not in stored.known.to_json(), "nobody signs with the former key"
    clock.now += 1050
    await leader.step(True, list)
    assert phases(leader) == ["signing"] and stored.published == leader.signing.roots
    assert leader.signing.release == "r1" and len(stored.saved) == 3


async def test_another_operator_goes_on_in_the_middle() -> None:
    clock = Clock()
    leader, stored = own_authorities(clock, lives=LIVES)
    standby = Authorities(MemoryAuthorities(stored), stored.known, LIVES, clock)
    await leader.rotate()
    await standby.step(False, list)
    assert standby.known.id == leader.known.id and len(stored.saved) == 1
    clock.now += 200
    await standby.step(False, list)
    assert phases(standby) == ["signing", "introduced"], "only the leader changes anything"
    await standby.step(True, list)
    assert phases(standby) == ["retired", "signing"]
    await leader.step(False, list)
    assert leader.known.id == standby.known.id


async def test_of_two_that_lead_only_one_writes() -> None:
    clock = Clock()
    leader, stored = own_authorities(clock, lives=LIVES)
    store = MemoryAuthorities(stored)
    late = Authorities(store, stored.known, LIVES, clock)
    await late.step(False, list)
    await leader.rotate()
    with pytest.raises(Conflict):
        await store.save(late.known.introduce_own(clock.now, LIVES))
    await late.rotate()
    assert phases(late) == ["signing", "introduced"] and len(stored.saved) == 1, "one is introduced already"


async def test_a_manual_rotation_is_one_however_often_it_is_called() -> None:
    leader, stored = own_authorities(Clock(), lives=LIVES)
    await leader.rotate()
    await leader.rotate()
    assert phases(leader) == ["signing", "introduced"] and len(stored.saved) == 1


async def test_an_authority_of_the_user_is_followed() -> None:
    clock = Clock()
    _, stored = own_authorities(clock, lives=LIVES)
    root = UserAuthority("corporation")
    leader = Authorities(MemoryAuthorities(stored, "the Secret ca"), stored.known, LIVES, clock)
    with pytest.raises(SmqError, match="not there"):
        await leader.step(True, list)
    clock.now += 25_000
    with pytest.raises(SmqError, match="not there"):
        await leader.step(True, list)
    assert phases(leader) == ["signing"], "none is made in its place"
    for _ in range(2):
        stored.given = given_authority(*root.intermediate("smq", life=1e6))
        await leader.step(True, list)
        assert phases(leader)[-2:] == ["signing", "introduced"]
        clock.now += 100
        await leader.step(True, list)
        assert phases(leader)[-2:] == ["retired", "signing"] and leader.signing.keys == stored.given
    with pytest.raises(InvalidRequest, match="the Secret ca: renew it there"):
        await leader.rotate()


async def test_what_cannot_be_read_changes_nothing() -> None:
    leader, stored = own_authorities(Clock(), lives=LIVES)
    before = leader.signing
    stored.failure = Unavailable("away")
    with pytest.raises(Unavailable):
        await leader.step(True, list)
    assert leader.signing is before


def test_an_expired_authority_is_replaced_at_once() -> None:
    clock = Clock()
    leader, _ = own_authorities(clock, lives=LIVES)
    assert recovered(leader.known, None, clock.now + 29_000, LIVES) is leader.known
    made = recovered(leader.known, None, clock.now + 30_001, LIVES)
    assert [it.phase.value for it in made.rotation.authorities] == ["retired", "signing"]
    assert made.signing().expires_at == int(clock.now + 60_001)


async def test_one_that_expired_before_it_signed_is_replaced_too() -> None:
    clock = Clock()
    leader, _ = own_authorities(clock, lives=LIVES)
    await leader.rotate()
    made = recovered(leader.known, None, clock.now + 90_000, LIVES)
    assert made.signing().expires_at == int(clock.now + 120_000)


async def test_a_stored_set_is_read_as_it_was() -> None:
    leader, _ = own_authorities(Clock(), lives=LIVES)
    await leader.rotate()
    read = AuthoritySet.parse(leader.known.to_json())
    assert read == leader.known and read.id == leader.known.id


@pytest.mark.parametrize(
    "document", [b"", b"{}", b"[]", b'{"release": "r", "authorities": []}', b'{"release": "r", "authorities": [{}]}']
)
def test_what_is_no_set_of_authorities_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidRequest):
        AuthoritySet.parse(document)


def test_a_set_that_is_damaged_is_refused_without_a_word_of_its_keys() -> None:
    leader, _ = own_authorities(Clock(), lives=LIVES)
    key = leader.signing.keys.key.decode()
    document = leader.known.to_json().replace(b'"signing"', json.dumps(key).encode())
    with pytest.raises(InvalidRequest) as refused:
        AuthoritySet.parse(document)
    assert "PRIVATE" not in str(refused.value)


async def test_why_certificates_cannot_be_renewed_is_said_before_they_end() -> None:
    clock = Clock()
    leader, _ = own_authorities(clock, lives=LIVES)
    start, signing = clock.now, leader.signing
    assert leader.problem("", []) == "" and "cannot be kept up to date: away" in leader.problem("away", [])
    clock.now = start + 24_990
    assert leader.problem("", ["b1"]) == ""
    clock.now = start + 25_001
    assert "and then nobody can connect: introduce the next one by `smq auth rotate-ca`" in leader.problem("", [])
    assert leader.problem("away", []).endswith("nobody can connect: away")
    await leader.step(True, lambda: ["b1"])
    assert leader.signing.keys == signing.keys
    behind = leader.problem("", ["b1"])
    assert behind.endswith("brokers that do not trust the new authority yet: b1")
    assert "expires at 2023-11-15T06:33:20+00:00" in behind
    clock.now += 1
    assert leader.problem("", ["b1"]) == behind, "the same problem is one Event"
    clock.now += 200
    await leader.step(True, list)
    assert leader.problem("", []) == ""


async def test_each_step_reports_what_is_wrong() -> None:
    leader, stored = own_authorities(Clock(), lives=LIVES)
    stored.failure = Unavailable("away")
    reported: asyncio.Queue[str] = asyncio.Queue()
    following = asyncio.create_task(leader.run(lambda: True, list, reported.put_nowait))
    try:
        assert "away" in await reported.get()
    finally:
        following.cancel()
