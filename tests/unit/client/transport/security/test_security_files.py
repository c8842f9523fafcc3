"""What a program gives to enter a secure release: from arguments, or else from the environment."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

import smq
from smq.transport.connect_target import resolve_target
from smq.transport.security.certificate_files import CertificateFiles
from smq.transport.security.security_files import MAX_TOKEN_BYTES, SecurityFiles, security_files
from smq_core.errors import InvalidRequest, Unauthenticated
from smq_proto.certificate_tokens import chain_of, is_certificate_token
from support.user_authority import UserAuthority

NAMES = ("ca_file", "token", "token_file")
VARIABLES = ("SMQ_CA_FILE", "SMQ_TOKEN", "SMQ_TOKEN_FILE", "SMQ_CERT_FILE", "SMQ_KEY_FILE")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_anything_there_is_no_security() -> None:
    assert security_files() is None
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
    assert security_files(**dict(zip(NAMES, arguments, strict=True))) == found


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ((None, "token", None), {}, "would travel in clear text: pass ca_file"),
        ((None, None, "file"), {}, "would travel in clear text"),
        ((None, None, None), {"SMQ_TOKEN": "token"}, "would travel in clear text"),
        ((None, None, None), {"SMQ_TOKEN_FILE": "file"}, "would travel in clear text"),
        (("ca", "token", "file"), {}, "only one of token"),
        (("ca", None, None), {"SMQ_TOKEN": "token", "SMQ_TOKEN_FILE": "file"}, "only one of token"),
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


def test_a_certificate_takes_the_place_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMQ_CERT_FILE", "cert")
    monkeypatch.setenv("SMQ_KEY_FILE", "key")
    monkeypatch.setenv("SMQ_CA_FILE", "ca")
    found = security_files()
    assert found == SecurityFiles("ca", certificate=CertificateFiles("cert", "key"))
    assert pickle.loads(pickle.dumps(found)) == found
    assert security_files(cert_file="own") == SecurityFiles("ca", certificate=CertificateFiles("own", "own"))
    assert security_files(token_file="file") == SecurityFiles("ca", "file")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ca_file": "ca", "cert_file": "cert", "token_file": "file"}, "only one of token"),
        ({"ca_file": "ca", "token_file": "file", "key_file": "key"}, "belongs to a certificate"),
        ({"cert_file": "cert"}, "pass ca_file"),
    ],
)
def test_a_certificate_is_the_only_proof(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        smq.connect("h:1", **arguments)


def test_a_token_is_signed_by_the_certificate_as_it_is_now(tmp_path: Path) -> None:
    authority = UserAuthority("company")
    files = {name: tmp_path / name for name in ("ca_file", "cert_file", "key_file")}
    found = security_files(**files)
    assert found is not None
    for life in (100, 200):
        chain, key = authority.client((NameOID.COMMON_NAME, "alice"), life=life)
        for path, content in zip(files.values(), (authority.pem, chain, key), strict=True):
            path.write_bytes(content)
        assert chain_of(found.read_token()) == x509.load_pem_x509_certificates(chain)
    files["cert_file"].write_bytes(chain + key)
    files["key_file"].unlink()
    with pytest.raises(Unauthenticated, match=r"key file .* cannot be read"):
        found.read_token()
    both = security_files(ca_file=files["ca_file"], cert_file=files["cert_file"])
    assert both is not None and is_certificate_token(both.read_token())


@pytest.mark.parametrize("damaged", ["cert_file", "key_file"])
def test_a_damaged_certificate_is_refused_and_not_quoted(tmp_path: Path, damaged: str) -> None:
    authority = UserAuthority("company")
    chain, key = authority.client((NameOID.COMMON_NAME, "alice"))
    contents = {"ca_file": authority.pem, "cert_file": chain, "key_file": key} | {damaged: b"-----BEGIN secret"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = security_files(**{name: tmp_path / name for name in contents})
    assert found is not None
    with pytest.raises(Unauthenticated, match="in PEM") as caught:
        found.read_token()
    assert "secret" not in str(caught.value)
