"""`smq dev` stops everything in order, whatever fails to be printed or to stop."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import smq
from smq.cli.app import app
from smq.cli.commands import dev as dev_command
from smq.cli.connection import session
from smq.cli.dev import background
from smq.cli.dev import cluster as dev_cluster
from smq.cli.dev.cluster import DevCluster, StopIncomplete
from smq.cli.dev.private_folder import LOCK, make_private
from smq.cli.dev_folder import (
    PORTS_FILE,
    PROCESS_FILE,
    DevPorts,
    DevRecord,
    forget_failure,
    read_failure,
    write_failure,
)
from smq_core.errors import InvalidRequest, Unavailable
from smq_storage.process.pids import FOLDER_VARIABLE, ProcessId
from smq_storage.process.ports import free_ports
from smq_storage.process.shutdown_steps import Shutdown, write_if_possible


class FailingConsole(Console):
    """Its terminal goes away at the n-th print: with EIO, or as a pipe whose reader ended."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__(file=io.StringIO())
        self.at, self.error, self.prints = at, error, 0

    def print(self, *args: Any, **kwargs: Any) -> None:
        self.prints += 1
        if self.prints >= self.at:
            raise self.error


class RecordedCluster:
    """Stands for the processes. Records whether they were stopped."""

    stops = 0
    more: Sequence[str] = ()
    address, brokers, max_brokers = "127.0.0.1:7070", 1, 2

    security = None

    def __init__(self, folder: Path, *, more: Sequence[str] = (), **_: Any) -> None:
        self.folder = folder
        RecordedCluster.more = more
        self.seaweed: Any = dev_cluster.SeaweedProcess(folder)

    def start(self, on_progress: Callable[[str], None]) -> None:
        on_progress("starting SeaweedFS")
        on_progress("starting the leader")

    def wait_ready(self) -> None: ...

    def record(self) -> DevRecord:
        return DevRecord(
            process=ProcessId(1, 1, "boot"),
            leader=self.address,
            brokers=self.brokers,
            max_brokers=self.max_brokers,
            filer_url="s3://smq",
            filer_endpoint="http://127.0.0.1:1",
            page="http://127.0.0.1:2/",
            ready=True,
        )

    def stop(self, on_progress: Callable[[str], None]) -> None:
        on_progress("stopping the leader")
        on_progress("stopping SeaweedFS")
        RecordedCluster.stops += 1


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """`smq dev` sets that of its process, which is pytest here."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), BrokenPipeError(), SystemExit(1)], ids=repr
)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_no_print_that_fails_stops_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, number: signal.Signals
) -> None:
    def hang_up(*_: object) -> None:
        both = {number, signal.SIGTERM if number is not signal.SIGTERM else signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        try:
            for each in both:  # they arrive together, as from a terminal and its shell
                os.kill(os.getpid(), each)  # another thread may take it, so that its handler raises here
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, both)

    monkeypatch.setattr(dev_cluster, "DevCluster", RecordedCluster)
    monkeypatch.setattr("smq.cli.commands.dev._print_decisions", hang_up)
    at, prints = 1, 100
    while at <= prints + 1:
        console = FailingConsole(at, error)
        monkeypatch.setattr(session, "out", console)
        RecordedCluster.stops = 0
        ran = CliRunner().invoke(app, ["dev", "--dir", str(tmp_path)])
        assert (RecordedCluster.stops, ran.exit_code) == (1, 0), (at, ran.exception)
        prints = console.prints
        at += 1
    assert prints > 10


@pytest.mark.usefixtures("signals")
def test_a_program_started_by_nohup_goes_on_when_its_terminal_goes_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handlers = []
    monkeypatch.setattr(dev_cluster, "DevCluster", RecordedCluster)
    monkeypatch.setattr(
        "smq.cli.commands.dev._print_decisions", lambda *_: handlers.append(signal.getsignal(signal.SIGHUP))
    )
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    CliRunner().invoke(app, ["dev", "--dir", str(tmp_path)])
    assert handlers == [signal.SIG_IGN]


def test_a_stream_that_nobody_reads_fails_once_and_is_connected_to_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        assert not write_if_possible(lambda: stream.write("lost"), stream)
        assert write_if_possible(lambda: stream.write("dropped"), stream)


def test_every_step_runs_and_every_error_is_reported() -> None:
    ran: list[str] = []

    def failing(step: str) -> None:
        ran.append(step)
        raise OSError(step)

    shutdown = Shutdown(lambda step, error: failing("report"))
    shutdown.run("first", lambda: failing("a"))
    shutdown.run("second", lambda: ran.append("b"))
    assert ran == ["a", "report", "b"]
    assert shutdown.failed == "first: a; reporting first: report"


class Steps:
    """A cluster that runs nothing, of which single steps fail."""

    def __init__(self, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
        self.ran: list[str] = []
        self.failing = failing
        for name in ("_stop_leader_process", "_end_orphaned_brokers", "_forget_processes"):
            monkeypatch.setattr(cluster, name, self.step(name))
        monkeypatch.setattr(cluster.seaweed, "stop", self.step("seaweed"))
        monkeypatch.setattr(type(cluster.seaweed), "pid", 1)
        cluster._lock_folder()

    def step(self, name: str) -> Callable[..., None]:
        def run(*_: object) -> None:
            self.ran.append(name)
            if name == self.failing:
                raise OSError(errno.EIO, "Input/output error")

        return run


STEPS = ["_stop_leader_process", "_end_orphaned_brokers", "seaweed", "_forget_processes"]


@pytest.mark.parametrize("failing", STEPS)
def test_a_step_that_fails_skips_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str) -> None:
    cluster = DevCluster(tmp_path)
    steps = Steps(cluster, monkeypatch, failing)

    def print_fails(_: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StopIncomplete, match="Input/output error"):
        cluster.stop(print_fails)
    assert steps.ran == STEPS
    DevCluster(tmp_path)._lock_folder()


SLEEPER = "import time; print('started', flush=True)\nwhile True: time.sleep(1)"


@pytest.fixture
def leftover_broker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that a killed leader left behind. Its record was lost."""
    environment = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("record", ["{", "[]", '{"seaweedfs_ports": [1, 2]}', None])
def test_leftover_brokers_whose_filer_cannot_come_back_are_left_alone(
    tmp_path: Path, leftover_broker: subprocess.Popen[bytes], record: str | None
) -> None:
    cluster = DevCluster(tmp_path)
    if record is not None:
        (tmp_path / "dev.json").write_text(record)
    with pytest.raises(Unavailable, match=f"still run \\({leftover_broker.pid}\\).*end those processes, which loses"):
        cluster.start()
    cluster.stop()
    assert leftover_broker.poll() is None
    assert record is None or (tmp_path / "dev.json").read_text() == record, "the next start needs it"


def test_leftover_brokers_get_their_filer_at_its_ports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, leftover_broker: subprocess.Popen[bytes]
) -> None:
    ports = free_ports(10)
    (tmp_path / "dev.json").write_text(json.dumps({"seaweedfs_ports": ports}))
    cluster, reports = DevCluster(tmp_path, listen="127.0.0.1:0"), []
    seaweed: Any = type(cluster.seaweed)
    running: list[int] = []

    def start(it: Any) -> None:
        assert leftover_broker.poll() is None, "it runs until it can write"
        running.append(1)
        reports.append(list(it.ports))

    monkeypatch.setattr(seaweed, "start", start)
    monkeypatch.setattr(seaweed, "pid", property(lambda _: running[0] if running else None))
    monkeypatch.setattr(cluster, "_start_leader", lambda: reports.append("leader"))
    cluster.start(lambda _: None)
    assert reports == [ports, "leader"]
    assert json.loads((tmp_path / "dev.json").read_text())["seaweedfs_ports"] == ports


@pytest.mark.parametrize(("flags", "more"), [([], ()), (["--no-journal"], ("--no-journal",))])
def test_journals_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], more: Sequence[str]
) -> None:
    def stopped(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(dev_cluster, "DevCluster", RecordedCluster)
    monkeypatch.setattr("smq.cli.commands.dev._print_decisions", stopped)
    ran = CliRunner().invoke(app, ["dev", "--dir", str(tmp_path), *flags])
    assert (ran.exit_code, RecordedCluster.more) == (0, more)


@pytest.mark.parametrize("options", [[], ["--dir", "elsewhere"]])
def test_a_detached_one_names_the_command_that_stops_it(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(background, "start_in_background", lambda folder, *_: RecordedCluster(folder).record())
    ran = CliRunner().invoke(app, ["dev", "--detach", *options])
    assert f"`{' '.join(['smq dev stop', *options])}` stops everything" in ran.output


def test_what_seaweedfs_prints_has_a_file_of_its_own_beside_the_other_logs(tmp_path: Path) -> None:
    cluster = DevCluster(tmp_path)
    assert cluster.seaweed.log == cluster.logs / "seaweedfs.log"


def test_an_end_of_seaweedfs_names_its_log_and_quotes_nothing(tmp_path: Path) -> None:
    cluster = DevCluster(tmp_path)
    cluster.logs.mkdir(parents=True)
    cluster.seaweed.log.write_text("W1126 worker.go:180 noise\n")
    cluster.seaweed._process = subprocess.Popen(["false"])
    cluster.seaweed._process.wait()
    assert cluster.failure() == f"SeaweedFS ended (exit code 1); its log is {cluster.seaweed.log}"


def this_process() -> ProcessId:
    found = ProcessId.of(os.getpid())
    assert found is not None
    return found


def record_of(folder: Path, **parts: ProcessId) -> None:
    """As a `smq dev` that is this process writes it."""
    record: dict[str, Any] = RecordedCluster(folder).record().to_json()
    record |= {"process": this_process(), "ready": True}
    (folder / PROCESS_FILE).write_text(json.dumps({"dev": record, **parts}))


def test_the_status_says_what_has_ended(tmp_path: Path) -> None:
    mine = this_process()
    record_of(tmp_path, leader=mine, seaweedfs=mine)
    ran = CliRunner().invoke(app, ["dev", "status", "--dir", str(tmp_path)])
    assert ran.exit_code == 0 and "running" in ran.output

    record_of(tmp_path, leader=mine, seaweedfs=mine._replace(started=1))
    ran = CliRunner().invoke(app, ["dev", "status", "--dir", str(tmp_path)])
    assert ran.exit_code == 1 and "SeaweedFS ended, so the `smq dev`" in ran.stderr


@pytest.mark.usefixtures("signals")
def test_the_status_says_why_the_last_one_ended_until_another_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_cluster, "DevCluster", RecordedCluster)
    monkeypatch.setattr(RecordedCluster, "failure", lambda _: "SeaweedFS ended", raising=False)
    ran = CliRunner().invoke(app, ["dev", "--dir", str(tmp_path)])
    assert ran.exit_code == 1
    ran = CliRunner().invoke(app, ["dev", "status", "--dir", str(tmp_path)])
    assert ran.exit_code == 1 and "the last one stopped because SeaweedFS ended\nStart one with" in ran.stderr

    forget_failure(tmp_path)
    ran = CliRunner().invoke(app, ["dev", "status", "--dir", str(tmp_path)])
    assert "because" not in ran.stderr


def test_a_new_start_forgets_why_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_failure(tmp_path, "SeaweedFS ended")
    cluster = DevCluster(tmp_path)

    def fail(_: object) -> None:
        raise Unavailable("enough")

    monkeypatch.setattr(cluster, "_end_leftover_processes", fail)
    with cluster_stopped(cluster), pytest.raises(Unavailable, match="enough"):
        cluster.start()
    assert not read_failure(tmp_path)


@contextmanager
def cluster_stopped(cluster: DevCluster) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.stop()


def test_a_folder_keeps_its_ports_unless_others_have_them(tmp_path: Path) -> None:
    assert DevPorts.read(tmp_path) == DevPorts()
    first = DevCluster(tmp_path, listen="127.0.0.1:0")
    ports = free_ports(2 + len(first.seaweed.ports))
    kept = DevPorts(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", ports[2:])
    kept.write(tmp_path)
    assert DevPorts.read(tmp_path) == kept

    assert dev_cluster._free_address("127.0.0.1:0", "--http", kept.page) == kept.page
    first._choose_ports_of_seaweed(kept, lambda _: None)
    assert list(first.seaweed.ports) == ports[2:]

    notes: list[str] = []
    with socket.create_server(("127.0.0.1", ports[1])), socket.create_server(("127.0.0.1", ports[2])):
        assert dev_cluster._free_address("127.0.0.1:0", "--http", kept.page) != kept.page
        second = DevCluster(tmp_path, listen="127.0.0.1:0")
        second._choose_ports_of_seaweed(kept, notes.append)
        assert ports[2] not in second.seaweed.ports and "takes other ports" in notes[0]
    (tmp_path / PORTS_FILE).write_text("{")
    assert DevPorts.read(tmp_path) == DevPorts(), "a damaged file is as none"


def test_the_port_of_s3_can_be_chosen(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    cluster = DevCluster(tmp_path, s3_port=port)
    cluster._choose_ports_of_seaweed(DevPorts(), lambda _: None)
    assert cluster.seaweed.endpoint == f"http://127.0.0.1:{port}"
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(InvalidRequest, match=f"port {port} is in use: choose another one with --s3-port"),
    ):
        DevCluster(tmp_path, s3_port=port)._choose_ports_of_seaweed(DevPorts(), lambda _: None)


def test_an_address_in_use_names_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(InvalidRequest, match="with --http"):
        dev_cluster._free_address(f"127.0.0.1:{server.getsockname()[1]}", "--http")


def test_the_status_names_an_outage_of_the_filer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leader:
        def __enter__(self) -> Leader:
            return self

        def __exit__(self, *_: object) -> None: ...

        def admin(self) -> Leader:
            return self

        def problems(self) -> list[smq.ProblemInfo]:
            return [smq.ProblemInfo("filer", "the filer takes no writes since 10:00:00 UTC (the leader: 507)")]

    record = DevRecord(
        process=ProcessId(1, 1, "boot"),
        leader="127.0.0.1:7070",
        brokers=3,
        max_brokers=6,
        filer_url="s3://smq",
        filer_endpoint="http://x",
        page="http://y",
        ready=True,
    )
    monkeypatch.setattr(smq, "connect", lambda *_, **__: Leader())
    assert "takes no writes since 10:00:00 UTC" in dev_command.filer_problem(record, Path(".smq"))

    def unreachable(*_: object, **__: object) -> Leader:
        raise Unavailable("no leader")

    monkeypatch.setattr(smq, "connect", unreachable)
    assert not dev_command.filer_problem(record, Path(".smq"))


def test_a_secure_cluster_says_how_to_enter_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = DevCluster(tmp_path / "a b", listen="h:1", secure=True, kafka_port=9092)
    assert "--security=required" in cluster._leader_args
    assert cluster.security is not None and DevCluster(tmp_path).security is None

    record = cluster.record()
    dev_command._print_welcome(record, cluster.folder, "end")
    printed = capsys.readouterr().out
    folder = tmp_path / "a b" / "security"
    assert "SASL_SSL" in printed
    assert f"export SMQ_CA_FILE='{folder}/ca.crt'\n  export SMQ_TOKEN_FILE='{folder}/admin.token'" in printed
    dev_command._print_welcome(replace(record, secure=False), cluster.folder, "end")
    printed = capsys.readouterr().out
    assert "SMQ_CA_FILE" not in printed and "SASL_SSL" not in printed


def test_nobody_else_may_read_the_folder(tmp_path: Path) -> None:
    new, former, other = tmp_path / "new", tmp_path / "former", tmp_path / "other"
    for folder in (former, other):
        folder.mkdir(mode=0o755)
    (former / LOCK).touch()
    for folder, mode in ((new, 0o700), (former, 0o700), (other, 0o755)):
        make_private(folder)
        assert folder.stat().st_mode & 0o777 == mode, folder
