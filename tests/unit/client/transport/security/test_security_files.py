"""What a program gives to enter a secure release: from arguments, or else from the environment."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import smq
from smq.transport.connect_target import resolve_target
from smq.transport.security.security_files import MAX_TOKEN_BYTES, SecurityFiles, security_files
from smq_core.errors import InvalidRequest, Unauthenticated

VARIABLES = ("SMQ_CA_FILE", "SMQ_TOKEN", "SMQ_TOKEN_FILE")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_anything_there_is_no_security() -> None:
    assert security_files(None, None, None) is None
    assert resolve_target("h:1").dialer.credentials is None


@pytest.mark.parametrize(
    ("arguments", "environment", "found"),
    [
        (("ca", None, "file"), {}, SecurityFiles("ca", "file")),
        (("ca", "token", None), {}, SecurityFiles("ca", None, "token")),
        ((None, None, None), {"SMQ_CA_FILE": "ca", "SMQ_TOKEN_FILE": "file"}, SecurityFiles("ca", "file")),
        ((None, None, None), {"SMQ_CA_FILE": "ca", "SMQ_TOKEN": "token"}, SecurityFiles("ca", None, "token")),
        (("ca", None, "file"), {"SMQ_TOKEN": "token", "SMQ_CA_FILE": "other"}, SecurityFiles("ca", "file")),
        ((Path("ca"), None, Path("file")), {}, SecurityFiles("ca", "file")),
        (("ca", None, None), {}, SecurityFiles("ca")),
    ],
)
def test_arguments_come_before_the_environment(
    arguments: tuple[str | None, str | None, str | None],
    environment: dict[str, str],
    found: SecurityFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert security_files(*arguments) == found


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ((None, "token", None), {}, "would travel in clear text: pass ca_file"),
        ((None, None, "file"), {}, "would travel in clear text"),
        ((None, None, None), {"SMQ_TOKEN": "token"}, "would travel in clear text"),
        ((None, None, None), {"SMQ_TOKEN_FILE": "file"}, "would travel in clear text"),
        (("ca", "token", "file"), {}, "either token= or token_file="),
        (("ca", None, None), {"SMQ_TOKEN": "token", "SMQ_TOKEN_FILE": "file"}, "both SMQ_TOKEN and SMQ_TOKEN_FILE"),
        (("ca", "to ken", None), {}, "one line of ASCII"),
        (("ca", "tok\nen", None), {}, "one line of ASCII"),
        (("ca", "", None), {}, "one line of ASCII"),
        (("ca", "x" * (MAX_TOKEN_BYTES + 1), None), {}, "one line of ASCII"),
    ],
)
def test_what_is_wrong_is_refused(
    arguments: tuple[str | None, str | None, str | None],
    environment: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ca_file, token, token_file = arguments
    with pytest.raises(InvalidRequest, match=words) as caught:
        smq.connect("h:1", ca_file=ca_file, token=token, token_file=token_file)
    assert "tok\nen" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "has no token"), (b"a b", "one token in one line"), (b"a\nb", "one token"), (b"\xff", "no text of ASCII")],
)
def test_a_file_without_a_token_is_refused_and_not_quoted(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(Unauthenticated, match=words):
        SecurityFiles("ca", str(path)).read_token()


def test_a_token_never_leaves_the_process() -> None:
    files = SecurityFiles("ca", "file")
    assert pickle.loads(pickle.dumps(files)) == files
    with pytest.raises(InvalidRequest, match="pass token_file"):
        pickle.dumps(SecurityFiles("ca", None, "secret"))


def test_a_client_does_not_show_its_token() -> None:
    with smq.connect("h:1", ca_file="ca", token="secret-token") as client:
        shown = [repr(it) for it in (client, client.admin(), client._target, client._leader, client._target.dialer)]
    assert not any("secret-token" in it for it in shown)
