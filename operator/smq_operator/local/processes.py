"""Brokers as child processes: started, watched, started again under the same name, adopted from an earlier leader.

The leader chooses each incarnation's id and gives it to the process (SMQ_INCARNATION): so it knows before the broker's
first report whom it started, and a process that ended proves exactly one incarnation dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from smq_operator.local.pids import find_by_environment, open_pidfd, start_time
from smq_operator.local.records import Record, boot_id, read_all

log = structlog.get_logger()

INCARNATION, NAME, LEADER = "SMQ_INCARNATION", "SMQ_NAME", "SMQ_LEADER"
OWNER = "SMQ_BROKER_OF"
"""The folder of the leader that started it: by this a broker is found whose record is lost."""
LEADERLESS = "1.5"
"""Seconds: on one machine a leader that does not answer is most likely stopping too."""
FIRST_BACKOFF = 0.2
LONGEST_BACKOFF = 5.0
HEALTHY_AFTER = 10.0


@dataclass(slots=True)
class _Child:
    """One broker name. ``pidfd`` is there while its process lives."""

    record: Record
    pidfd: int | None = None
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = True
    asked_to_end: bool = False
    """A second SIGTERM would tell a broker to leave at once, with its tails unwritten."""
    backoff: float = FIRST_BACKOFF
    started_at: float = 0.0
    restart: asyncio.TimerHandle | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Processes:
    """``command`` is what runs a broker, without name and leader; ``environment`` is added to this process's own."""

    def __init__(
        self,
        folder: Path,
        leader: str,
        command: Sequence[str],
        environment: dict[str, str],
        changed: Callable[[], None],
    ) -> None:
        self._folder = folder.resolve()
        self._records = folder / "brokers"
        self._logs = folder / "logs"
        self._leader = leader
        self._command = list(command)
        self._environment = environment
        self._changed = changed
        self._children: dict[str, _Child] = {}
        self._dead: dict[str, str] = {}
        self._stopping = False
        self._boot = boot_id()

    # ---- questions

    def proof_of_death(self, incarnation: str) -> str | None:
        return self._dead.get(incarnation)

    def current(self, name: str) -> str | None:
        """The incarnation that runs (or is about to) under this name; None for a name that is not ours."""
        child = self._children.get(name)
        return child.record.incarnation if child is not None else None

    # ---- starting

    def adopt(self) -> None:
        """Takes over what an earlier leader left: brokers that live are watched, those that do not are proved dead."""
        self._records.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        records, damaged = read_all(self._records)
        for name in damaged:
            log.error(
                "broker.record.damaged",
                file=name,
                message="dead processes that it named cannot be proved dead any more; a seal that waits says so",
            )
        for record in [*records, *self._unrecorded(records)]:
            child = self._children[record.name] = _Child(record, wanted=False)
            for incarnation in record.dead:
                self._dead[incarnation] = "its process had ended"
            self._watch(child, "its process had ended before this leader came")
            if child.pidfd is None:
                continue
            log.info("broker.adopted", broker=record.name, pid=record.pid, incarnation=record.incarnation)
            if record.leader != self._leader:
                # It would never find this leader. It writes its tails to the filer, ends, and is started anew.
                log.warning("broker.replaced", broker=record.name, message=f"it reports to {record.leader}")
                self._ask_to_end(child)

    def _unrecorded(self, records: Sequence[Record]) -> list[Record]:
        """Living brokers of this folder whose records were damaged or deleted: nobody may take them for dead."""
        known = {record.name for record in records}
        found = []
        for pid, environment in find_by_environment(OWNER, str(self._folder)):
            name, incarnation = environment.get(NAME, ""), environment.get(INCARNATION, "")
            if name and incarnation and name not in known:
                leader = environment.get(LEADER, "")
                record = Record(name, incarnation, pid, start_time(pid), self._boot, leader)
                record.write(self._records)
                found.append(record)
                log.warning("broker.found", broker=name, pid=pid, message="its record was gone; its process is not")
        return found

    def want(self, names: Sequence[str]) -> None:
        """Exactly these brokers shall run."""
        for name, child in self._children.items():
            child.wanted = name in names
            if not child.wanted:
                self._cancel(child)
                self._ask_to_end(child)
        for name in names:
            wanted = self._children.get(name)
            if wanted is None:
                wanted = self._children[name] = _Child(Record(name, ""))
            if wanted.pidfd is None and wanted.restart is None:
                self._start(wanted)

    def _start(self, child: _Child) -> None:
        child.restart = None
        if self._stopping or not child.wanted:
            return
        old = child.record
        dead = [*old.dead, old.incarnation] if old.incarnation else old.dead
        record = child.record = Record(old.name, uuid.uuid4().hex, boot=self._boot, leader=self._leader, dead=dead)
        child.ended = asyncio.Event()
        child.asked_to_end = False
        child.started_at = asyncio.get_running_loop().time()
        try:
            record.write(self._records)
            with (self._logs / f"{record.name}.log").open("ab") as output:
                child.process = subprocess.Popen(
                    [*self._command, "--name", record.name],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={
                        **os.environ,
                        **self._environment,
                        OWNER: str(self._folder),
                        NAME: record.name,
                        LEADER: self._leader,
                        INCARNATION: record.incarnation,
                    },
                    start_new_session=True,  # Ctrl-C is for the leader; it tells the brokers itself
                )
            record.pid = child.process.pid
            record.started = start_time(record.pid)
            record.write(self._records)
        except OSError as error:
            log.error("broker.start.failed", broker=record.name, message=str(error))
            if child.process is None or child.process.pid != record.pid:
                self._ended(child, "it could not be started")
                return
        self._watch(child, "its process ended at once")
        log.info("broker.started", broker=record.name, pid=record.pid, incarnation=record.incarnation)
        self._changed()

    # ---- watching

    def _watch(self, child: _Child, otherwise: str) -> None:
        """Waits for the end of the record's process; one that has ended is dealt with at once."""
        record = child.record
        if record.boot != self._boot:
            self._ended(child, "the machine was started anew since")
            return
        if record.pid is None and record.incarnation:
            # An earlier leader was killed between starting it and writing its pid down.
            for pid, _ in find_by_environment(INCARNATION, record.incarnation):
                record.pid, record.started = pid, start_time(pid)
                record.write(self._records)
        fd = None
        if record.pid is not None and record.started is not None:
            fd = open_pidfd(record.pid, record.started)
        if fd is None:
            self._reap(child)
            self._ended(child, otherwise)
            return
        child.pidfd = fd
        asyncio.get_running_loop().add_reader(fd, self._exited, child)

    def _exited(self, child: _Child) -> None:
        assert child.pidfd is not None
        asyncio.get_running_loop().remove_reader(child.pidfd)
        os.close(child.pidfd)
        child.pidfd = None
        code = self._reap(child)
        self._ended(child, f"process {child.record.pid} ended" + (f" ({_how(code)})" if code is not None else ""))

    def _reap(self, child: _Child) -> int | None:
        if child.process is None:
            return None  # an adopted one: the parent, or init, reaps it
        code = child.process.wait()
        child.process = None
        return code

    def _ended(self, child: _Child, proof: str) -> None:
        record = child.record
        if record.incarnation:
            self._dead[record.incarnation] = proof
        child.ended.set()
        loop = asyncio.get_running_loop()
        if child.wanted and not self._stopping:
            if loop.time() - child.started_at > HEALTHY_AFTER:
                child.backoff = FIRST_BACKOFF
            log.warning("broker.ended", broker=record.name, proof=proof, again_in=child.backoff)
            child.restart = loop.call_later(child.backoff, self._start, child)
            child.backoff = min(child.backoff * 2, LONGEST_BACKOFF)
        elif record.incarnation:
            log.info("broker.ended", broker=record.name, proof=proof)
        self._changed()

    # ---- stopping

    def _ask_to_end(self, child: _Child) -> None:
        if not child.asked_to_end:
            child.asked_to_end = True
            self._signal(child, signal.SIGTERM)

    def _signal(self, child: _Child, what: signal.Signals) -> None:
        if child.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, what)

    def _cancel(self, child: _Child) -> None:
        if child.restart is not None:
            child.restart.cancel()
            child.restart = None

    def leave(self) -> None:
        """Watches no more and starts none again; the processes go on."""
        self._stopping = True
        for child in self._children.values():
            self._cancel(child)

    async def stop(self, patience: float) -> None:
        """Ends all brokers: asks, waits up to ``patience`` seconds, then kills."""
        self.leave()
        living = [child for child in self._children.values() if child.pidfd is not None]
        for child in living:
            self._ask_to_end(child)
        try:
            async with asyncio.timeout(patience):
                for child in living:
                    await child.ended.wait()
        except TimeoutError:
            for child in living:
                if child.pidfd is not None:
                    log.warning("broker.killed", broker=child.record.name, message=f"did not end in {patience} s")
                    self._signal(child, signal.SIGKILL)
            for child in living:
                await child.ended.wait()


def broker_command(memory: str, more: Sequence[str], wrapper: Sequence[str] = ()) -> list[str]:
    """How a broker is run on this machine, but for its name and its leader.

    ``wrapper`` comes first. It must become the broker by exec: its process is watched as the broker's.
    """
    return [
        *wrapper,
        *(sys.executable, "-m", "smq_broker.main"),
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", memory),
        *("--leaderless", LEADERLESS),
        *more,
    ]


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
