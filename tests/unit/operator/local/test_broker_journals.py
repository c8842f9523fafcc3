"""Local brokers with journals: whose journal may come back, and who is started to empty one. With real processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from smq_operator.local.broker_processes import BrokerProcesses
from smq_operator.local.broker_records import BrokerRecord, read_records
from smq_operator.local.journals import BrokerJournals
from support.waiting import HANG_GUARD, wait_until

# Writes a segment to its journal. If it drains it fails at first, then empties the journal, and ends.
SCRIPT = """
import os, pathlib, shutil, signal, sys, time
root, drains = os.environ["SMQ_JOURNAL"], os.environ["SMQ_DRAIN"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("started", os.environ["SMQ_INCARNATION"], root or "-", drains or "-", flush=True)
if drains:
    tried = pathlib.Path(root, "tried")
    if not tried.exists():
        tried.touch()
        sys.exit(1)
    for each in pathlib.Path(root).iterdir():
        if each.is_dir():
            shutil.rmtree(each)
    sys.exit(0)
if root:
    pathlib.Path(root, os.environ["SMQ_INCARNATION"], "uid", "segment").mkdir(parents=True)
    print("journal", flush=True)
while True:
    time.sleep(0.01)
"""


class LocalBrokers:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def processes(self, *, journal: bool = True) -> BrokerProcesses:
        made = BrokerProcesses(
            folder=self.folder,
            leader="l:1",
            command=[sys.executable, "-c", SCRIPT],
            environment={},
            changed=lambda: None,
            journal=journal,
        )
        made.adopt()
        return made

    def record(self) -> BrokerRecord:
        return next(r for r in read_records(self.folder / "brokers")[0] if r.name == "b")

    def starts(self) -> list[list[str]]:
        """What each process found: its incarnation, its journal, and whether it drains."""
        path = self.folder / "logs" / "b.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.startswith("started ")]

    def writes(self, count: int = 1) -> bool:
        path = self.folder / "logs" / "b.log"
        return path.exists() and path.read_text().count("journal\n") >= count

    @property
    def journal(self) -> Path:
        return self.folder / "brokers" / "b" / "journal"


@pytest.fixture
def brokers(tmp_path: Path) -> LocalBrokers:
    return LocalBrokers(tmp_path)


def gone(processes: BrokerProcesses, incarnation: str) -> bool | None:
    """Whether its journal is proved gone; None if not even the end of the process is."""
    proof = processes.termination_proof(incarnation)
    return proof.journal_gone if proof is not None else None


async def test_a_killed_process_leaves_its_journal_to_the_next_one(brokers: LocalBrokers):
    processes = brokers.processes()
    processes.set_desired(["b"])
    await wait_until(brokers.writes)
    old = brokers.record()
    assert brokers.starts() == [[old.incarnation, str(brokers.journal), "-"]]
    os.kill(old.pid or 0, signal.SIGKILL)
    await wait_until(lambda: gone(processes, old.incarnation) is not None)
    assert gone(processes, old.incarnation) is False
    await wait_until(lambda: brokers.writes(2))
    await processes.stop(HANG_GUARD)


async def test_a_process_that_left_nothing_in_its_journal_is_gone_with_it(brokers: LocalBrokers):
    processes = brokers.processes()
    processes.set_desired(["b"])
    await wait_until(brokers.writes)
    old = brokers.record()
    shutil.rmtree(brokers.journal / old.incarnation)
    os.kill(old.pid or 0, signal.SIGKILL)
    await wait_until(lambda: gone(processes, old.incarnation) is not None)
    assert gone(processes, old.incarnation) is True
    await processes.stop(HANG_GUARD)


async def test_a_journal_without_segments_comes_back_while_its_broker_is_wanted(brokers: LocalBrokers):
    first = brokers.processes()
    first.set_desired(["b"])
    await wait_until(brokers.writes)
    old = brokers.record()
    (brokers.journal / old.incarnation / "uid" / "segment").rmdir()
    first.detach()
    os.kill(old.pid or 0, signal.SIGKILL)
    os.waitpid(old.pid or 0, 0)
    second = brokers.processes()
    assert gone(second, old.incarnation) is False, "the next process can report what the former one did not host"
    second.set_desired([])
    assert gone(second, old.incarnation) is True, "no process is started only for that"
    assert len(brokers.starts()) == 1
    await second.stop(HANG_GUARD)


async def test_a_later_leader_finds_the_journals_of_those_who_died(brokers: LocalBrokers):
    first = brokers.processes()
    first.set_desired(["b"])
    await wait_until(brokers.writes)
    old = brokers.record()
    first.detach()
    os.kill(old.pid or 0, signal.SIGKILL)
    os.waitpid(old.pid or 0, 0)
    second = brokers.processes()
    assert gone(second, old.incarnation) is False
    second.set_desired(["b"])
    assert brokers.record().incarnation != old.incarnation, "it is started at once"
    await wait_until(lambda: brokers.writes(2))
    await second.stop(HANG_GUARD)


@pytest.mark.parametrize("record", ["there", "lost"])
async def test_a_broker_that_should_not_run_is_started_until_its_journal_is_empty(brokers: LocalBrokers, record: str):
    first = brokers.processes()
    first.set_desired(["b"])
    await wait_until(brokers.writes)
    old = brokers.record()
    first.detach()
    os.kill(old.pid or 0, signal.SIGKILL)
    os.waitpid(old.pid or 0, 0)
    if record == "lost":
        (brokers.folder / "brokers" / "b.json").unlink()
    second = brokers.processes()
    assert len(brokers.starts()) == 1
    second.set_desired([])
    await wait_until(lambda: len(brokers.starts()) == 3, what="the first attempt fails")
    await wait_until(lambda: not (brokers.journal / old.incarnation).exists() and second._children["b"].pidfd is None)
    assert [start[2] for start in brokers.starts()] == ["-", "true", "true"]
    assert record == "lost" or gone(second, old.incarnation) is True
    second.set_desired([])
    assert second._children["b"].pidfd is None, "nothing is left to do"
    await second.stop(HANG_GUARD)


async def test_a_broker_that_is_killed_while_it_leaves_is_started_until_its_journal_is_empty(brokers: LocalBrokers):
    processes = brokers.processes()
    processes.set_desired(["b"])
    await wait_until(brokers.writes)
    os.kill(brokers.record().pid or 0, signal.SIGKILL)
    processes.set_desired([])
    await wait_until(lambda: not BrokerJournals(brokers.folder / "brokers", enabled=True).brokers())
    await processes.stop(HANG_GUARD)
    assert [start[2] for start in brokers.starts()] == ["-", "true", "true"]


async def test_without_journals_those_of_former_processes_are_still_read(brokers: LocalBrokers):
    processes = brokers.processes(journal=False)
    processes.set_desired(["b"])
    await wait_until(brokers.starts)
    await processes.stop(HANG_GUARD)
    (brokers.journal / "i-0" / "uid" / "segment").mkdir(parents=True)
    later = brokers.processes(journal=False)
    later.set_desired(["b"])
    await wait_until(lambda: len(brokers.starts()) == 2)
    await later.stop(HANG_GUARD)
    assert [start[1] for start in brokers.starts()] == ["-", str(brokers.journal)]


def test_a_journal_that_cannot_be_read_may_have_something(tmp_path: Path):
    journals = BrokerJournals(tmp_path, enabled=True)
    assert not journals.has("b", "i") and not journals.has_any("b") and journals.brokers() == []
    folder = tmp_path / "b" / "journal"
    folder.mkdir(parents=True)
    assert not journals.has_any("b")
    (folder / "i").touch()
    assert journals.has("b", "i")
