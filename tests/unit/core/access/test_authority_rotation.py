from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from smq_core.access.authority_rotation import Authority, AuthorityPhase, CertificateLives, Rotation

LIVES = CertificateLives(client=100, server=1000, authority=30_000, margin=50)
FIRST = Authority(id="a1", phase=AuthorityPhase.SIGNING, since=0.0, issued_at=0.0, expires_at=30_000.0)


def new(at: float, number: int = 2) -> Authority:
    return Authority(
        id=f"a{number}", phase=AuthorityPhase.INTRODUCED, since=at, issued_at=at, expires_at=at + LIVES.authority
    )


def phases(rotation: Rotation) -> dict[str, str]:
    return {it.id: it.phase.value for it in rotation.authorities}


def test_a_rotation_from_its_beginning_to_its_end() -> None:
    rotation = Rotation([FIRST]).introduce(new(10.0))
    assert phases(rotation) == {"a1": "signing", "a2": "introduced"}
    assert rotation.advance(109.0, LIVES, ()) is rotation
    rotation = rotation.advance(110.0, LIVES, ())
    assert phases(rotation) == {"a1": "retired", "a2": "signing"} and rotation.signing.since == 110.0
    assert rotation.advance(1159.0, LIVES, ()) is rotation
    assert phases(rotation.advance(1160.0, LIVES, ())) == {"a2": "signing"}


def test_it_signs_only_when_every_broker_trusts_it() -> None:
    rotation = Rotation([FIRST]).introduce(new(10.0))
    assert rotation.advance(5_000.0, LIVES, ["b2", "b1"]) is rotation
    assert rotation.waits_for(5_000.0, LIVES, ["b2", "b1"]).endswith(": b1, b2")
    assert phases(rotation.advance(5_000.0, LIVES, ())) == {"a1": "retired", "a2": "signing"}


def test_it_signs_only_when_every_client_has_logged_in_since() -> None:
    rotation = Rotation([FIRST]).introduce(new(10.0))
    assert rotation.waits_for(50.0, LIVES, ()) == "clients, which fetch the new bundle within 60 s"
    assert rotation.waits_for(110.0, LIVES, ()) == "" and Rotation([FIRST]).waits_for(0.0, LIVES, ()) == ""


def test_nobody_is_waited_for_when_the_one_that_signs_has_expired() -> None:
    rotation = Rotation([FIRST]).introduce(new(29_999.0))
    assert rotation.advance(29_999.5, LIVES, ()) is rotation
    assert phases(rotation.advance(30_000.0, LIVES, ["b1"])) == {"a1": "retired", "a2": "signing"}


def test_the_next_one_is_due_at_two_thirds_of_the_life_and_only_once() -> None:
    assert not Rotation([FIRST]).is_due(19_999.0) and Rotation([FIRST]).is_due(20_000.0)
    rotation = Rotation([FIRST]).introduce(new(20_000.0))
    assert not rotation.is_due(49_999.0) and rotation.is_due(50_000.0), "it has expired before it signed"


def test_one_that_signed_nothing_is_replaced() -> None:
    rotation = Rotation([FIRST]).introduce(new(10.0, 2)).introduce(new(20.0, 3))
    assert phases(rotation) == {"a1": "signing", "a3": "introduced"}


@dataclass
class Process:
    """A broker or a client: what it trusts, who signed its certificate, and when it fetches the next one."""

    trusts: frozenset[str]
    signer: str
    ends_at: float
    renews_at: float
    follows: bool


@pytest.mark.parametrize("seed", range(50))
def test_everybody_trusts_every_certificate_at_each_moment(seed: int) -> None:
    """Brokers fetch a new bundle when they hear of it, clients within the life of their certificate."""
    chance = random.Random(seed)
    rotation, now, made = Rotation([FIRST]), 0.0, 1
    processes: list[Process] = []

    def log_in(life: float, follows: bool) -> Process:
        trusts = frozenset(it.id for it in rotation.authorities)
        return Process(trusts, rotation.signing.id, now + life, now + chance.uniform(0.5, 1.0) * life, follows)

    processes = [log_in(LIVES.server, True) for _ in range(3)] + [log_in(LIVES.client, False) for _ in range(3)]
    while now < 12_000:
        now += chance.uniform(1, 60)
        if chance.random() < 0.02:
            made += 1
            rotation = rotation.introduce(new(now, made))
        bundle = frozenset(it.id for it in rotation.authorities)
        behind = [f"b{n}" for n, it in enumerate(processes) if it.follows and it.trusts != bundle]
        rotation = rotation.advance(now, LIVES, behind)
        bundle = frozenset(it.id for it in rotation.authorities)
        for number, it in enumerate(processes):
            life = LIVES.server if it.follows else LIVES.client
            late = it.follows and it.trusts != bundle and chance.random() < 0.3
            if now >= it.renews_at or late:
                processes[number] = log_in(life, it.follows)
        for one in processes:
            for other in processes:
                if now < min(one.ends_at, other.ends_at):
                    assert other.signer in one.trusts, (seed, now, rotation)
