"""Broker processes as the local leader keeps them: proofs of death, restarts, adoption. The processes are real."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from smq_operator.local import pids
from smq_operator.local.processes import INCARNATION, Processes, broker_command
from smq_operator.local.records import Record, read_all
from support.leader_in_memory import until

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
    signal.pause()
"""


class Scene:
    def __init__(self, folder: Path, slow: float = 0.01, leader: str = "l:1") -> None:
        self.folder = folder
        self.news = 0
        self.slow = slow
        self.leader = leader

    def processes(self) -> Processes:
        command = [sys.executable, "-c", SCRIPT, str(self.folder), str(self.slow)]
        made = Processes(self.folder, self.leader, command, {}, self.changed)
        made.adopt()
        return made

    def changed(self) -> None:
        self.news += 1

    def record(self, name: str = "b") -> Record:
        return next(r for r in read_all(self.folder / "brokers")[0] if r.name == name)

    def started(self, count: int = 1) -> bool:
        path = self.folder / "logs" / "b.log"
        return path.exists() and path.read_text().count("started") >= count

    def terms(self, incarnation: str) -> int:
        path = self.folder / incarnation
        return len(path.read_text()) if path.exists() else 0


def run(work: Callable[[Scene], Awaitable[None]], folder: Path, **scene: object) -> None:
    asyncio.run(work(Scene(folder, **scene)))  # type: ignore[arg-type]


def test_a_killed_process_is_proved_dead_and_started_again_under_its_name(tmp_path: Path):
    async def work(scene: Scene) -> None:
        processes = scene.processes()
        processes.want(["b"])
        await until(scene.started)
        old = scene.record()
        assert processes.current("b") == old.incarnation
        assert processes.proof_of_death(old.incarnation) is None
        os.kill(old.pid or 0, signal.SIGKILL)
        await until(lambda: processes.proof_of_death(old.incarnation), 2)
        assert "SIGKILL" in (processes.proof_of_death(old.incarnation) or "")
        await until(lambda: scene.started(2))
        new = scene.record()
        assert new.incarnation != old.incarnation and new.dead == [old.incarnation]
        assert processes.proof_of_death(new.incarnation) is None
        await processes.stop(5)

    run(work, tmp_path)


def test_a_wrapper_becomes_the_broker(tmp_path: Path):
    """What ends is the broker itself, so its end proves what the end of a broker proves."""

    async def work(scene: Scene) -> None:
        command = ["env", "WRAPPED=yes", sys.executable, "-c", SCRIPT, str(scene.folder), "0.01"]
        processes = Processes(scene.folder, scene.leader, command, {}, scene.changed)
        processes.adopt()
        processes.want(["b"])
        await until(scene.started)
        old = scene.record()
        environment = Path(f"/proc/{old.pid}/environ").read_bytes().split(b"\0")
        assert b"WRAPPED=yes" in environment and b"SMQ_NAME=b" in environment
        os.kill(old.pid or 0, signal.SIGKILL)
        await until(lambda: processes.proof_of_death(old.incarnation), 2)
        await processes.stop(5)

    run(work, tmp_path)
    words = broker_command("1Gi", ("--zone=a",), ("nice", "-n", "5"))
    assert words[:4] == ["nice", "-n", "5", sys.executable] and words[-1] == "--zone=a"


def test_a_later_leader_adopts_who_lives_and_knows_who_died(tmp_path: Path):
    async def work(scene: Scene) -> None:
        first = scene.processes()
        first.want(["b", "c"])
        await until(lambda: scene.started() and (scene.folder / "logs" / "c.log").read_text())
        lives, dies = scene.record("b"), scene.record("c")
        first.leave()
        os.kill(dies.pid or 0, signal.SIGKILL)
        os.waitpid(dies.pid or 0, 0)
        second = scene.processes()
        assert second.proof_of_death(dies.incarnation)
        assert second.proof_of_death(lives.incarnation) is None
        second.want(["b"])
        assert scene.record("b").pid == lives.pid, "it is not started twice"
        os.kill(lives.pid or 0, signal.SIGKILL)
        await until(lambda: second.proof_of_death(lives.incarnation), 2, "an adopted process is watched too")
        await second.stop(5)

    run(work, tmp_path)


def test_a_broker_is_asked_to_end_only_once(tmp_path: Path):
    async def work(scene: Scene) -> None:
        processes = scene.processes()
        processes.want(["b"])
        await until(scene.started)
        record = scene.record()
        processes.want([])
        processes.want([])
        await processes.stop(5)
        assert scene.terms(record.incarnation) == 1

    run(work, tmp_path, slow=0.5)


def test_what_does_not_end_is_killed(tmp_path: Path):
    async def work(scene: Scene) -> None:
        processes = scene.processes()
        processes.want(["b"])
        await until(scene.started)
        record = scene.record()
        await processes.stop(0.2)
        assert pids.start_time(record.pid or 0) is None

    run(work, tmp_path, slow=60.0)


def test_a_broker_that_is_wanted_again_while_it_ends_is_started_again(tmp_path: Path):
    async def work(scene: Scene) -> None:
        processes = scene.processes()
        processes.want(["b"])
        await until(scene.started)
        processes.want([])
        processes.want(["b"])
        await until(lambda: scene.started(2))
        await processes.stop(5)

    run(work, tmp_path, slow=0.2)


@pytest.mark.parametrize("what", ["another start time", "another boot"])
def test_a_pid_says_nothing_by_itself(tmp_path: Path, what: str):
    async def work(scene: Scene) -> None:
        (tmp_path / "brokers").mkdir()
        mine = pids.start_time(os.getpid())
        assert mine is not None
        record = Record("b", "i", pid=os.getpid(), started=mine + (what == "another start time"), leader="l:1")
        processes = Processes(tmp_path, "l:1", [], {}, scene.changed)
        record.boot = "another" if what == "another boot" else processes._boot
        record.write(tmp_path / "brokers")
        processes.adopt()
        assert processes.proof_of_death("i")

    run(work, tmp_path)


def test_a_process_whose_pid_was_never_written_down_is_found(tmp_path: Path):
    async def work(scene: Scene) -> None:
        first = scene.processes()
        first.want(["b"])
        await until(scene.started)
        record = scene.record()
        pid = record.pid
        first.leave()
        record.pid = record.started = None
        record.write(scene.folder / "brokers")
        second = scene.processes()
        assert second.proof_of_death(record.incarnation) is None
        assert scene.record().pid == pid
        second.want(["b"])
        await second.stop(5)

    run(work, tmp_path)


@pytest.mark.parametrize("lost", ["deleted", "damaged"])
def test_a_broker_whose_record_is_lost_is_not_taken_for_dead(tmp_path: Path, lost: str):
    async def work(scene: Scene) -> None:
        first = scene.processes()
        first.want(["b"])
        await until(scene.started)
        record = scene.record()
        first.leave()
        path = scene.folder / "brokers" / "b.json"
        path.unlink() if lost == "deleted" else path.write_text("{")
        second = scene.processes()
        second.want(["b"])
        assert second.current("b") == record.incarnation
        assert second.proof_of_death(record.incarnation) is None
        assert not scene.started(2), "no second one is started beside it"
        await second.stop(5)
        assert second.proof_of_death(record.incarnation)

    run(work, tmp_path)


def test_the_incarnation_is_in_the_record_before_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        found, _damaged = read_all(tmp_path / "brokers")
        seen.append((found[0].incarnation, env[INCARNATION]))
        raise OSError("no processes left")

    monkeypatch.setattr("smq_operator.local.processes.subprocess.Popen", popen)

    async def work(scene: Scene) -> None:
        processes = scene.processes()
        processes.want(["b"])
        await until(lambda: len(seen) >= 2, 5, "it is tried again")
        assert all(written == given for written, given in seen)
        assert processes.proof_of_death(seen[0][0])
        processes.leave()

    run(work, tmp_path)


def test_a_damaged_record_is_named(tmp_path: Path):
    folder = tmp_path / "brokers"
    folder.mkdir()
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text('["b"]')
    (folder / "d.json").write_text('{"name": "d", "incarnation": "i", "of_a_later_version": 1}')
    Record("c", "i").write(folder)
    records, damaged = read_all(folder)
    assert [r.name for r in records] == ["c", "d"] and damaged == ["a.json", "b.json"]
