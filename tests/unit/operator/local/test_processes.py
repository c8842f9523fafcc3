"""Broker processes as the local leader keeps them: proofs of death, restarts, adoption. The processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smq_core.errors import InvalidRequest
from smq_operator.local import broker_processes
from smq_operator.local.broker_processes import INCARNATION_VARIABLE, BrokerProcesses, broker_command
from smq_operator.local.broker_records import BrokerRecord, read_records
from smq_storage.process import pids
from smq_storage.process.pids import FOLDER_VARIABLE, find_by_environment
from support.waiting import HANG_GUARD, wait_until

# Counts the SIGTERMs it gets in a file, and ends at the first one after `slow`.
SCRIPT = """
import os, signal, sys, time
folder, slow = sys.argv[1], float(sys.argv[2])
def on(*_):
    with open(os.path.join(folder, os.environ["SMQ_INCARNATION"]), "a") as file:
        file.write("t")
    signal.setitimer(signal.ITIMER_REAL, slow)
signal.signal(signal.SIGTERM, on)
signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
print("started", flush=True)
while True:
    time.sleep(0.01)  # signal.pause() would miss a signal that came just before it
"""


class LocalBrokers:
    def __init__(self, folder: Path, slow: float = 0.01, leader: str = "l:1") -> None:
        self.folder = folder
        self.news = 0
        self.slow = slow
        self.leader = leader

    def processes(self) -> BrokerProcesses:
        command = [sys.executable, "-c", SCRIPT, str(self.folder), str(self.slow)]
        made = BrokerProcesses(
            folder=self.folder, leader=self.leader, command=command, environment={}, changed=self.changed
        )
        made.adopt()
        return made

    def changed(self) -> None:
        self.news += 1

    def record(self, name: str = "b") -> BrokerRecord:
        return next(r for r in read_records(self.folder / "brokers")[0] if r.name == name)

    def started(self, count: int = 1) -> bool:
        path = self.folder / "logs" / "b.log"
        return path.exists() and path.read_text().count("started") >= count

    def terms(self, incarnation: str) -> int:
        path = self.folder / incarnation
        return len(path.read_text()) if path.exists() else 0


async def test_a_killed_process_is_proved_dead_and_started_again_under_its_name(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path)
    processes = local_brokers.processes()
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    old = local_brokers.record()
    assert processes.current_incarnation("b") == old.incarnation
    assert processes.termination_proof(old.incarnation) is None
    os.kill(old.pid or 0, signal.SIGKILL)
    await wait_until(lambda: processes.termination_proof(old.incarnation))
    proof = processes.termination_proof(old.incarnation)
    assert proof is not None and "SIGKILL" in proof.text and proof.journal_gone
    await wait_until(lambda: local_brokers.started(2))
    new = local_brokers.record()
    assert new.incarnation != old.incarnation and new.terminated == [old.incarnation]
    assert processes.termination_proof(new.incarnation) is None
    await processes.stop(HANG_GUARD)


async def test_a_restarted_broker_ends_in_order_and_gets_a_new_process(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path)
    processes = local_brokers.processes()
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    old = local_brokers.record().incarnation
    processes.restart("b")
    await wait_until(lambda: local_brokers.started(2))
    assert local_brokers.terms(old) == 1 and processes.termination_proof(old) is not None
    assert processes.current_incarnation("b") not in (None, old)
    with pytest.raises(InvalidRequest, match="should not run"):
        processes.restart("nobody")
    await processes.stop(HANG_GUARD)


async def test_a_wrapper_becomes_the_broker(tmp_path: Path):
    """What ends is the broker itself, so its end proves what the end of a broker proves."""

    local_brokers = LocalBrokers(tmp_path)
    command = ["env", "WRAPPED=yes", sys.executable, "-c", SCRIPT, str(local_brokers.folder), "0.01"]
    processes = BrokerProcesses(
        folder=local_brokers.folder,
        leader=local_brokers.leader,
        command=command,
        environment={},
        changed=local_brokers.changed,
    )
    processes.adopt()
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    old = local_brokers.record()
    environment = Path(f"/proc/{old.pid}/environ").read_bytes().split(b"\0")
    assert b"WRAPPED=yes" in environment and b"SMQ_NAME=b" in environment
    os.kill(old.pid or 0, signal.SIGKILL)
    await wait_until(lambda: processes.termination_proof(old.incarnation))
    await processes.stop(HANG_GUARD)
    words = broker_command("1Gi", ("--zone=a",), ("nice", "-n", "5"))
    assert words[:4] == ["nice", "-n", "5", sys.executable] and words[-1] == "--zone=a"


async def test_a_later_leader_adopts_who_lives_and_knows_who_died(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path)
    first = local_brokers.processes()
    first.set_desired(["b", "c"])
    await wait_until(lambda: local_brokers.started() and (local_brokers.folder / "logs" / "c.log").read_text())
    lives, dies = local_brokers.record("b"), local_brokers.record("c")
    first.detach()
    os.kill(dies.pid or 0, signal.SIGKILL)
    os.waitpid(dies.pid or 0, 0)
    second = local_brokers.processes()
    assert second.termination_proof(dies.incarnation)
    assert second.termination_proof(lives.incarnation) is None
    second.set_desired(["b"])
    assert local_brokers.record("b").pid == lives.pid, "it is not started twice"
    os.kill(lives.pid or 0, signal.SIGKILL)
    await wait_until(lambda: second.termination_proof(lives.incarnation), "an adopted process is watched too")
    await second.stop(HANG_GUARD)


async def test_a_broker_gets_only_one_request_to_end(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path, slow=1.0)
    processes = local_brokers.processes()
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    record = local_brokers.record()
    processes.set_desired([])
    # The system merges a signal with one that the process has not received yet.
    await wait_until(lambda: local_brokers.terms(record.incarnation) == 1)
    processes.set_desired([])
    await processes.stop(HANG_GUARD)
    assert local_brokers.terms(record.incarnation) == 1


async def test_what_does_not_end_is_killed(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path, slow=60.0)
    processes = local_brokers.processes()
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    record = local_brokers.record()
    await processes.stop(0.2)
    assert pids.start_time(record.pid or 0) is None


async def test_a_broker_that_is_wanted_again_while_it_ends_is_started_again(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path, slow=0.2)
    processes = local_brokers.processes()
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    processes.set_desired([])
    processes.set_desired(["b"])
    await wait_until(lambda: local_brokers.started(2))
    await processes.stop(HANG_GUARD)


@pytest.mark.parametrize("what", ["another start time", "another boot"])
async def test_a_pid_says_nothing_by_itself(tmp_path: Path, what: str):
    local_brokers = LocalBrokers(tmp_path)
    (tmp_path / "brokers").mkdir()
    mine = pids.start_time(os.getpid())
    assert mine is not None
    record = BrokerRecord(
        name="b", incarnation="i", pid=os.getpid(), started=mine + (what == "another start time"), leader="l:1"
    )
    processes = BrokerProcesses(
        folder=tmp_path, leader="l:1", command=[], environment={}, changed=local_brokers.changed
    )
    record.boot = "another" if what == "another boot" else processes._boot
    record.write(tmp_path / "brokers")
    processes.adopt()
    assert processes.termination_proof("i")


def test_a_pid_that_a_thread_has_now_is_no_process():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        started = pids.start_time(thread.native_id)
        assert started is not None and pids.open_pidfd(thread.native_id, started) is None
    finally:
        end.set()
        thread.join()


async def test_a_process_whose_pid_was_never_written_down_is_found(tmp_path: Path):
    local_brokers = LocalBrokers(tmp_path)
    first = local_brokers.processes()
    first.set_desired(["b"])
    await wait_until(local_brokers.started)
    record = local_brokers.record()
    pid = record.pid
    first.detach()
    record.pid = record.started = None
    record.write(local_brokers.folder / "brokers")
    second = local_brokers.processes()
    assert second.termination_proof(record.incarnation) is None
    assert local_brokers.record().pid == pid
    second.set_desired(["b"])
    await second.stop(HANG_GUARD)


@pytest.mark.parametrize("lost", ["deleted", "damaged"])
async def test_a_broker_whose_record_is_lost_is_not_taken_for_dead(tmp_path: Path, lost: str):
    local_brokers = LocalBrokers(tmp_path)
    first = local_brokers.processes()
    first.set_desired(["b"])
    await wait_until(local_brokers.started)
    record = local_brokers.record()
    first.detach()
    path = local_brokers.folder / "brokers" / "b.json"
    path.unlink() if lost == "deleted" else path.write_text("{")
    second = local_brokers.processes()
    second.set_desired(["b"])
    assert second.current_incarnation("b") == record.incarnation
    assert second.termination_proof(record.incarnation) is None
    assert not local_brokers.started(2), "no second one is started beside it"
    await second.stop(HANG_GUARD)
    assert second.termination_proof(record.incarnation)


async def test_the_incarnation_is_in_the_record_before_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        found, _damaged = read_records(tmp_path / "brokers")
        seen.append((found[0].incarnation, env[INCARNATION_VARIABLE]))
        raise OSError("no processes left")

    monkeypatch.setattr("smq_operator.local.broker_processes.subprocess.Popen", popen)

    local_brokers = LocalBrokers(tmp_path)
    processes = local_brokers.processes()
    processes.set_desired(["b"])
    await wait_until(lambda: len(seen) >= 2, "it is tried again")
    assert all(written == given for written, given in seen)
    assert processes.termination_proof(seen[0][0])
    processes.detach()


def test_a_damaged_record_is_named(tmp_path: Path):
    folder = tmp_path / "brokers"
    folder.mkdir()
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text('["b"]')
    (folder / "d.json").write_text('{"name": "d", "incarnation": "i", "of_a_later_version": 1}')
    BrokerRecord(name="c", incarnation="i").write(folder)
    records, damaged = read_records(folder)
    assert [r.name for r in records] == ["c", "d"] and damaged == ["a.json", "b.json"]


async def test_a_broker_whose_process_cannot_be_watched_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    local_brokers = LocalBrokers(tmp_path)
    processes = local_brokers.processes()
    failures = [OSError("too many open files"), RuntimeError("can't start new thread")]
    open_pidfd = broker_processes.open_pidfd

    def failing(pid: int, started: int) -> int | None:
        if failures:
            raise failures.pop()
        return open_pidfd(pid, started)

    monkeypatch.setattr(broker_processes, "open_pidfd", failing)
    processes.set_desired(["b"])
    await wait_until(lambda: local_brokers.record().terminated and len(local_brokers.record().terminated) == 2)
    for incarnation in local_brokers.record().terminated:
        proof = processes.termination_proof(incarnation)
        assert proof is not None and proof.text == "its process could not be watched, and was killed"
    await wait_until(local_brokers.started)
    assert not failures
    await processes.stop(5)


@pytest.mark.parametrize("at", range(1, 7))
async def test_whatever_fails_at_a_start_the_broker_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
):
    """The n-th step of starting a process fails: its records, its log, its process, its identification."""
    local_brokers = LocalBrokers(tmp_path)
    processes = local_brokers.processes()
    calls = 0

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise RuntimeError("injected")
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr(BrokerRecord, "write", failing(BrokerRecord.write))
    monkeypatch.setattr(broker_processes.subprocess, "Popen", failing(subprocess.Popen))
    monkeypatch.setattr(broker_processes, "start_time", failing(broker_processes.start_time))
    monkeypatch.setattr(broker_processes, "open_pidfd", failing(broker_processes.open_pidfd))
    processes.set_desired(["b"])
    await wait_until(local_brokers.started)
    await wait_until(lambda: processes._children["b"].pidfd is not None)
    living = find_by_environment(FOLDER_VARIABLE, str(tmp_path))
    assert len(living) == 1, "no process runs unwatched"
    await processes.stop(5)


def test_a_record_with_fields_of_wrong_types_is_damaged(tmp_path: Path):
    BrokerRecord(name="good", incarnation="i-1").write(tmp_path)
    (tmp_path / "bad.json").write_text('{"name": "bad", "incarnation": "i-2", "pid": "many"}')
    (tmp_path / "worse.json").write_text("[1]")
    records, damaged = read_records(tmp_path)
    assert ([record.name for record in records], damaged) == (["good"], ["bad.json", "worse.json"])
