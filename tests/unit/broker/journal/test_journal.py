"""What brokers acked survives their end in journals, and a later process seals from them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from smq_broker.journal import folder as folder_module
from smq_broker.journal import segment_journal
from smq_broker.journal.disk_activity import DiskActivity
from smq_broker.journal.file_writer import FileWriter
from smq_broker.journal.journal_files import first_offset, read_regular
from smq_broker.journal.journal_metrics import JournalMetrics
from smq_broker.journal.record_format import EMPTY_BYTES
from smq_broker.journal.segment_journal import SegmentJournal
from smq_broker.recovery import recovered_logs
from smq_broker.recovery.recovered_segment import RecoveredSegment
from smq_broker.rows.replication_messages import encode_message
from smq_broker.segments.journaling import write_message
from smq_core.errors import InvalidRequest, JournalIncomplete, NotHosted, Unavailable
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Layout, Segment
from smq_core.model.loss import Loss
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog.layouts import put_layout
from smq_storage.catalog.topics import put_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.journaled_brokers import JournaledBrokers
from support.waiting import HANG_GUARD, eventually

VALUES = [b"a", b"bb", b"", b"dddd", b"e"]


@pytest.fixture
def brokers(tmp_path: Path) -> JournaledBrokers:
    return JournaledBrokers(tmp_path)


@pytest.mark.parametrize("number", [0, 1])
def test_either_of_two_killed_brokers_has_all_that_was_acked(brokers: JournaledBrokers, number: int) -> None:
    brokers.write(VALUES)
    brokers.restart()
    assert brokers.brokers[number].recovered.incarnations() == [brokers.segment.replicas[number].incarnation]
    outcome = brokers.seal_recovered(number, len(VALUES))
    assert (outcome.end, outcome.lost) == (len(VALUES), None)
    assert brokers.stored_values() == VALUES
    assert outcome.producers == {} and brokers.chain.read_seal_chunk() is not None


def test_a_seal_does_not_wait_for_the_removal_of_a_journal(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    broker = brokers.brokers[0]
    hosted = broker.hosted(brokers.topic, brokers.segment)
    assert hosted.journal is not None
    with hosted.journal.lock:  # as an operation on a disk that does not answer
        outcome = broker.sealer.seal(hosted, (), "test", lambda: False)
        assert hosted.journal.folder.exists()
    assert outcome.end == len(VALUES)
    eventually(lambda: hosted.journal is not None and not hosted.journal.folder.exists())


@pytest.mark.parametrize("number", [0, 1])
def test_small_batches_are_recovered(brokers: JournaledBrokers, number: int) -> None:
    brokers.write(VALUES)
    brokers.append_small(VALUES)
    brokers.restart()
    brokers.seal_recovered(number, 2 * len(VALUES))
    assert brokers.stored_values() == 2 * VALUES


def test_the_producers_state_comes_from_chain_and_journal(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES[:2], "p")
    brokers.flush()
    brokers.write(VALUES[2:], "q")
    brokers.restart()
    brokers.seal_recovered(0)
    seal = brokers.chain.read_seal_chunk()
    assert seal is not None
    assert {name: state.last_sequence for name, state in seal.outcome.producers.items()} == {"p": 1, "q": 2}
    assert brokers.stored_values() == VALUES


def test_a_stored_tail_needs_no_records_and_loses_nothing(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    brokers.flush()
    for number in (0, 1):
        eventually(lambda number=number: [it.stat().st_size for it in brokers.files(number)[:-1]] == [EMPTY_BYTES])
    brokers.restart()
    for number in (0, 1):
        outcome = brokers.seal_recovered(number, len(VALUES))
        assert (outcome.end, outcome.lost) == (len(VALUES), None)


def test_a_segment_without_messages_is_recovered(brokers: JournaledBrokers) -> None:
    brokers.restart()
    assert brokers.seal_recovered(0).end == 0


def test_a_sealed_segment_leaves_nothing(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    for broker in brokers.brokers:
        broker.seal(brokers.topic, brokers.segment)
    assert brokers.files(0) == brokers.files(1) == []
    assert all(it.journal_metrics.disk_bytes == 0 for it in brokers.brokers)
    brokers.restart()
    assert not brokers.brokers[0].recovered.unsealed()
    with pytest.raises(NotHosted):
        brokers.seal_recovered(0)


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_acked_before_both_journals_have_it(
    brokers: JournaledBrokers, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, waits = threading.Event(), threading.Event()
    brokers.write([b"before"], "another")  # the follower is connected from now on
    slow = brokers.brokers[number].hosted(brokers.topic, brokers.segment).journal
    append = SegmentJournal.append

    def append_slowly(journal: SegmentJournal, *args: Any) -> None:
        if journal is slow:
            waits.set()
            assert may_write.wait(HANG_GUARD)
        append(journal, *args)

    monkeypatch.setattr(SegmentJournal, "append", append_slowly)
    producer = brokers.brokers[0].produce(brokers.topic, brokers.segment)
    producer.send(0, rows([b"a"]))
    assert waits.wait(HANG_GUARD)
    follower = brokers.brokers[1].hosted(brokers.topic, brokers.segment)
    eventually(lambda: follower.machine.end == 2, "the other replica has it")
    machine = brokers.brokers[0].hosted(brokers.topic, brokers.segment).machine
    assert (machine.end, machine.watermark) == (2, 1)
    may_write.set()
    assert producer.wait_acked(0) == 1


def test_a_batch_is_acked_when_the_primarys_journal_is_the_last_one_to_have_it(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, waits = threading.Event(), threading.Event()
    brokers.write([b"before"], "another")
    hosted = brokers.brokers[0].hosted(brokers.topic, brokers.segment)
    append = SegmentJournal.append

    def append_slowly(journal: SegmentJournal, *args: Any) -> None:
        if journal is hosted.journal:
            waits.set()
            assert may_write.wait(HANG_GUARD)
        append(journal, *args)

    monkeypatch.setattr(SegmentJournal, "append", append_slowly)
    producer = brokers.brokers[0].produce(brokers.topic, brokers.segment)
    producer.send(0, rows([b"a"]))
    assert waits.wait(HANG_GUARD)
    eventually(lambda: [it.acked for it in hosted.machine._followers.values()] == [2], "the other replica has it")
    acked: list[Any] = []
    for session in hosted.streams:
        monkeypatch.setattr(session, "acked", acked.extend)
    hosted.journal_written(2)
    assert [ack.id.sequence for ack in acked] == [0], "nobody else has to look at the segment before"
    may_write.set()


def test_only_one_link_of_three_replicas_writes_the_journal(tmp_path: Path) -> None:
    brokers = JournaledBrokers(tmp_path, count=3)
    brokers.write(VALUES)
    brokers.restart()
    for number in range(3):
        (recovered,) = brokers.brokers[number].recovered.unsealed()
        assert recovered.machine.end == len(VALUES)
    assert brokers.seal_recovered(2).end == len(VALUES)
    assert brokers.stored_values() == VALUES


@pytest.mark.parametrize("number", [0, 1])
def test_a_stream_that_breaks_before_the_journal_is_written_leaves_no_gap(
    brokers: JournaledBrokers, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = brokers.brokers[number].hosted(brokers.topic, brokers.segment).journal
    append = SegmentJournal.append
    failures = [Unavailable("the stream breaks")] * 2

    def fail_twice(it: SegmentJournal, *args: Any) -> None:
        if it is journal and failures:
            raise failures.pop()
        append(it, *args)

    monkeypatch.setattr(SegmentJournal, "append", fail_twice)
    brokers.write(VALUES)
    assert not failures
    brokers.restart()
    assert brokers.seal_recovered(number, len(VALUES)).end == len(VALUES)
    assert brokers.stored_values() == VALUES


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("first", [0, 1])
def test_a_message_that_the_journal_has_in_part_is_not_written_twice(
    brokers: JournaledBrokers, number: int, first: int
) -> None:
    brokers.write(VALUES)
    hosted = brokers.brokers[number].hosted(brokers.topic, brokers.segment)
    eventually(lambda: hosted.machine.journal_end == len(VALUES))
    entries = tuple(hosted.machine.tail)[first:]
    message = ReplicationMessage(base_offset=entries[0].first, entries=entries, watermark=0, chain_end=0, credit=0)
    header, rows = encode_message(message, hosted.wire.empty)
    write_message(hosted, message, header, b"" if rows is None else rows)
    brokers.restart()
    assert brokers.seal_recovered(number, len(VALUES)).end == len(VALUES), "it is complete"
    assert brokers.stored_values() == VALUES


# ---- damage


def damage_last_record(brokers: JournaledBrokers, number: int) -> None:
    file = [it for it in brokers.files(number) if it.suffix == ".log"][-1]
    content = bytearray(file.read_bytes())
    content[-70] ^= 1
    file.write_bytes(content)


def test_an_incomplete_journal_says_what_it_has(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    damage_last_record(brokers, 0)
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="is damaged") as raised:
        brokers.seal_recovered(0)
    assert raised.value.end < len(VALUES)
    assert brokers.chain.read_seal_chunk() is None
    assert brokers.seal_recovered(1).end == len(VALUES), "the other one has all"


def test_an_incomplete_journal_is_used_if_nobody_has_more(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    damage_last_record(brokers, 0)
    brokers.restart()
    outcome = brokers.seal_recovered(0, len(VALUES), accept_incomplete=True)
    assert brokers.stored_values() == VALUES[: outcome.end]
    assert outcome.end < len(VALUES)
    assert outcome.lost == Loss(outcome.end, len(VALUES), at_least=True)


def test_a_journal_that_ends_before_a_known_watermark_is_incomplete(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES[:3])
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="messages below 4 were acked"):
        brokers.seal_recovered(0, 4)
    assert brokers.seal_recovered(0, 3).end == 3


def test_a_journal_whose_beginning_is_missing_is_incomplete(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in brokers.brokers:
        journal = broker.hosted(brokers.topic, brokers.segment).journal
        assert journal is not None
        journal._file_bytes = 1
    for number, value in enumerate(VALUES):
        brokers.write([value], f"p{number}")  # a record each
    brokers.files(0)[0].unlink()
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="the filer ends at 0"):
        brokers.seal_recovered(0)
    assert not brokers.brokers[0].recovered.waiting(), "this process does not seal it by itself"


def test_a_journal_of_which_only_a_torn_record_is_left_is_incomplete(brokers: JournaledBrokers) -> None:
    journal = brokers.brokers[0].hosted(brokers.topic, brokers.segment).journal
    assert journal is not None
    journal._file_bytes = 1
    brokers.write(VALUES[:1], "p0")
    brokers.write(VALUES[1:], "p1")
    *others, last = [path for path in brokers.files(0) if first_offset(path) is not None]
    for file in others:
        file.unlink()
    with last.open("r+b") as torn:
        torn.truncate(last.stat().st_size // 2)
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="the filer ends at 0"):
        brokers.seal_recovered(0)


def test_a_chain_that_was_read_too_early_leaves_a_journal_complete(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.write(VALUES)
    brokers.flush()
    eventually(lambda: brokers.files(0)[0].stat().st_size == EMPTY_BYTES, "the journal is trimmed")
    brokers.write(VALUES, "q")
    brokers.restart()
    with monkeypatch.context() as patched:
        patched.setattr(ChunkChain, "end", lambda _: 0)
        with pytest.raises(JournalIncomplete, match="the filer ends at 0"):
            brokers.seal_recovered(0)
    assert brokers.seal_recovered(0).end == 2 * len(VALUES)


def test_a_journal_without_any_file_is_incomplete(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    for path in brokers.files(0):
        if path.suffix == ".log":
            path.unlink()
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="its files are missing"):
        brokers.seal_recovered(0)


def test_after_a_reboot_no_journal_is_complete(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    brokers.write(VALUES)
    monkeypatch.setattr(folder_module, "boot_id", lambda: "another boot")
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="started again") as raised:
        brokers.seal_recovered(0)
    assert raised.value.end == len(VALUES)


def test_a_full_disk_stops_nothing_and_is_reported(brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers.write(VALUES[:1])

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(FileWriter, "write", fail)
        brokers.write(VALUES, "q")
    brokers.write(VALUES, "r")
    for broker in brokers.brokers:
        assert "No space left" in broker.reporter.status().journal_problem
        assert broker.journal_metrics.failures == 1
    brokers.restart()
    with pytest.raises(JournalIncomplete, match="a write to this journal failed"):
        brokers.seal_recovered(0)


def test_a_disk_that_fails_while_a_segment_opens_leaves_it_without_a_journal(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    before = brokers.segment
    brokers.write(VALUES)
    monkeypatch.setattr(segment_journal, "write_definition", fail)
    brokers.segment = brokers.open(*brokers.brokers, number=1)
    brokers.write(VALUES)
    brokers.restart()
    with pytest.raises(NotHosted, match="may be incomplete") as raised:
        brokers.seal_recovered(0)
    assert raised.value.certain is False
    brokers.segment = before
    assert brokers.seal_recovered(0, len(VALUES)).end == len(VALUES), "its other journals are as good as before"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_a_broker_starts_on_a_disk_that_cannot_be_written(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    brokers.write(VALUES)
    before = brokers.segment

    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as full:
        full.setattr(folder_module.Path, "mkdir", fail)
        brokers.restart()
        brokers.segment = brokers.open(*brokers.brokers, number=1)
        brokers.write(VALUES)
        for broker in brokers.brokers:
            assert os.strerror(error) in broker.reporter.status().journal_problem
    without_journal, brokers.segment = brokers.segment, before
    assert brokers.seal_recovered(0, len(VALUES)).end == len(VALUES), "what former processes left is as good as before"

    brokers.segment = with_journal = brokers.open(*brokers.brokers, number=2)
    brokers.write(VALUES)
    brokers.restart()
    brokers.segment = with_journal
    assert brokers.seal_recovered(0, len(VALUES)).end == len(VALUES), "it was opened when there was space again"
    brokers.segment = without_journal
    with pytest.raises(NotHosted, match="may be incomplete") as raised:
        brokers.seal_recovered(0)
    assert raised.value.certain is False


def test_a_broker_starts_on_a_full_disk_that_no_process_has_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = os.open

    def fail_for_new_files(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return opens(path, flags, *args, **kwargs)

    with monkeypatch.context() as full:
        full.setattr(os, "open", fail_for_new_files)
        brokers = JournaledBrokers(tmp_path)
        brokers.write(VALUES)
    assert "no space for a lock" in brokers.brokers[0].reporter.status().journal_problem
    assert not brokers.files(0)


def test_a_folder_that_cannot_be_listed_is_not_given_up(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(folder_module.Path, "iterdir", fail)
    with pytest.raises(InvalidRequest, match=r"messages that nothing else has: .*Input/output error"):
        brokers.restart()


@pytest.mark.parametrize("name", ["process.json", "segment.json", "00000000000000000000.log"])
def test_a_pipe_in_a_journal_does_not_hang_the_start(brokers: JournaledBrokers, name: str) -> None:
    brokers.write(VALUES)
    found = next(brokers.journal("b1").rglob(name))
    found.unlink()
    os.mkfifo(found)
    network: dict[str, BrokerParts] = {}
    brokers.brokers[0].kill()
    broker = BrokerParts("b1", brokers.store, network, journal=brokers.journal("b1"), start=2)
    assert all(not it.complete for it in broker.recovered.unsealed() if isinstance(it, RecoveredSegment))


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"):
        read_regular(pipe, 1)


def test_a_file_that_is_too_large_is_not_read(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    with next(brokers.journal("b1").rglob("*.log")).open("r+b") as file:
        file.truncate(1 << 40)
    brokers.brokers[0].kill()
    broker = BrokerParts("b1", brokers.store, {}, journal=brokers.journal("b1"), start=2)
    (log,) = broker.recovered.unsealed()
    assert isinstance(log, RecoveredSegment) and not log.complete


def test_nobody_else_may_read_a_journal(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    found = list(brokers.journal("b1").rglob("*"))
    folders = {it.stat().st_mode & 0o777 for it in found if it.is_dir() and it.parent == brokers.journal("b1")}
    assert folders == {0o700} and brokers.journal("b1").stat().st_mode & 0o777 == 0o700
    records = {it.stat().st_mode & 0o777 for it in found if it.suffix == ".log"}
    assert records == {0o600}


def test_a_replica_that_cannot_mark_its_journal_acks_nothing_more(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(FileWriter, "write", fail)
    monkeypatch.setattr(segment_journal, "mark_broken", fail)
    producer = brokers.brokers[0].produce(brokers.topic, brokers.segment)
    producer.send(0, rows([b"a"]))
    hosted = brokers.brokers[0].hosted(brokers.topic, brokers.segment)
    eventually(lambda: hosted.machine.state is not ReplicaState.OPEN, "it is fenced")
    assert not producer.acked


def test_a_replica_that_can_neither_write_nor_mark_acks_nothing(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(segment_journal, "write_definition", fail)
    monkeypatch.setattr(folder_module.Path, "rename", fail)
    brokers.segment = brokers.open(*brokers.brokers, number=1)
    for broker in brokers.brokers:
        # The one that finds its follower fenced seals the segment.
        assert broker.hosted(brokers.topic, brokers.segment).machine.state in (ReplicaState.FENCED, ReplicaState.SEALED)


# ---- what the absence of a log proves


def is_certain(brokers: JournaledBrokers, incarnation: str = "i-b1") -> bool:
    """Whether b1 says for certain that this incarnation never hosted a segment, which no process ever opened."""
    with pytest.raises(NotHosted) as raised:
        brokers.brokers[0].recovered.find(incarnation, brokers.topic.uid, "t-0-1024-9")
    return raised.value.certain


def process_file(brokers: JournaledBrokers) -> Path:
    return brokers.journal("b1") / "i-b1" / "process.json"


def test_a_whole_journal_proves_what_was_never_hosted(brokers: JournaledBrokers) -> None:
    brokers.restart()
    assert is_certain(brokers) is True


def test_a_journal_whose_last_log_is_sealed_is_still_a_proof(brokers: JournaledBrokers) -> None:
    put_topic(brokers.store, brokers.topic)
    brokers.restart()
    brokers.seal_recovered(0)
    brokers.brokers[0].recovered.poll()
    assert brokers.brokers[0].recovered.incarnations() == ["i-b1"] and is_certain(brokers) is True
    brokers.restart()
    assert brokers.brokers[0].recovered.incarnations() == ["i-b1", "i-b1-2"]
    assert is_certain(brokers) is is_certain(brokers, "i-b1-2") is True


def test_journals_without_logs_are_kept_for_some_time(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_topic(brokers.store, brokers.topic)
    brokers.restart()
    monkeypatch.setattr(recovered_logs, "WITHOUT_LOGS_SECONDS", 0)
    recovered = brokers.brokers[0].recovered
    recovered.poll()
    assert recovered.incarnations() == ["i-b1"], "its log is not sealed"
    brokers.seal_recovered(0)
    recovered.poll()
    assert recovered.incarnations() == [] and not process_file(brokers).parent.exists()
    assert is_certain(brokers) is True, "while this process runs, it knows"


def test_only_the_newest_journals_without_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_WITHOUT_LOGS", 2)
    network: dict[str, BrokerParts] = {}
    store = open_store("memory://")
    for start in range(1, 6):
        broker = BrokerParts("b1", store, network, journal=tmp_path, start=start)
        process = tmp_path / broker.replica.incarnation / "process.json"
        os.utime(process, (start, start))
        if start < 5:
            broker.kill()
    assert broker.recovered.incarnations() == ["i-b1-3", "i-b1-4"]


def test_a_journal_of_another_boot_proves_nothing(brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "boot_id", lambda: "another boot")
    brokers.restart()
    assert is_certain(brokers) is False


@pytest.mark.parametrize("damage", ["process.json is gone", "another root", "unusable log"])
def test_a_journal_that_may_lack_segments_proves_nothing(brokers: JournaledBrokers, damage: str) -> None:
    file = process_file(brokers)
    document = json.loads(file.read_text())
    if damage == "process.json is gone":
        file.unlink()
    elif damage == "another root":
        file.write_text(json.dumps(document | {"root": "another"}))
    else:
        brokers.write(VALUES)
        other = file.parent / "u" / "t-0-1024-9"
        other.mkdir(parents=True)
        (other / "segment.json").write_text("{")
    brokers.restart()
    assert is_certain(brokers) is False


def test_a_segment_whose_files_were_deleted_leaves_a_mark(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    shutil.rmtree(process_file(brokers).parent / brokers.topic.uid)
    monkeypatch.setattr(FileWriter, "write", fail)
    brokers.write(VALUES)
    brokers.restart()
    assert not brokers.brokers[0].recovered.holds("i-b1")


# ---- the folder


def test_two_processes_never_use_one_folder(brokers: JournaledBrokers) -> None:
    with pytest.raises(InvalidRequest, match="used by another process"):
        brokers.start("b1")


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_folders_of_others_are_left_alone(brokers: JournaledBrokers) -> None:
    (brokers.journal("b1") / "lost+found").mkdir()
    brokers.restart()
    assert (brokers.journal("b1") / "lost+found").exists()


def test_a_journal_that_cannot_begin_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = folder_module.JournalFolder(
        folder=tmp_path, incarnation="i-1", root="root", meter=JournalMetrics(DiskActivity()), activity=DiskActivity()
    )
    journal.lock()
    with monkeypatch.context() as disk:
        disk.setattr(folder_module.Path, "rename", full_disk)
        with pytest.raises(OSError, match="No space left"):
            journal.begin()
    assert not (tmp_path / "i-1").exists()
    journal.begin()
    assert (tmp_path / "i-1/process.json").exists()


def test_what_a_process_left_that_ended_at_its_beginning_is_removed(brokers: JournaledBrokers) -> None:
    unfinished, others = brokers.journal("b1") / "i-0", brokers.journal("b1") / "lost+found"
    for folder in (unfinished, others):
        folder.mkdir()
        (folder / "process.json.tmp").write_text("{")
    (others / "of-another-program").touch()
    brokers.write(VALUES)
    brokers.restart()
    names = {it.name for it in brokers.journal("b1").iterdir()}  # a copy
    assert "i-0" not in names and names >= {"i-b1", "lost+found"}
    assert brokers.brokers[0].recovered.incarnations() == ["i-b1"]


def test_a_process_that_starts_twice_recovers_both(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    first = brokers.segment
    brokers.restart()
    brokers.segment = brokers.open(*brokers.brokers, number=1)
    brokers.write(VALUES[:2])
    second = brokers.segment
    brokers.restart()
    assert brokers.brokers[0].recovered.incarnations() == ["i-b1", "i-b1-2"]
    for segment, count in ((first, 5), (second, 2)):
        brokers.segment = segment
        assert brokers.seal_recovered(0).end == count


# ---- logs that nobody needs any more


def recovered_after_poll(brokers: JournaledBrokers) -> list[str]:
    """The incarnations of the logs that b1 has."""
    recovered = brokers.brokers[0].recovered
    recovered.poll()
    return [it.incarnation for it in recovered.unsealed()]


def put_layout_with(brokers: JournaledBrokers, *segments: Segment, next_number: int) -> None:
    topic = brokers.topic
    layout = Layout(
        topic=topic.name,
        uid=topic.uid,
        partitions=topic.spec.partitions,
        version=1,
        next_number=next_number,
        segments=segments,
        writer="w",
    )
    put_layout(brokers.store, layout, None)


def test_the_log_of_a_deleted_topic_is_dropped(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    brokers.restart()
    assert recovered_after_poll(brokers) == []
    assert not [it for it in brokers.files(0) if it.suffix == ".log"]


def test_the_log_of_a_topic_that_is_not_in_this_filer_is_kept(
    brokers: JournaledBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.write(VALUES)
    process = next(brokers.journal("b1").glob("*/process.json"))
    process.write_text(process.read_text().replace('"root"', '"root" ').replace(':"root', ':"another'))
    brokers.restart()
    assert recovered_after_poll(brokers) == ["i-b1"]


def test_the_log_of_a_known_topic_is_kept(brokers: JournaledBrokers) -> None:
    put_topic(brokers.store, brokers.topic)
    brokers.restart()
    assert recovered_after_poll(brokers) == ["i-b1"]


@pytest.mark.parametrize("named", [True, False])
def test_a_log_is_kept_while_a_layout_names_its_segment(brokers: JournaledBrokers, named: bool) -> None:
    put_layout_with(brokers, *([brokers.segment] if named else []), next_number=1)
    brokers.restart()
    assert recovered_after_poll(brokers) == (["i-b1"] if named else [])


def test_a_log_is_kept_while_the_stored_layout_may_be_too_old(brokers: JournaledBrokers) -> None:
    put_layout_with(brokers, next_number=0)
    brokers.restart()
    assert recovered_after_poll(brokers) == ["i-b1"]


def test_a_log_is_dropped_when_another_process_has_sealed_its_segment(brokers: JournaledBrokers) -> None:
    put_topic(brokers.store, brokers.topic)
    brokers.write(VALUES)
    brokers.restart()
    brokers.seal_recovered(1)
    (recovered,) = brokers.brokers[0].recovered.unsealed()
    brokers.brokers[0].watcher.enqueue(recovered)
    brokers.brokers[0].watcher.check_next()
    assert recovered_after_poll(brokers) == []
    assert brokers.seal_recovered(0).end == len(VALUES), "it still answers"
    brokers.restart()
    assert not brokers.brokers[0].recovered.unsealed(), "nothing is left on the disk"


def test_a_seal_that_another_process_made_removes_the_journal(brokers: JournaledBrokers) -> None:
    brokers.write(VALUES)
    broker = brokers.brokers[1]
    hosted = broker.hosted(brokers.topic, brokers.segment)
    assert hosted.journal is not None and hosted.journal.folder.exists()
    broker.sealer.record_seal(
        hosted,
        ChunkInfo(segment=brokers.segment.name, first=len(VALUES), rows=0, writer="leader", nonce="n", sealed=True),
    )
    assert not hosted.journal.folder.exists()
    assert broker.hosted(brokers.topic, brokers.segment) is hosted, "streams still find it, and get its outcome"


def test_what_was_acked_beyond_a_seal_is_reported(brokers: JournaledBrokers) -> None:
    put_topic(brokers.store, brokers.topic)
    brokers.write(VALUES)
    brokers.write(VALUES, "q")
    brokers.restart()
    brokers.chain.put_seal(
        ChunkInfo(segment=brokers.segment.name, first=0, rows=0, writer="leader", nonce="n", sealed=True)
    )
    (recovered,) = brokers.brokers[0].recovered.unsealed()
    brokers.brokers[0].watcher.enqueue(recovered)
    brokers.brokers[0].watcher.check_next()
    recovered_after_poll(brokers)
    (report,) = brokers.brokers[0].reporter.status().segments
    assert report.segment == brokers.segment.name and report.state == pb.SegmentReport.SEALED
    assert len(VALUES) <= report.watermark <= report.end
