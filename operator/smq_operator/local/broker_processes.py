"""Runs brokers as child processes: starts, watches and restarts them, and adopts those of an earlier leader.

The leader chooses the id of each incarnation and passes it to the process (SMQ_INCARNATION). So it has the id before
the broker's first report, and the end of a process proves that exactly one incarnation has terminated.

A broker that should not run, but left a journal, is started once more: it drains, and ends when its journal is empty.
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

from smq_core.access.modes import SecurityMode
from smq_core.errors import InvalidRequest
from smq_operator.local.broker_records import BrokerRecord, read_records
from smq_operator.local.journals import BrokerJournals
from smq_operator.local.security.broker_credentials import NO_CREDENTIALS, BrokerCredentials, mode_of
from smq_operator.platform_port import TerminationProof
from smq_storage.process.boot import boot_id
from smq_storage.process.child_processes import start_child
from smq_storage.process.pids import FOLDER_VARIABLE, find_by_environment, oom_kills, open_pidfd, start_time

log = structlog.get_logger(__name__)

INCARNATION_VARIABLE, NAME_VARIABLE, LEADER_VARIABLE = "SMQ_INCARNATION", "SMQ_NAME", "SMQ_LEADER"
JOURNAL_VARIABLE, DRAIN_VARIABLE = "SMQ_JOURNAL", "SMQ_DRAIN"
# Short, because on one machine a leader that does not answer is most likely stopping too.
LEADERLESS_TIMEOUT_SECONDS = "1.5"
INITIAL_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 5.0
HEALTHY_AFTER_SECONDS = 10.0


@dataclass(slots=True)
class _BrokerProcess:
    """One broker name. ``pidfd`` is set while its process lives."""

    record: BrokerRecord
    pidfd: int | None = None
    process: subprocess.Popen[bytes] | None = None
    desired: bool = True
    terminating: bool = False
    """Whether it was told to drain and to end. A second SIGTERM would end it at once, with unwritten tails."""
    emptied: bool = False
    """Whether it drained and ended in order since it should run no more, so that its journal is of no use."""
    backoff: float = INITIAL_BACKOFF_SECONDS
    started_at: float = 0.0
    restart: asyncio.TimerHandle | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    oom_kills: int = 0
    """How many processes the system had killed for their memory when this one started."""


class BrokerProcesses:
    """``command`` runs a broker, apart from name and leader, with the ``arguments_of`` its name.

    ``environment`` is added to this process's own.
    """

    def __init__(
        self,
        *,
        folder: Path,
        leader: str,
        command: Sequence[str],
        environment: dict[str, str],
        changed: Callable[[], None],
        arguments_of: Callable[[str], Sequence[str]] = lambda _: (),
        journal: bool = True,
        credentials: BrokerCredentials | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._records = folder / "brokers"
        self._logs = folder / "logs"
        self._leader = leader
        self._command = list(command)
        self._arguments_of = arguments_of
        self._environment = environment
        self._changed = changed
        self._credentials = credentials
        self._security = credentials.mode if credentials is not None else SecurityMode.DISABLED
        self._children: dict[str, _BrokerProcess] = {}
        self._journals = BrokerJournals(self._records, enabled=journal)
        self._termination_proofs: dict[str, TerminationProof] = {}
        self._adopted = False
        self._stopping = False
        self._boot = boot_id()

    # ---- queries

    def termination_proof(self, incarnation: str) -> TerminationProof | None:
        return self._termination_proofs.get(incarnation)

    def current_incarnation(self, name: str) -> str | None:
        """The incarnation that runs, or is about to, under this name; None if the name is unknown."""
        child = self._children.get(name)
        return child.record.incarnation if child is not None else None

    # ---- starting

    def adopt(self) -> None:
        """Takes over the brokers of an earlier leader: watches living ones, and proves the others terminated.

        Nothing is started before ``set_desired``.
        """
        self._records.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        records, damaged = read_records(self._records)
        for name in damaged:
            log.error(
                "broker_record.damaged",
                file=name,
                message="termination of the processes in it can no longer be proved; affected seals report this",
            )
        for record in [*records, *self._unrecorded(records)]:
            child = self._children[record.name] = _BrokerProcess(record, desired=False)
            for incarnation in record.terminated:
                self._prove(child, incarnation, "its process had ended")
            self._watch(child, "its process had ended before this leader came")
            if child.pidfd is None:
                continue
            log.info("broker.adopted", broker=record.name, pid=record.pid, incarnation=record.incarnation)
            why = self._cannot_join(record)
            if why:
                # SIGTERM lets it write its tails to the filer, and it is restarted.
                log.warning("broker.replaced", broker=record.name, message=why)
                self._request_termination(child)
        for name in self._journals.brokers():
            self._children.setdefault(name, _BrokerProcess(BrokerRecord(name=name, incarnation=""), desired=False))
        self._adopted = True

    def _cannot_join(self, record: BrokerRecord) -> str:
        """Why a process of an earlier leader cannot report to this one; empty if it can."""
        if record.leader != self._leader:
            return f"it reports to {record.leader}"
        if record.security is not self._security:
            return f"its security is {record.security}, and the leader's is {self._security}"
        return ""

    def _unrecorded(self, records: Sequence[BrokerRecord]) -> list[BrokerRecord]:
        """Living brokers of this folder whose records were damaged or deleted."""
        known = {record.name for record in records}
        found = []
        for pid, environment in find_by_environment(FOLDER_VARIABLE, str(self._folder)):
            name, incarnation = environment.get(NAME_VARIABLE, ""), environment.get(INCARNATION_VARIABLE, "")
            if name and incarnation and name not in known:
                leader = environment.get(LEADER_VARIABLE, "")
                record = BrokerRecord(
                    name=name,
                    incarnation=incarnation,
                    pid=pid,
                    started=start_time(pid),
                    boot=self._boot,
                    leader=leader,
                    security=mode_of(environment),
                )
                record.write(self._records)
                found.append(record)
                log.warning("broker.found", broker=name, pid=pid, message="its record was lost, but its process runs")
        return found

    def set_desired(self, names: Sequence[str]) -> None:
        """Starts and stops brokers until exactly these run, and those that only empty their journals."""
        for name, child in self._children.items():
            child.desired = name in names
            if child.desired:
                child.emptied = False
                continue
            self._cancel(child)
            self._request_termination(child)
            if child.pidfd is None and self._must_empty_journal(child):
                self._start(child)
            elif child.pidfd is None:
                self._prove_again(child)
        for name in names:
            desired = self._children.get(name)
            if desired is None:
                desired = self._children[name] = _BrokerProcess(BrokerRecord(name=name, incarnation=""))
            if desired.pidfd is None and desired.restart is None:
                self._start(desired)

    def restart(self, name: str) -> None:
        """Ends the process of this broker in order; what watches it starts the next one. Raises InvalidRequest."""
        child = self._children.get(name)
        if child is None or not child.desired:
            raise InvalidRequest(f"broker {name} should not run: the number of brokers follows the load")
        self._request_termination(child)

    def _start(self, child: _BrokerProcess) -> None:
        child.restart = None
        if self._stopping or not (child.desired or self._must_empty_journal(child)):
            return
        old, journal = child.record, self._journals.path_for(child.record.name)
        terminated = [*old.terminated, old.incarnation] if old.incarnation else old.terminated
        record = child.record = BrokerRecord(
            name=old.name,
            incarnation=uuid.uuid4().hex,
            boot=self._boot,
            leader=self._leader,
            security=self._security,
            terminated=terminated,
        )
        child.ended = asyncio.Event()
        child.terminating = not child.desired
        child.started_at = asyncio.get_running_loop().time()
        child.oom_kills = oom_kills()
        try:
            record.write(self._records)
            child.process = start_child(
                [*self._command, *self._arguments_of(record.name), "--name", record.name],
                self._logs / f"{record.name}.log",
                environment={
                    **os.environ,
                    **self._environment,
                    FOLDER_VARIABLE: str(self._folder),
                    NAME_VARIABLE: record.name,
                    LEADER_VARIABLE: self._leader,
                    INCARNATION_VARIABLE: record.incarnation,
                    JOURNAL_VARIABLE: str(journal or ""),
                    DRAIN_VARIABLE: "" if child.desired else "true",
                    **self._credentials_of(record),
                },
            )
            record.pid = child.process.pid
            record.started = start_time(record.pid)
            record.write(self._records)
        except Exception as error:  # whatever it is, the broker is started again later
            log.error("broker.start_failed", broker=record.name, message=str(error))
            if record.started is None:
                self._give_up(child, "it could not be started")
                return
        try:
            self._watch(child, "its process ended at once")
        except Exception as error:  # such as too many open files
            log.error("broker.start_failed", broker=record.name, message=f"its process cannot be watched: {error}")
            self._give_up(child, "its process could not be watched, and was killed")
            return
        why = {} if child.desired else {"message": "it should not run, but its journal may have messages: it drains"}
        log.info("broker.started", broker=record.name, pid=record.pid, incarnation=record.incarnation, **why)
        self._changed()

    def _credentials_of(self, record: BrokerRecord) -> dict[str, str]:
        return self._credentials.issue(record.incarnation) if self._credentials is not None else NO_CREDENTIALS

    def _give_up(self, child: _BrokerProcess, proof: str) -> None:
        """Ends a process that was just started, so that nobody can use it, and starts the broker again later."""
        if child.process is not None:
            child.process.kill()
            self._reap(child)
        self._ended(child, proof)

    # ---- watching

    def _watch(self, child: _BrokerProcess, otherwise: str) -> None:
        """Watches the record's process. If it has ended, that is handled at once."""
        record = child.record
        if record.boot != self._boot:
            self._ended(child, "the machine was rebooted since")
            return
        if record.pid is None and record.incarnation:
            # An earlier leader was killed after it started the process and before it recorded the pid.
            for pid, _ in find_by_environment(INCARNATION_VARIABLE, record.incarnation):
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

    def _exited(self, child: _BrokerProcess) -> None:
        assert child.pidfd is not None
        asyncio.get_running_loop().remove_reader(child.pidfd)
        os.close(child.pidfd)
        child.pidfd = None
        code = self._reap(child)
        child.emptied = child.terminating and code == 0 and not child.desired
        self._ended(
            child,
            f"process {child.record.pid} ended"
            + (f" ({_describe_exit(code, oom_kills() > child.oom_kills)})" if code is not None else ""),
        )

    def _reap(self, child: _BrokerProcess) -> int | None:
        if child.process is None:
            return None  # an adopted process is reaped by its parent or init
        code = child.process.wait()
        child.process = None
        return code

    def _ended(self, child: _BrokerProcess, proof: str) -> None:
        record = child.record
        if record.incarnation:
            self._prove(child, record.incarnation, proof)
            if self._credentials is not None:
                self._credentials.revoke(record.incarnation)
        self._prove_again(child)  # this process may have emptied the journals of others
        child.ended.set()
        loop = asyncio.get_running_loop()
        if (child.desired or self._must_empty_journal(child)) and not self._stopping:
            if loop.time() - child.started_at > HEALTHY_AFTER_SECONDS:
                child.backoff = INITIAL_BACKOFF_SECONDS
            log.warning("broker.terminated", broker=record.name, proof=proof, retry_in_seconds=child.backoff)
            child.restart = loop.call_later(child.backoff, self._start, child)
            child.backoff = min(child.backoff * 2, MAX_BACKOFF_SECONDS)
        elif record.incarnation:
            log.info("broker.terminated", broker=record.name, proof=proof)
        self._changed()

    def _prove(self, child: _BrokerProcess, incarnation: str, text: str) -> None:
        """Keeps the proof, and whether a later process will answer for this incarnation.

        A journal without segments is an answer, too, but nobody is started only for that.
        """
        known = self._termination_proofs.get(incarnation)
        if known is None or not known.journal_gone:
            name, comes_back = child.record.name, child.desired or not self._adopted
            is_left = self._journals.is_left(name, incarnation) if comes_back else self._journals.has(name, incarnation)
            self._termination_proofs[incarnation] = TerminationProof(known.text if known else text, not is_left)

    def _prove_again(self, child: _BrokerProcess) -> None:
        """Journals may be gone now that were there when their processes ended."""
        for incarnation in (child.record.incarnation, *child.record.terminated):
            if incarnation in self._termination_proofs:
                self._prove(child, incarnation, "")

    def _must_empty_journal(self, child: _BrokerProcess) -> bool:
        """Whether it left a journal that only a process under its name can seal."""
        return self._adopted and not child.emptied and self._journals.has_any(child.record.name)

    # ---- stopping

    def _request_termination(self, child: _BrokerProcess) -> None:
        if not child.terminating:
            child.terminating = True
            self._signal(child, signal.SIGTERM)

    def _signal(self, child: _BrokerProcess, what: signal.Signals) -> None:
        if child.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, what)

    def _cancel(self, child: _BrokerProcess) -> None:
        if child.restart is not None:
            child.restart.cancel()
            child.restart = None

    def detach(self) -> None:
        """Stops watching and restarting; the processes go on."""
        self._stopping = True
        for child in self._children.values():
            self._cancel(child)

    async def stop(self, timeout_seconds: float) -> None:
        """Ends all brokers: by SIGTERM, and after ``timeout_seconds`` by SIGKILL."""
        self.detach()
        living = [child for child in self._children.values() if child.pidfd is not None]
        for child in living:
            self._request_termination(child)
        try:
            async with asyncio.timeout(timeout_seconds):
                for child in living:
                    await child.ended.wait()
        except TimeoutError:
            for child in living:
                if child.pidfd is not None:
                    log.warning(
                        "broker.killed", broker=child.record.name, message=f"did not end in {timeout_seconds} s"
                    )
                    self._signal(child, signal.SIGKILL)
            for child in living:
                await child.ended.wait()


def broker_command(memory: str, more: Sequence[str], wrapper: Sequence[str] = ()) -> list[str]:
    """The command of a broker on this machine, without its name and its leader.

    ``wrapper`` comes first. It must run the broker by exec, because its process is watched as the broker's.
    """
    return [
        *wrapper,
        *(sys.executable, "-m", "smq_broker.main"),
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", memory),
        *("--leader-timeout", LEADERLESS_TIMEOUT_SECONDS),
        *more,
    ]


def _describe_exit(code: int, memory_was_short: bool) -> str:
    if code >= 0:
        return f"exit code {code}"
    if code == -signal.SIGKILL and memory_was_short:
        return "SIGKILL, probably by the system, which killed processes because memory was short"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
