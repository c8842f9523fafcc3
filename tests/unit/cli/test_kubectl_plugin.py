"""`kubectl smq` connects to the right Service, and to nothing if that is not clear. kubectl is a script here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smq.cli.kubectl_plugin import PluginFailed, choose


def service(name: str, port: str, release: str = "smq", namespace: str = "queue") -> dict[str, Any]:
    number = {"grpc": 7070, "relay": 7072}.get(port, 9333)
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/instance": release}},
        "spec": {"ports": [{"name": port, "port": number}]},
    }


LEADER, RELAY, FILER = service("smq", "grpc"), service("smq-external", "relay"), service("smq-seaweedfs", "s3")

KUBECTL = """#!{python}
import sys, time
if "get" in sys.argv:
    print(open({services!r}).read())
else:
    print("Forwarding from 127.0.0.1:1 -> 7070", flush=True)
    time.sleep(3600)
"""


def test_a_relay_is_preferred_because_it_reaches_brokers_and_filer() -> None:
    found = choose([LEADER, RELAY, FILER], None)
    assert (found.service, found.port, found.relay) == ("smq-external", 7072, True)


def test_without_a_relay_the_leader_is_reached() -> None:
    found = choose([FILER, LEADER], None)
    assert (found.service, found.port, found.relay) == ("smq", 7070, False)


def test_of_several_releases_the_user_chooses() -> None:
    other = service("other", "grpc", release="other")
    with pytest.raises(PluginFailed, match="several releases: other, smq; choose with --release"):
        choose([LEADER, other], None)
    assert choose([LEADER, other], "other").service == "other"


@pytest.mark.parametrize(("services", "release"), [([], None), ([FILER], None), ([LEADER], "nobody")])
def test_without_a_release_it_says_where_it_looked(services: list[dict[str, Any]], release: str | None) -> None:
    with pytest.raises(PluginFailed, match="choose one with -n NAMESPACE"):
        choose(services, release)


def run(tmp_path: Path, services: list[dict[str, Any]], *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "services.json").write_text(json.dumps({"items": services}))
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable, services=str(tmp_path / "services.json")))
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SMQ_")}
    environment = kept | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "smq.cli.kubectl_plugin", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def test_the_command_runs_at_the_forwarded_address_with_its_exit_code(tmp_path: Path) -> None:
    ran = run(tmp_path, [LEADER], "topic", "list")
    assert ran.returncode == 1 and "no leader at 127.0.0.1:1: connection refused" in ran.stderr
    ran = run(tmp_path, [RELAY], "-n", "queue", "topic", "list")
    assert ran.returncode == 1 and "no relay at 127.0.0.1:1: connection refused" in ran.stderr
    assert run(tmp_path, [LEADER], "topic", "nothing").returncode == 2


def test_without_a_release_nothing_is_run(tmp_path: Path) -> None:
    ran = run(tmp_path, [], "topic", "list")
    assert ran.returncode == 1 and ran.stderr.startswith("kubectl smq: there is no release")
