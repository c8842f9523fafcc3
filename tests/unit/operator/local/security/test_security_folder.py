from __future__ import annotations

import os
from pathlib import Path

import pytest

from smq_core.access.authority_rotation import CertificateLives
from smq_core.access.rights import Right, broker_verb, group_rights, topic_right, topic_verb
from smq_core.errors import InvalidRequest
from smq_operator.local.security import folder as security_folder
from smq_operator.local.security.folder import SecurityFolder
from smq_operator.security.identities.tokens import BrokerTokens

NOW = 1_700_000_000.0
FILES = {"ca.crt", "authorities.json", "grants.key", "brokers.key", "tokens.yaml", "policy.yaml", "admin.token"}


def folder(tmp_path: Path) -> SecurityFolder:
    return SecurityFolder(tmp_path / "security", lambda: NOW)


def brokers(kept: SecurityFolder) -> BrokerTokens:
    return kept.broker_tokens(lambda _: False)


async def test_the_first_start_makes_an_administrator_and_the_next_ones_keep_it(tmp_path: Path) -> None:
    old_umask = os.umask(0)
    try:
        folder(tmp_path).ensure("r1")
    finally:
        os.umask(old_umask)
    made = {path.name: path for path in (tmp_path / "security").iterdir()}
    assert made.keys() == FILES
    assert (tmp_path / "security").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in made.values()} == {0o600}
    before = {name: path.read_bytes() for name, path in made.items()}
    folder(tmp_path).ensure("r1")
    assert {name: path.read_bytes() for name, path in made.items()} == before
    opened = [folder(tmp_path).open(brokers(folder(tmp_path)), "leader-1") for _ in range(2)]
    assert opened[0].authority.release == "r1" and opened[0].authority.roots == before["ca.crt"]
    assert opened[0].grants.public_key == opened[1].grants.public_key
    admin = await opened[0].access.authenticate(
        [("authorization", f"Bearer {before['admin.token'].decode()}")], "Auth.WhoAmI"
    )
    assert admin.identity == "admin" and before["admin.token"] not in before["tokens.yaml"]
    everything = [
        *(topic_right(right, "a/b") for right in Right),
        *(topic_verb(verb, "a/") for verb in ("get", "list", "create", "update", "delete")),
        *(broker_verb("list"), broker_verb("update"), *group_rights("a/b", "g")),
    ]
    for access in everything:
        assert (await opened[0].access.any_of(admin, [access])).allowed, access


@pytest.mark.parametrize("files", range(len(FILES)))
def test_a_crash_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    written: list[Path] = []
    write = security_folder.write_private

    def crash(path: Path, content: bytes) -> None:
        if len(written) == files:
            raise KeyboardInterrupt
        write(path, content)
        written.append(path)

    monkeypatch.setattr(security_folder, "write_private", crash)
    with pytest.raises(KeyboardInterrupt):
        folder(tmp_path).ensure("r1")
    assert not (tmp_path / "security").exists()
    monkeypatch.undo()
    folder(tmp_path).ensure("r1")
    assert {path.name for path in (tmp_path / "security").iterdir()} == FILES
    folder(tmp_path).open(brokers(folder(tmp_path)), "leader-1")


@pytest.mark.parametrize("name", sorted(FILES - {"admin.token", "ca.crt"}))
@pytest.mark.parametrize("content", [None, b""])
def test_a_folder_that_is_not_whole_is_not_made_anew(tmp_path: Path, name: str, content: bytes | None) -> None:
    folder(tmp_path).ensure("r1")
    path = tmp_path / "security" / name
    path.unlink() if content is None else path.write_bytes(content)
    folder(tmp_path).ensure("r1")
    with pytest.raises(InvalidRequest):
        folder(tmp_path).open(brokers(folder(tmp_path)), "leader-1")


def test_the_roots_are_written_again_when_they_are_gone(tmp_path: Path) -> None:
    folder(tmp_path).ensure("r1")
    roots = tmp_path / "security" / "ca.crt"
    before = roots.read_bytes()
    roots.unlink()
    folder(tmp_path).open(brokers(folder(tmp_path)), "leader-1")
    assert roots.read_bytes() == before


def test_an_authority_that_expired_while_the_release_was_off_is_replaced(tmp_path: Path) -> None:
    folder(tmp_path).ensure("r1")
    later = SecurityFolder(tmp_path / "security", lambda: NOW + CertificateLives().authority + 1)
    opened = later.open(brokers(later), "leader-1")
    assert opened.certificate.current().expires_at > NOW + CertificateLives().authority
    assert (tmp_path / "security" / "ca.crt").read_bytes() == opened.authority.roots
    again = later.open(brokers(later), "leader-1")
    assert again.authorities.known.id == opened.authorities.known.id


async def test_a_broker_gets_the_roots_and_a_token_in_a_file(tmp_path: Path) -> None:
    folder(tmp_path).ensure("r1")
    kept = folder(tmp_path)
    credentials = kept.credentials(brokers(kept))
    variables = credentials.issue("i1")
    token = Path(variables["SMQ_TOKEN_FILE"])
    assert Path(variables["SMQ_CA_FILE"]).read_bytes() == kept.open(brokers(kept), "l").authority.roots
    assert token.stat().st_mode & 0o777 == 0o600
    assert (await brokers(folder(tmp_path)).verify(token.read_text())).incarnation == "i1"
    credentials.revoke("i1")
    credentials.revoke("i1")
    assert list(token.parent.iterdir()) == []
