"""A producer id belongs to the process that claimed it last, whoever writes at the same time."""

from __future__ import annotations

import pytest

from smq_core.errors import Conflict, ProducerFenced
from smq_core.producing.producer_claim import ProducerClaim
from smq_storage.catalog import paths, producer_claims
from smq_storage.catalog.producer_claims import claim
from smq_storage.object_store.json_documents import read_document
from smq_storage.object_store.store import Store, open_store

TOPIC, UID, PRODUCER = "default/t", "uid", "orders"


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def claims(store: Store, instance: str, epoch: int | None = None) -> int:
    return claim(store, TOPIC, UID, PRODUCER, instance, epoch, now=1).epoch


def claimed_by(store: Store) -> ProducerClaim:
    found = read_document(store, paths.producer_claim(TOPIC, UID, PRODUCER), ProducerClaim)
    assert found is not None
    return found[0]


def test_each_process_gets_the_next_epoch_and_keeps_it(store: Store) -> None:
    assert [claims(store, instance) for instance in ("a", "a", "b", "b", "c")] == [0, 0, 1, 1, 2]
    assert claimed_by(store) == ProducerClaim(producer=PRODUCER, epoch=2, instance="c", claimed_at=1)
    with pytest.raises(ProducerFenced):
        claims(store, "d", epoch=2)


def test_of_two_processes_that_claim_at_once_one_gets_the_next_epoch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = producer_claims.write_document

    def write_late(*args: object, **options: object) -> object:
        monkeypatch.undo()
        assert claims(store, "first") == 0
        return write(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(producer_claims, "write_document", write_late)
    assert claims(store, "second") == 1
    assert claimed_by(store).instance == "second"


def test_an_epoch_that_another_process_claims_meanwhile_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = producer_claims.write_document

    def write_late(*args: object, **options: object) -> object:
        monkeypatch.undo()
        claims(store, "first", epoch=7)
        return write(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(producer_claims, "write_document", write_late)
    with pytest.raises(ProducerFenced):
        claims(store, "second", epoch=7)
    assert claimed_by(store).instance == "first"


def test_claims_that_never_succeed_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_claims, "write_document", lambda *_, **__: None)
    with pytest.raises(Conflict, match="try again"):
        claims(store, "a")
