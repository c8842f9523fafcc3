"""How `kubectl smq` enters a release that knows its callers. kubectl is a script here, which notes its arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from smq.cli import kubectl_plugin
from smq.cli.kubectl_plugin import ServicePort, choose
from smq.cli.release_access import AccessFailed, release_access

KUBECTL = """#!{python}
import sys
from pathlib import Path
with (Path({folder!r}) / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if "token" not in sys.argv:
    print("the roots")
elif "forbidden" in sys.argv:
    sys.exit("error: failed to create token: serviceaccounts \\"forbidden\\" is forbidden")
else:
    print("the token of", sys.argv[sys.argv.index("token") + 1])
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> list[str]:
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    return [str(program), "--context=here"]


def port(*, audience: str = "smq.queue.smq", service: str = "smq", relay: bool = False) -> ServicePort:
    return ServicePort(release="smq", service=service, namespace="queue", port=1, relay=relay, audience=audience)


def test_roots_and_a_token_are_private_files_while_the_command_runs(kubectl: list[str], tmp_path: Path) -> None:
    with release_access(kubectl, name="smq", namespace="queue", audience="a.b.smq", account="app") as variables:
        paths = {name: Path(path) for name, path in variables.items()}
        assert {name: path.read_text() for name, path in paths.items()} == {
            "SMQ_CA_FILE": "the roots",
            "SMQ_TOKEN_FILE": "the token of app",
        }
        assert all(path.parent.stat().st_mode & 0o077 == 0 for path in paths.values())
    assert not any(path.exists() for path in paths.values())
    assert (tmp_path / "calls").read_text().splitlines() == [
        "--context=here --namespace=queue get configmap smq-security-roots --output=jsonpath={.data.ca\\.crt}",
        "--context=here --namespace=queue create token app --audience=a.b.smq --duration=12h",
    ]


def test_who_may_create_no_token_learns_what_to_do(kubectl: list[str]) -> None:
    with (
        pytest.raises(AccessFailed, match=r"is forbidden\n.*ServiceAccount forbidden.*--account.*SMQ_TOKEN_FILE"),
        release_access(kubectl, name="smq", namespace="queue", audience="a", account="forbidden"),
    ):
        pass


@pytest.mark.parametrize(
    ("found", "account"),
    [(port(), "smq-admin"), (port(service="own-external", relay=True), "own-admin")],
)
def test_by_default_it_enters_as_the_administrator_of_the_release(
    kubectl: list[str], found: ServicePort, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SMQ_TOKEN", "SMQ_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with kubectl_plugin._access(kubectl, found, None):
        assert Path(os.environ["SMQ_TOKEN_FILE"]).read_text() == f"the token of {account}"
    with kubectl_plugin._access(kubectl, found, "app"):
        assert Path(os.environ["SMQ_TOKEN_FILE"]).read_text() == "the token of app"


def test_a_token_of_the_user_stays_and_roots_of_other_releases_do_not(
    kubectl: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMQ_CA_FILE", "/other/ca.crt")
    monkeypatch.setenv("SMQ_TOKEN_FILE", "/my/token")
    with kubectl_plugin._access(kubectl, port(), None):
        assert os.environ["SMQ_TOKEN_FILE"] == "/my/token"
        assert Path(os.environ["SMQ_CA_FILE"]).read_text() == "the roots"
    with kubectl_plugin._access(kubectl, port(audience=""), None):
        assert "SMQ_CA_FILE" not in os.environ, "an open release has none"


def test_the_service_says_for_whom_tokens_are() -> None:
    service: dict[str, Any] = {
        "metadata": {"name": "smq", "namespace": "queue", "labels": {"seaweedmq.io/release": "smq"}},
        "spec": {"ports": [{"name": "grpc", "port": 7070}]},
    }
    assert choose([service], None).audience == ""
    service["metadata"]["annotations"] = {"seaweedmq.io/token-audience": "smq.queue.smq"}
    assert choose([service], None).audience == "smq.queue.smq"
