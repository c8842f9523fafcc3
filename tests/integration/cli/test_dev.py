"""`smq dev` starts everything, prints the next commands, and stops everything that it started."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes.cli import DevProcess, TerminalDev, smq
from support.processes.useless_proxy import set_proxies
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Start = Callable[..., DevProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `smq dev` on tmp_path/data; ends what is left at the end."""
    started: list[DevProcess] = []

    def run(*arguments: str, listen: str = "127.0.0.1:0") -> DevProcess:
        started.append(DevProcess(tmp_path / "data", *arguments, listen=listen))
        return started[-1]

    yield run
    # What a killed one left behind is ended by the next start on its folder.
    if started and started[-1].process.poll() == -signal.SIGKILL:
        started.append(DevProcess(tmp_path / "data", "--brokers", "1").wait_ready())
    for one in started:
        one.end()


def processes(folder: Path) -> set[int]:
    """The running processes that were started with something of this folder on their command line or in their
    environment: the leader, the brokers and SeaweedFS."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def broker_pids(folder: Path) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in sorted((folder / "brokers").glob("*.json"))]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_it_stops_everything_that_it_started_and_leaves_the_data(start: Start) -> None:
    dev = start("--brokers", "2").wait_ready()
    assert smq("apply", "-f", "examples/topics/events.yaml", leader=dev.leader).code == 0
    assert smq("publish", "events", leader=dev.leader, stdin="kept\n").code == 0
    started = processes(dev.folder) | set(broker_pids(dev.folder))
    assert len(broker_pids(dev.folder)) == 2 and len(started) >= 5  # itself, SeaweedFS, the leader, two brokers

    assert dev.end(signal.SIGINT) == 0

    assert not [pid for pid in started if is_running(pid)]
    assert "stopping the leader" in dev.output and "the data is in" in dev.output
    again = start("--brokers", "2").wait_ready()
    ran = smq("consume", "events", "--from", "earliest", "--max", "1", "--idle-timeout", "120", leader=again.leader)
    assert ran.out == "kept\n", ran
    started = processes(again.folder) | set(broker_pids(again.folder))
    assert again.end(signal.SIGTERM) == 0
    assert not [pid for pid in started if is_running(pid)]


@pytest.mark.slow
def test_it_starts_where_the_environment_names_a_proxy(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    set_proxies(monkeypatch)
    dev = start("--brokers", "1").wait_ready()
    assert smq("apply", "-f", "examples/topics/events.yaml", leader=dev.leader).code == 0
    assert smq("publish", "events", leader=dev.leader, stdin="a message\n").code == 0


def test_what_to_type_next_works_as_it_is_printed(dev: DevProcess) -> None:
    typed = [line.strip() for line in dev.output.splitlines() if "smq --leader" in line]
    assert [line.split(dev.leader)[1].split()[0] for line in typed] == ["topic", "publish", "consume", "top"]

    for line in typed[:3]:
        ran = smq(*line.removeprefix("echo hello | smq ").removeprefix("smq ").split(), stdin="hello\n")
        assert ran.code == 0 and ran.out, (line, ran)


def test_one_in_the_background_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        ran = smq("dev", "--detach", "--dir", folder, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")

    assert ran.code == 1 and "Address already in use" in ran.err and "Traceback" not in ran.err
    assert not processes(tmp_path)
    assert smq("dev", "status", "--dir", folder).code == 1
    stopped = smq("dev", "stop", "--dir", folder)
    assert (stopped.code, stopped.out) == (0, f"no `smq dev` runs on {folder}\n")


def test_its_state_is_shown_and_another_one_in_the_background_is_refused(dev: DevProcess) -> None:
    shown = smq("dev", "status", "--dir", str(dev.folder))
    assert shown.code == 0 and shown.lines[0] == f"running (process {dev.process.pid})" and dev.leader in shown.out

    ran = smq("dev", "--detach", "--dir", str(dev.folder), "--listen", "127.0.0.1:0")
    assert ran.code == 1 and f"already (process {dev.process.pid}, leader {dev.leader})" in ran.err


def test_a_second_one_on_the_same_folder_is_refused_and_disturbs_nothing(dev: DevProcess) -> None:
    ran = smq("dev", "--dir", str(dev.folder), "--listen", "127.0.0.1:0")

    assert ran.code == 1 and "Traceback" not in ran.err
    assert f"in use by another `smq dev` (process {dev.process.pid})" in ran.err and "--dir" in ran.err
    assert smq("broker", "list", leader=dev.leader).column("STATE") == ["alive"] * 3


def test_a_port_in_use_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        ran = smq("dev", "--dir", str(tmp_path / "data"), "--listen", address)

    assert ran.code == 1
    assert f"cannot listen on {address} (Address already in use)" in ran.err and "--listen" in ran.err
    assert not (tmp_path / "data" / "seaweedfs").exists()


def test_what_a_killed_one_left_running_is_ended_by_the_next(start: Start) -> None:
    first = start("--brokers", "1").wait_ready()
    left = processes(first.folder) | set(broker_pids(first.folder))
    first.process.kill()
    first.process.wait()
    left.discard(first.process.pid)
    assert all(is_running(pid) for pid in left)

    second = start("--brokers", "1").wait_ready()

    assert "left over from a `smq dev` that was killed" in second.output
    eventually(lambda: not any(is_running(pid) for pid in left), what="the old processes have ended")


def test_when_the_leader_dies_everything_is_stopped_with_a_message(start: Start) -> None:
    dev = start("--brokers", "1").wait_ready()
    leader = json.loads((dev.folder / "dev.json").read_text())["leader"][0]
    started = processes(dev.folder) | set(broker_pids(dev.folder))

    os.kill(leader, signal.SIGKILL)

    assert dev.process.wait(HANG_GUARD) == 1
    dev.end()
    assert "the leader ended (exit code -9)" in dev.output
    assert not [pid for pid in started if is_running(pid)]


# Messages stay in the memory of the brokers until these end.
IN_MEMORY = """
apiVersion: seaweedmq.io/v1alpha1
kind: Topic
metadata: {name: NAME}
spec: {partitions: 4, segments: {min: 1, max: 1}, flush: {interval: 10m}}
"""


def publish_in_memory(leader: str) -> list[str]:
    """The lines of acked messages that no file has yet."""
    assert smq("apply", "-f", "-", leader=leader, stdin=IN_MEMORY.replace("NAME", "kept")).code == 0
    lines = [f"message {number}" for number in range(50)]
    assert smq("publish", "kept", leader=leader, stdin="\n".join(lines) + "\n").code == 0
    return lines


def read_back(dev: DevProcess, count: int) -> list[str]:
    ran = smq("consume", "kept", "--from", "earliest", "--max", str(count), "--idle-timeout", "60", leader=dev.leader)
    assert ran.code == 0, ran
    return ran.lines


@pytest.mark.parametrize("controlling", [True, False], ids=["foreground", "background"])
def test_nothing_is_lost_when_the_terminal_goes_away(start: Start, tmp_path: Path, controlling: bool) -> None:
    dev = TerminalDev(tmp_path / "data", "--brokers", "2", controlling=controlling)
    try:
        leader = dev.wait_ready().leader
        lines = publish_in_memory(leader)
        started = processes(dev.folder) | set(broker_pids(dev.folder))
        assert len(started) >= 5

        dev.hang_up()
        if not controlling:  # it prints decisions to nobody, and goes on
            assert smq("apply", "-f", "-", leader=leader, stdin=IN_MEMORY.replace("NAME", "more")).code == 0
            eventually(lambda: "create" in smq("topic", "describe", "more", leader=leader).out)
            assert dev.process.poll() is None
            dev.process.send_signal(signal.SIGTERM)

        assert dev.process.wait(HANG_GUARD) == 0
    finally:
        dev.process.kill()
    assert not [pid for pid in started if is_running(pid)]
    assert not (dev.folder / "dev.json").exists()
    assert sorted(read_back(start("--brokers", "2").wait_ready(), len(lines))) == sorted(lines)


@pytest.mark.parametrize("leader_too", [False, True], ids=["leader lives", "leader killed"])
def test_brokers_left_without_a_filer_lose_nothing_of_what_they_hold(start: Start, leader_too: bool) -> None:
    """A new leader at the port of the killed one takes them over. A leader that lives ends them before the new one."""
    first = start("--brokers", "2").wait_ready()
    lines = publish_in_memory(first.leader)
    known = json.loads((first.folder / "dev.json").read_text())
    brokers = broker_pids(first.folder)
    first.process.kill()
    first.process.wait()
    for name in ("seaweedfs", "leader") if leader_too else ("seaweedfs",):
        os.kill(known[name][0], signal.SIGKILL)
        eventually(lambda name=name: not is_running(known[name][0]))
    assert all(is_running(pid) for pid in brokers), "they serve on, and hold what nobody else has"

    second = start("--brokers", "2").wait_ready()

    assert "starting SeaweedFS for the brokers left over" in second.output
    assert sorted(read_back(second, len(lines))) == sorted(lines)

    def ended_or_taken_over() -> bool:
        return {pid for pid in brokers if is_running(pid)} <= (set(broker_pids(second.folder)) if leader_too else set())

    eventually(ended_or_taken_over, what="no old broker runs without a leader")
    assert second.end() == 0
    assert not [pid for pid in brokers if is_running(pid)]
