"""How commands enter a secure release: by options, by the environment, or as the `smq dev --secure` of this folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from smq.admin.caller_infos import AccessCheck, AuthorityInfo, AuthorityRotation, CallerInfo
from smq.cli.app import app
from smq.cli.commands import auth, spark
from smq.cli.connection import session
from smq.cli.dev_folder import PROCESS_FILE, RECORD, DevRecord
from smq_storage.process.pids import ProcessId

LEADER = "127.0.0.1:7070"
VARIABLES = ("SMQ_LEADER", "SMQ_VIA", "SMQ_CA_FILE", "SMQ_TOKEN_FILE", "SMQ_TOKEN")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    session.set_leader(None)


def record_dev(folder: Path, *, secure: bool, leader: str = LEADER) -> None:
    own = ProcessId.of(os.getpid())
    assert own is not None
    record = DevRecord(
        process=own,
        leader=leader,
        brokers=1,
        max_brokers=2,
        filer_url="s3://b",
        filer_endpoint="http://f",
        page="http://p/",
        ready=True,
        secure=secure,
    )
    (folder / ".smq").mkdir()
    (folder / ".smq" / PROCESS_FILE).write_text(json.dumps({RECORD: record.to_json()}))


def test_an_open_release_needs_nothing(folder: Path) -> None:
    assert session.security_options() == {}
    record_dev(folder, secure=False)
    assert session.security_options() == {}


def test_the_secure_cluster_of_the_folder_is_entered_as_its_administrator(folder: Path) -> None:
    record_dev(folder, secure=True)
    security = folder / ".smq" / "security"
    whole = {"ca_file": str(security / "ca.crt"), "token_file": str(security / "admin.token")}
    assert session.security_options() == whole
    session.set_leader(LEADER)
    assert session.security_options() == whole


@pytest.mark.parametrize("chosen", [{"address": "other:7070"}, {"address": None, "via": "relay:1"}])
def test_its_token_goes_to_no_other_leader(folder: Path, chosen: dict[str, str]) -> None:
    record_dev(folder, secure=True)
    session.set_leader(**chosen)
    assert session.security_options() == {}


def test_a_token_that_was_chosen_comes_before_the_administrators(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_dev(folder, secure=True)
    session.set_leader(None, security={"token_file": "mine"})
    assert session.security_options()["token_file"] == "mine"
    session.set_leader(None, security={"cert_file": "tls.crt"})
    found = session.security_options()
    assert found["cert_file"] == "tls.crt" and "token_file" not in found
    session.set_leader(None)
    monkeypatch.setenv("SMQ_TOKEN", "mine")
    assert set(session.security_options()) == {"ca_file"}


def test_options_and_variables_reach_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(auth, "client", lambda: seen.append(session.security_options()) or _answering())  # type: ignore[func-returns-value]
    given = {"ca_file": "ca", "token_file": "token"}
    runner = CliRunner()
    assert runner.invoke(app, ["--ca-file", "ca", "--token-file", "token", "auth", "whoami"]).exit_code == 0
    environment = {"SMQ_CA_FILE": "ca", "SMQ_TOKEN_FILE": "token"}
    assert runner.invoke(app, ["auth", "whoami"], env=environment).exit_code == 0
    assert seen == [given, given]


def test_an_option_after_the_command_is_explained() -> None:
    found = CliRunner().invoke(app, ["auth", "whoami", "--ca-file", "ca"])
    assert found.exit_code == 2 and "smq --ca-file FILE" in found.output


# ---- smq auth


def test_the_token_of_this_client_is_printed_as_it_is_now(tmp_path: Path) -> None:
    runner, file = CliRunner(), tmp_path / "token"
    for content in ("first", "second\n"):
        file.write_text(content)
        found = runner.invoke(app, ["--ca-file", "ca", "--token-file", str(file), "auth", "token"])
        assert (found.exit_code, found.output) == (0, f"{content.strip()}\n")
    for options in ([], ["--ca-file", "ca"]):
        found = runner.invoke(app, [*options, "auth", "token"])
        assert found.exit_code != 0 and "--token-file" in found.output


class _Admin:
    def __init__(self, allowed: bool, method: str) -> None:
        self.allowed, self.method = allowed, method
        self.calls: list[Any] = []

    def whoami(self) -> CallerInfo:
        return CallerInfo(identity="spark", groups=("analysts",), method=self.method, expires_at=None)

    def authorities(self) -> AuthorityRotation:
        at = datetime(2027, 1, 1, tzinfo=UTC)
        found = AuthorityInfo(id="a1", phase="introduced", since=at, expires_at=at)
        return AuthorityRotation(authorities=(found,), waits_for="brokers: b1")

    def rotate_authority(self) -> AuthorityRotation:
        self.calls.append("rotate")
        return self.authorities()

    def can_i(self, verb: str, topic: str | None, *, group: str | None) -> AccessCheck:
        self.calls.append((verb, topic, group))
        return AccessCheck(allowed=self.allowed, reason="" if self.allowed else "give it a Role")


def _answering(admin: _Admin | None = None) -> Any:
    from contextlib import nullcontext

    found = admin or _Admin(True, "StaticToken")
    return nullcontext(SimpleNamespace(admin=lambda: found))


@pytest.mark.parametrize(
    ("allowed", "arguments", "code", "words", "called"),
    [
        (True, ["produce", "flights"], 0, "yes", ("produce", "flights", None)),
        (False, ["consume", "flights", "--group", "g"], 1, "no: give it a Role", ("consume", "flights", "g")),
        (True, ["list"], 0, "yes", ("list", None, None)),
        (False, ["list", "-o", "json"], 1, '"allowed": false', ("list", None, None)),
        (True, ["list", "--json"], 0, '"allowed": true', ("list", None, None)),
    ],
)
def test_can_i_answers_by_its_exit_code(
    allowed: bool, arguments: list[str], code: int, words: str, called: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = _Admin(allowed, "StaticToken")
    monkeypatch.setattr(auth, "client", lambda: _answering(admin))
    found = CliRunner().invoke(app, ["auth", "can-i", *arguments])
    assert (found.exit_code, admin.calls) == (code, [called])
    assert words in found.output


@pytest.mark.parametrize(("method", "words"), [("StaticToken", "spark"), ("Open", "this release is open")])
def test_whoami_says_who_the_leader_sees(method: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "client", lambda: _answering(_Admin(True, method)))
    found = CliRunner().invoke(app, ["auth", "whoami"])
    assert found.exit_code == 0 and words in found.output


@pytest.mark.parametrize(("command", "calls"), [("ca", []), ("rotate-ca", ["rotate"])])
def test_authorities_are_shown_with_what_they_wait_for(
    command: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = _Admin(True, "StaticToken")
    monkeypatch.setattr(auth, "client", lambda: _answering(admin))
    found = CliRunner().invoke(app, ["auth", command])
    assert found.exit_code == 0 and admin.calls == calls
    assert "introduced" in found.output and "waits for brokers: b1" in found.output
    assert '"waits_for"' in CliRunner().invoke(app, ["auth", command, "--json"]).output


# ---- other processes


def test_jobs_of_spark_get_the_paths(folder: Path) -> None:
    session.set_leader("h:1", security={"ca_file": "ca.crt", "token_file": "own.token"})
    found = spark.spark_environment([])
    assert found["SMQ_CA_FILE"] == str(folder / "ca.crt") and found["SMQ_TOKEN_FILE"] == str(folder / "own.token")
    assert "SMQ_CA_FILE" not in spark.spark_environment(["--filer", "s3://b"])
