"""`kubectl smq` connects to the right Service, and to nothing if that is not clear. kubectl is a script here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from smq.cli.kubectl_plugin import PluginFailed, choose, needs_cluster, split
from support.waiting import eventually


def service(name: str, port: str, release: str = "smq", namespace: str = "queue") -> dict[str, Any]:
    number = {"grpc": 7070, "relay": 7072}.get(port, 9333)
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"seaweedmq.io/release": release}},
        "spec": {"ports": [{"name": port, "port": number}]},
    }


LEADER, RELAY, FILER = service("smq", "grpc"), service("smq-external", "relay"), service("smq-seaweedfs", "s3")

KUBECTL = """#!{python}
import os, signal, sys
from pathlib import Path
folder = Path({folder!r})
if "get" in sys.argv:
    print((folder / "services.json").read_text())
else:
    signal.signal(signal.SIGINT, lambda *_: (folder / "interrupted").touch())
    (folder / "pid").write_text(str(os.getpid()))
    print("Forwarding from 127.0.0.1:1 -> 7070", flush=True)
    while True:
        signal.pause()
"""

# The plugin with a command that does nothing else, so that the signal meets it there and not while it connects.
WAITING = """
import signal
import time
from smq.cli import kubectl_plugin

# Whoever runs the tests in the background, or by nohup, ignores these, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def wait(command):
    print("waiting", flush=True)
    while True:
        time.sleep(0.01)

kubectl_plugin._run = wait
kubectl_plugin.main()
"""


def test_a_relay_is_preferred_because_it_reaches_brokers_and_filer() -> None:
    found = choose([LEADER, RELAY, FILER], None)
    assert (found.service, found.port, found.relay) == ("smq-external", 7072, True)


def test_without_a_relay_the_leader_is_reached() -> None:
    found = choose([FILER, LEADER], None)
    assert (found.service, found.port, found.relay) == ("smq", 7070, False)


def test_of_several_releases_the_user_chooses() -> None:
    other = service("other", "grpc", release="other")
    with pytest.raises(PluginFailed, match=r"several releases: other, smq; choose one .*--release NAME"):
        choose([LEADER, other], None)
    assert choose([LEADER, other], "other").service == "other"


@pytest.mark.parametrize(("services", "release"), [([], None), ([FILER], None), ([LEADER], "nobody")])
def test_without_a_release_it_says_where_it_looked(services: list[dict[str, Any]], release: str | None) -> None:
    with pytest.raises(PluginFailed, match=r"no release .* in namespace away; .*kubectl smq -n NAMESPACE COMMAND"):
        choose(services, release, "away")
    with pytest.raises(PluginFailed, match="in the namespace of the context"):
        choose(services, release)


@pytest.mark.parametrize(
    ("arguments", "own", "command"),
    [
        ("-n queue topic list -n 3", "-n queue", "topic list -n 3"),
        ("-nqueue --context=here --release smq top", "-nqueue --context=here --release smq", "top"),
        ("--timeout 5 topic list", "", "--timeout 5 topic list"),
        ("--namespace queue --version", "--namespace queue", "--version"),
        ("-n queue -h", "-n queue -h", ""),
        ("topic list --help", "", "topic list --help"),
    ],
)
def test_what_is_no_option_of_the_plugin_is_for_smq(arguments: str, own: str, command: str) -> None:
    assert split(arguments.split()) == (own.split(), command.split())


class Plugin:
    """`kubectl smq` with a kubectl that says it forwards a port."""

    def __init__(self, folder: Path, services: list[dict[str, Any]]) -> None:
        self.folder = folder
        (folder / "services.json").write_text(json.dumps({"items": services}))
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SMQ_")}
        self.environment = kept | {"PATH": f"{folder}:{os.environ['PATH']}"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("kubectl-smq")
        return subprocess.run([program, *arguments], capture_output=True, text=True, env=self.environment)

    @contextmanager
    def waiting(self) -> Iterator[subprocess.Popen[str]]:
        """Its command waits for a signal. In a separate process group, as a shell makes one."""
        words = [sys.executable, "-c", WAITING, "wait"]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=self.environment, process_group=0
        ) as process:
            try:
                assert process.stdout is not None and process.stdout.readline() == "waiting\n"
                yield process
            finally:
                process.kill()

    def forwards(self) -> bool:
        """Whether kubectl still runs."""
        pid = int((self.folder / "pid").read_text())
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True


def test_the_command_runs_at_the_forwarded_address_with_its_exit_code(tmp_path: Path) -> None:
    ran = Plugin(tmp_path, [LEADER]).run("topic", "list")
    assert ran.returncode == 1 and "no leader at 127.0.0.1:1: connection refused" in ran.stderr
    ran = Plugin(tmp_path, [RELAY]).run("-n", "queue", "topic", "list")
    assert ran.returncode == 1 and "no relay at 127.0.0.1:1: connection refused" in ran.stderr
    ran = Plugin(tmp_path, [LEADER]).run("topic", "nothing")
    assert ran.returncode == 2 and "Usage: kubectl smq topic" in ran.stderr


@pytest.mark.parametrize(("services", "who"), [([LEADER], "leader"), ([LEADER, RELAY], "relay")])
def test_addresses_of_other_clusters_are_not_used(tmp_path: Path, services: list[dict[str, Any]], who: str) -> None:
    plugin = Plugin(tmp_path, services)
    plugin.environment |= {"SMQ_LEADER": "127.0.0.1:2", "SMQ_VIA": "127.0.0.1:3"}
    assert f"no {who} at 127.0.0.1:1: connection refused" in plugin.run("topic", "list").stderr


@pytest.mark.parametrize("line", ["", "topic", "topic list --help", "consume -h"])
def test_help_needs_no_release(tmp_path: Path, line: str) -> None:
    ran = Plugin(tmp_path, []).run(*line.split())
    assert f"Usage: kubectl smq{' ' if line else ''}{line.split('-')[0].strip()}" in ran.stdout
    assert not ran.stderr
    assert line or "--release" in ran.stdout, "the plugin's own options, too"


@pytest.mark.parametrize("line", ["topic list", "top", "consume t", "consume", "nonsense", "publish t -- --help"])
def test_everything_else_does(line: str) -> None:
    assert needs_cluster(line.split())


def test_without_a_release_nothing_is_run(tmp_path: Path) -> None:
    ran = Plugin(tmp_path, []).run("topic", "list")
    assert ran.returncode == 1 and ran.stderr.startswith("kubectl smq: there is no release")


@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_the_plugins_help_and_the_version_need_no_release(tmp_path: Path, arguments: str) -> None:
    ran = Plugin(tmp_path, []).run(*arguments.split())
    assert ran.returncode == 0 and "smq" in ran.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_command_first_and_then_the_forward(tmp_path: Path, number: int, code: int) -> None:
    plugin = Plugin(tmp_path, [LEADER])
    with plugin.waiting() as process:
        os.killpg(process.pid, number)
        assert process.wait() == code
    eventually(lambda: not plugin.forwards(), what="kubectl has ended")
    assert not (tmp_path / "interrupted").exists(), "kubectl got the Ctrl-C that is for the command"
