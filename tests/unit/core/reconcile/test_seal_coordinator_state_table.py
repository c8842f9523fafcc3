"""The seal of a segment in every state with every input. For recovered journals see ``test_seals_from_journals.py``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.errors import NotHosted, StoreUnavailable, Unreachable
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Liveness, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.sealing.seal_coordinator import (
    REQUEST_REPEAT_AFTER,
    REQUEST_TIMEOUT,
    RETRY_AFTER,
    RequestSeal,
    SealBlocked,
    SealCoordinator,
    SealFromFiler,
)
from support.state_table import NOTHING, StateTable, does

PRIMARY, FOLLOWER = Replica("p", "i-p", "p:1"), Replica("f", "i-f", "f:1")
SEGMENT = Segment(
    name="s",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.SEALING,
    durability=Durability.REPLICATED,
    replicas=(PRIMARY, FOLLOWER),
)
OUTCOME = SealOutcome(segment="s", end=4)
REQUEST = RequestSeal("s", PRIMARY)
WORDS = {Liveness.ALIVE: "alive", Liveness.SUSPECT: "suspect", Liveness.GONE: "gone"}
ALIVE, SUSPECT, GONE = Liveness.ALIVE, Liveness.SUSPECT, Liveness.GONE


def step(it: SealCoordinator, now: int, primary: Liveness = ALIVE, follower: Liveness = ALIVE) -> str | None:
    """The next step in short."""
    found = it.next_step(now, lambda incarnation: primary if incarnation == "i-p" else follower)
    match found:
        case RequestSeal(replica=replica):
            return replica.broker
        case SealFromFiler():
            return "filer"
        case SealBlocked(waiting_for=waiting_for):
            return "blocked on " + ", ".join(waiting_for)
    return None


def new() -> SealCoordinator:
    return SealCoordinator(SEGMENT)


def requested() -> SealCoordinator:
    """The primary was alive when it was sent a request, at 0."""
    it = new()
    assert step(it, 0) == "p"
    return it


def requested_of_both() -> SealCoordinator:
    """The primary did not answer in time, so the follower has a request too, at 0."""
    it = new()
    assert step(it, -REQUEST_TIMEOUT) == "p" and step(it, 0) == "f"
    return it


def requested_of_suspect() -> SealCoordinator:
    """Neither was believed alive when it was sent a request; the seal is blocked."""
    it = new()
    assert [step(it, 0, SUSPECT, SUSPECT) for _ in range(3)] == ["p", "f", "blocked on i-p, i-f"]
    return it


def failed() -> SealCoordinator:
    """The call to the primary failed at 0."""
    it = new()
    step(it, 0)
    it.failed(REQUEST, Unreachable(""), 0)
    return it


def not_hosted() -> SealCoordinator:
    """The primary does not host the segment."""
    it = requested()
    it.failed(REQUEST, NotHosted("", certain=True), 0)
    return it


def hosted_nowhere() -> SealCoordinator:
    it = not_hosted()
    it.failed(replace(REQUEST, replica=FOLLOWER), NotHosted("", certain=True), 0)
    return it


def filer() -> SealCoordinator:
    """Both are gone; the seal from the filer is under way since 0."""
    it = new()
    assert step(it, 0, GONE, GONE) == "filer"
    return it


def filer_failed() -> SealCoordinator:
    """The seal from the filer failed at 0."""
    it = filer()
    it.failed(SealFromFiler("s", None), StoreUnavailable(""), 0)
    return it


def loss_accepted() -> SealCoordinator:
    """An administrator accepted the loss while both replicas were unresponsive."""
    it = requested_of_suspect()
    it.accept_loss()
    return it


def sealed() -> SealCoordinator:
    it = requested()
    it.sealed(OUTCOME)
    return it


NEW, REQUESTED, BOTH, SUSPECTS, FAILED = "new", "requested", "both requested", "suspects requested", "failed"
NOT_HOSTED, NOWHERE, FILER, FILER_FAILED = "not hosted", "hosted nowhere", "filer", "filer failed"
ACCEPTED, SEALED = "loss accepted", "sealed"
STATES = {
    NEW: new,
    REQUESTED: requested,
    BOTH: requested_of_both,
    SUSPECTS: requested_of_suspect,
    FAILED: failed,
    NOT_HOSTED: not_hosted,
    NOWHERE: hosted_nowhere,
    FILER: filer,
    FILER_FAILED: filer_failed,
    ACCEPTED: loss_accepted,
    SEALED: sealed,
}
EVERYWHERE = tuple(STATES)

INPUTS = {
    **{
        f"next step, primary {WORDS[p]}, follower {WORDS[f]}": lambda it, p=p, f=f: step(it, 1, p, f)
        for p in WORDS
        for f in WORDS
    },
    "next step after the retry delay": lambda it: step(it, RETRY_AFTER),
    "next step after the request timeout": lambda it: step(it, REQUEST_TIMEOUT),
    "next step after the request timeout, primary suspect": lambda it: step(it, REQUEST_TIMEOUT, SUSPECT),
    "next step when the request is repeated": lambda it: step(it, REQUEST_REPEAT_AFTER),
    "next step when the clock went back": lambda it: step(it, -1),
    "the call to the primary fails": lambda it: it.failed(REQUEST, Unreachable(""), 1),
    "the call to an unknown incarnation fails": lambda it: it.failed(
        replace(REQUEST, replica=Replica("x", "i-x", "x:1")), Unreachable(""), 1
    ),
    "the primary does not host it": lambda it: it.failed(REQUEST, NotHosted("", certain=True), 0),
    "the seal from the filer fails": lambda it: it.failed(SealFromFiler("s", None), StoreUnavailable(""), 1),
    "the loss is accepted": lambda it: it.accept_loss(),
    "sealed": lambda it: it.sealed(replace(OUTCOME, end=6)),
    "release requests": lambda it: [r.replica.broker for r in it.release_requests(lambda _: ALIVE)],
}


def observe(it: SealCoordinator) -> dict[str, object]:
    attempts = {"p": it._attempts["i-p"], "f": it._attempts["i-f"], "filer": it._filer}
    found: dict[str, object] = {"outcome": it.outcome and it.outcome.end, "blocked": it.blocked is not None}
    found |= {f"{who}_requested_at": attempt.requested_at for who, attempt in attempts.items()}
    found |= {f"{who}_failed_at": attempt.failed_at for who, attempt in attempts.items()}
    found |= {"p_hosts": not attempts["p"].holds_nothing, "loss_accepted": it.loss_accepted}
    return found | {"released": len(it._release_requested)}


# A replica that is back is preferred to the filer, also after the loss was accepted, and although a seal from the filer
# may be under way, because several seals at once are harmless. After the seal, late answers change nothing that a next
# step depends on.
TABLE = StateTable(
    STATES,
    INPUTS,
    observe,
    {
        "next step, primary alive, follower alive": {
            (NEW, FILER, FILER_FAILED): does("p", p_requested_at=1),
            (REQUESTED, BOTH, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            (FAILED, NOT_HOSTED): does("f", f_requested_at=1),
            NOWHERE: does("filer", filer_requested_at=1),
            ACCEPTED: does("p", blocked=False, p_requested_at=1),
        },
        "next step, primary alive, follower suspect": {
            (NEW, FILER, FILER_FAILED): does("p", p_requested_at=1),
            (REQUESTED, BOTH, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            (FAILED, NOT_HOSTED): does("f", f_requested_at=1),
            NOWHERE: does("filer", filer_requested_at=1),
            ACCEPTED: does("p", blocked=False, p_requested_at=1),
        },
        "next step, primary alive, follower gone": {
            (NEW, FILER, FILER_FAILED): does("p", p_requested_at=1),
            (REQUESTED, BOTH, FAILED, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            (NOT_HOSTED, NOWHERE): does("filer", filer_requested_at=1),
            ACCEPTED: does("p", blocked=False, p_requested_at=1),
        },
        "next step, primary suspect, follower alive": {
            (NEW, REQUESTED, FAILED, NOT_HOSTED, FILER, FILER_FAILED): does("f", f_requested_at=1),
            (BOTH, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            NOWHERE: does("filer", filer_requested_at=1),
            ACCEPTED: does("f", blocked=False, f_requested_at=1),
        },
        "next step, primary suspect, follower suspect": {
            (NEW, FILER, FILER_FAILED): does("p", p_requested_at=1),
            (REQUESTED, FAILED, NOT_HOSTED): does("f", f_requested_at=1),
            BOTH: does("blocked on i-p, i-f", blocked=True),
            SUSPECTS: does("blocked on i-p, i-f"),
            NOWHERE: does("filer", filer_requested_at=1),
            ACCEPTED: does("filer", blocked=False, filer_requested_at=1),
            SEALED: NOTHING,
        },
        "next step, primary suspect, follower gone": {
            (NEW, FILER, FILER_FAILED): does("p", p_requested_at=1),
            (REQUESTED, BOTH, FAILED): does("blocked on i-p", blocked=True),
            SUSPECTS: does("blocked on i-p"),
            (NOT_HOSTED, NOWHERE): does("filer", filer_requested_at=1),
            ACCEPTED: does("filer", blocked=False, filer_requested_at=1),
            SEALED: NOTHING,
        },
        "next step, primary gone, follower alive": {
            (NEW, REQUESTED, FAILED, NOT_HOSTED, FILER, FILER_FAILED): does("f", f_requested_at=1),
            (BOTH, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            NOWHERE: does("filer", filer_requested_at=1),
            ACCEPTED: does("f", blocked=False, f_requested_at=1),
        },
        "next step, primary gone, follower suspect": {
            (NEW, REQUESTED, FAILED, NOT_HOSTED, FILER, FILER_FAILED): does("f", f_requested_at=1),
            BOTH: does("blocked on i-f", blocked=True),
            SUSPECTS: does("blocked on i-f"),
            NOWHERE: does("filer", filer_requested_at=1),
            ACCEPTED: does("filer", blocked=False, filer_requested_at=1),
            SEALED: NOTHING,
        },
        "next step, primary gone, follower gone": {
            (NEW, REQUESTED, BOTH, FAILED, NOT_HOSTED, NOWHERE): does("filer", filer_requested_at=1),
            (SUSPECTS, ACCEPTED): does("filer", blocked=False, filer_requested_at=1),
            (FILER, FILER_FAILED, SEALED): NOTHING,
        },
        "next step after the retry delay": {
            (NEW, FAILED, FILER, FILER_FAILED): does("p", p_requested_at=RETRY_AFTER),
            (REQUESTED, BOTH, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            NOT_HOSTED: does("f", f_requested_at=RETRY_AFTER),
            NOWHERE: does("filer", filer_requested_at=RETRY_AFTER),
            ACCEPTED: does("p", blocked=False, p_requested_at=RETRY_AFTER),
        },
        "next step after the request timeout": {
            (NEW, FAILED, FILER, FILER_FAILED): does("p", p_requested_at=REQUEST_TIMEOUT),
            (REQUESTED, NOT_HOSTED): does("f", f_requested_at=REQUEST_TIMEOUT),
            (BOTH, SEALED): NOTHING,
            SUSPECTS: does("p", blocked=False, p_requested_at=REQUEST_TIMEOUT),
            NOWHERE: does("filer", filer_requested_at=REQUEST_TIMEOUT),
            ACCEPTED: does("p", blocked=False, p_requested_at=REQUEST_TIMEOUT),
        },
        "next step after the request timeout, primary suspect": {
            (NEW, REQUESTED, FAILED, NOT_HOSTED, FILER, FILER_FAILED): does("f", f_requested_at=REQUEST_TIMEOUT),
            (BOTH, SEALED): NOTHING,
            SUSPECTS: does("f", blocked=False, f_requested_at=REQUEST_TIMEOUT),
            NOWHERE: does("filer", filer_requested_at=REQUEST_TIMEOUT),
            ACCEPTED: does("f", blocked=False, f_requested_at=REQUEST_TIMEOUT),
        },
        "next step when the request is repeated": {
            (NEW, REQUESTED, BOTH, FAILED, FILER, FILER_FAILED): does("p", p_requested_at=REQUEST_REPEAT_AFTER),
            SUSPECTS: does("p", blocked=False, p_requested_at=REQUEST_REPEAT_AFTER),
            NOT_HOSTED: does("f", f_requested_at=REQUEST_REPEAT_AFTER),
            NOWHERE: does("filer", filer_requested_at=REQUEST_REPEAT_AFTER),
            ACCEPTED: does("p", blocked=False, p_requested_at=REQUEST_REPEAT_AFTER),
            SEALED: NOTHING,
        },
        "next step when the clock went back": {
            (NEW, FILER, FILER_FAILED): does("p", p_requested_at=-1),
            (REQUESTED, BOTH, SEALED): NOTHING,
            SUSPECTS: does(blocked=False),
            (FAILED, NOT_HOSTED): does("f", f_requested_at=-1),
            NOWHERE: does("filer", filer_requested_at=-1),
            ACCEPTED: does("filer", blocked=False, filer_requested_at=-1),
        },
        "the call to the primary fails": {
            (NEW, FAILED, NOT_HOSTED, NOWHERE, FILER, FILER_FAILED): does(p_failed_at=1),
            (REQUESTED, BOTH, SUSPECTS, ACCEPTED, SEALED): does(p_requested_at=None, p_failed_at=1),
        },
        "the call to an unknown incarnation fails": {
            EVERYWHERE: KeyError,
        },
        "the primary does not host it": {
            (NEW, FAILED, FILER, FILER_FAILED): does(p_hosts=False),
            (REQUESTED, BOTH, SUSPECTS, ACCEPTED, SEALED): does(p_requested_at=None, p_hosts=False),
            (NOT_HOSTED, NOWHERE): NOTHING,
        },
        "the seal from the filer fails": {
            (NEW, REQUESTED, BOTH, SUSPECTS, FAILED, NOT_HOSTED, NOWHERE, FILER_FAILED, ACCEPTED, SEALED): does(
                filer_failed_at=1
            ),
            FILER: does(filer_requested_at=None, filer_failed_at=1),
        },
        "the loss is accepted": {
            (NEW, REQUESTED, BOTH, SUSPECTS, FAILED, NOT_HOSTED, NOWHERE, FILER, FILER_FAILED, SEALED): does(
                loss_accepted=True
            ),
            ACCEPTED: NOTHING,
        },
        "sealed": {
            (NEW, REQUESTED, BOTH, FAILED, NOT_HOSTED, NOWHERE, FILER, FILER_FAILED, SEALED): does(outcome=6),
            (SUSPECTS, ACCEPTED): does(outcome=6, blocked=False),
        },
        "release requests": {
            EVERYWHERE: does(["p", "f"], released=2),
        },
    },
)


def test_the_table_is_complete() -> None:
    TABLE.check_complete()


@pytest.mark.parametrize(("state", "input_"), TABLE.pairs())
def test_a_seal_in_every_state_with_every_input(state: str, input_: str) -> None:
    TABLE.check(state, input_)
