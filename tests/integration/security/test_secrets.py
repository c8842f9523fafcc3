"""Nothing that a secure release shows, logs or stores has a secret of it: every place is searched for all of them."""

from __future__ import annotations

import base64
import json
import logging
import secrets
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

import smq
from smq.reading import StateLoader, open_topic
from support.processes.cli import smq as run_smq
from support.processes.guarded_release import guarded_release, know_keys
from support.processes.local_cluster import manifest
from support.processes.secure_cluster import SecureCluster
from support.processes.short_lives import Lives
from support.secret_search import SecretSearch
from support.user_authority import UserAuthority
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration
LIVES = Lives(client=4, grant=3, server=8, authority=3600, margin=1, step=0.2)


def test_the_search_finds_a_secret_however_it_is_written() -> None:
    _, pem = UserAuthority("company").client((NameOID.COMMON_NAME, "alice"))
    raw, token = secrets.token_bytes(32), secrets.token_urlsafe(32)
    texts = [
        *(
            pem,
            json.dumps({"key": pem.decode()}),
            repr(load_pem_private_key(pem, None).private_numbers().private_value),
        ),  # type: ignore[attr-defined, union-attr]
        *(raw, raw.hex(), repr(raw), base64.b64encode(raw), base64.urlsafe_b64encode(b"x" + raw), b"\0" + raw + b"\0"),
        *(token, token[:-3], f"{token[:20]}\n{token[20:]}", base64.b64encode(f"app:{token}".encode())),
    ]
    for text in texts:
        search = SecretSearch()
        search.add_pem("pem", pem)
        search.add_bytes("raw", raw)
        search.add_token("token", token)
        search.see("here", text)
        assert search.found(), text
        search.places = {"here": b"nothing"}
        assert not search.found()


@pytest.fixture
def release(tmp_path: Path) -> Iterator[tuple[SecureCluster, UserAuthority]]:
    """Everything is logged."""
    flags = ("--http=127.0.0.1:0", "--log-level=debug", "--broker-arg=--log-level=debug")
    with guarded_release(tmp_path, *flags, lives=LIVES) as running:
        yield running


def test_no_secret_is_shown_logged_or_stored(
    release: tuple[SecureCluster, UserAuthority], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, company = release
    caplog.set_level(logging.DEBUG)
    search = SecretSearch()
    know_keys(search, cluster)
    certificate, key_file = company.client_files(tmp_path, (NameOID.COMMON_NAME, "alice"))
    search.add_pem("the key of alice", key_file.read_bytes())
    cluster.create("t")
    search.add_token("the token of app", cluster.token_file("app").read_text())
    cluster.allow("app", {"topics": ["t"], "verbs": ["produce", "consume"], "consumerGroups": ["g"]})
    use_by_certificate(search, cluster, certificate, key_file)
    refuse_wrong_files(search, cluster, tmp_path, key_file)
    refuse_wrong_filer_keys(search, cluster)
    damage_the_files(search, cluster)
    use_until_a_right_is_lost_and_the_authority_rotates(search, cluster)
    run_commands(search, cluster, tmp_path)
    know_keys(search, cluster)
    look_everywhere(search, cluster)
    search.see("logs of the client", caplog.text)
    assert len(search.forms) >= 14, search.forms.keys()
    assert len(search.places) >= 60, search.places.keys()
    assert not search.found()


def use_by_certificate(search: SecretSearch, cluster: SecureCluster, certificate: Path, key_file: Path) -> None:
    files = {"ca_file": cluster.ca_file, "cert_file": certificate, "key_file": key_file}
    with smq.connect(cluster.address, **files) as client:
        search.see("whoami", repr(client.admin().whoami()))
        search.know_login(client, "alice")
        search.fails("a producer of alice", lambda: client.producer("t"))
        search.fails("a rotation by alice", lambda: client.admin().rotate_authority())


def refuse_wrong_files(search: SecretSearch, cluster: SecureCluster, folder: Path, key_file: Path) -> None:
    token, wrong = cluster.token_file("app").read_text(), secrets.token_urlsafe(32)
    search.add_token("a wrong token", wrong)
    broker = next((cluster.security / "brokers").glob("*.token")).read_text()
    texts = [
        wrong,
        token[:-3],
        f"{token}\n{token}",
        f"{token}é",
        token * 300,
        broker[:-3],
        f"eyJhbGciOiJub25lIn0.{token}.",
    ]
    for number, text in enumerate(texts):
        path = folder / f"wrong-{number}.token"
        path.write_text(text)
        with smq.connect(cluster.address, ca_file=cluster.ca_file, token_file=path) as client:
            search.fails(f"token {number}", client.admin().whoami)
            search.fails(f"token {number} of a consumer", lambda client=client: client.consumer("t"))
        search.fails(f"token {number}, given", lambda it=text: _whoami(cluster, ca_file=cluster.ca_file, token=it))
    search.fails("a token in clear text", lambda: _whoami(cluster, token=token))
    search.fails("a key for a token", lambda: _whoami(cluster, ca_file=cluster.ca_file, token_file=key_file))
    search.fails("a key for a CA", lambda: _whoami(cluster, ca_file=key_file, token=token))
    search.fails("a key for a certificate", lambda: _whoami(cluster, ca_file=cluster.ca_file, cert_file=key_file))


def _whoami(cluster: SecureCluster, **options: object) -> None:
    with smq.connect(cluster.address, **options) as client:  # type: ignore[arg-type]
        client.admin().whoami()


def refuse_wrong_filer_keys(search: SecretSearch, cluster: SecureCluster) -> None:
    session, wrong = secrets.token_hex(24), secrets.token_hex(24)
    search.add_token("a session token of the filer", session)
    search.add_token("a wrong key of the filer", wrong)
    where = {"filer_url": cluster.store.url, "filer_endpoint": cluster.store.endpoint}
    known = {"filer_access_key": cluster.store.access_key, "filer_secret_key": cluster.store.secret_key}
    for given in (known | {"filer_session_token": session}, known | {"filer_secret_key": wrong}):

        def load(given: dict[str, str | None] = given) -> None:
            with StateLoader(open_topic("t", **where, **given).location) as loader:  # type: ignore[arg-type]
                loader.load()

        search.fails(f"the filer with {list(given)}", load)


def damage_the_files(search: SecretSearch, cluster: SecureCluster) -> None:
    """Secrets are where they do not belong, or not whole."""
    path, token = cluster.security / "tokens.yaml", cluster.token_file("app").read_text()
    whole, log = path.read_text(), cluster.folder / "leader.log"
    entry = {"identity": "x", "sha256": "0" * 64}
    damaged = [
        f'{whole}\n- identity: "{token}',
        *(
            yaml.safe_dump({"tokens": [it]})
            for it in (
                {**entry, "sha256": token},
                {**entry, "token": token},
                {**entry, "identity": f"{token}\n"},
                token,
            )
        ),
    ]
    with cluster.connect_as("app") as client:
        for number, text in enumerate(damaged, 1):
            path.write_text(text)
            eventually(
                lambda n=number: client.admin().whoami() and log.read_text().count("security_file.rejected") >= n,
                what=f"damage {number} is in the log",
            )
    path.write_text(whole)
    authorities = cluster.security / "authorities.json"
    content = authorities.read_text()
    authorities.write_text(content[:-5])
    eventually(lambda: "is damaged" in log.read_text() or _problem(cluster), what="a problem of the authorities")
    authorities.write_text(content)


def _problem(cluster: SecureCluster) -> bool:
    return "damaged" in run(cluster, "broker", "list").err


def use_until_a_right_is_lost_and_the_authority_rotates(search: SecretSearch, cluster: SecureCluster) -> None:
    keys = {"filer_access_key": cluster.store.access_key, "filer_secret_key": cluster.store.secret_key}
    with cluster.connect() as admin, cluster.connect_as("app", uploads="presigned", **keys) as client:
        search.know_login(client, "app")
        producer, consumer = (
            client.producer("t", max_inline_bytes=1 << 16),
            client.consumer("t", group="g", start="earliest"),
        )
        for value in (b"a", b"b" * 100_000):
            producer.send(value).result(HANG_GUARD)
        assert consumer.poll(HANG_GUARD) is not None
        consumer.commit()
        first = {it.id for it in admin.admin().authorities().authorities}
        admin.admin().rotate_authority()
        know_keys(search, cluster)
        eventually(lambda: _signing(admin) not in first, what="another authority signs")
        producer.send(b"c").result(HANG_GUARD)
        search.know_login(client, "app after the rotation")
        cluster.allow("app", {"topics": ["t"], "verbs": ["get"]})

        def send_on() -> None:
            while True:
                producer.send(b"d").result(HANG_GUARD)

        search.fails("a producer without its right", send_on)
        search.fails("a consumer without its right", lambda: client.consumer("t"))
        search.fails("a change without the right", lambda: client.admin().apply(manifest("t", partitions=128)))


def _signing(client: smq.Client) -> str:
    return next(it.id for it in client.admin().authorities().authorities if it.phase == "signing")


def run(cluster: SecureCluster, *words: str, identity: str = "admin"):  # type: ignore[no-untyped-def]
    token = cluster.security / "admin.token" if identity == "admin" else cluster.token_file(identity)
    return run_smq("--ca-file", str(cluster.ca_file), "--token-file", str(token), *words, leader=cluster.address)


def run_commands(search: SecretSearch, cluster: SecureCluster, folder: Path) -> None:
    changed = folder / "t.json"
    changed.write_text(manifest("t", segments={"min": 1, "max": 8}))
    commands = [
        *(("auth", "whoami"), ("auth", "can-i", "delete", "t"), ("auth", "ca"), ("auth", "rotate-ca")),
        *(("broker", "list"), ("topic", "list"), ("topic", "describe", "t"), ("topic", "describe", "t", "--story")),
        ("apply", "--dry-run", "-f", str(changed)),
    ]
    with ThreadPoolExecutor(2) as pool:
        for words, done in zip(commands, pool.map(lambda it: run(cluster, *it), commands), strict=True):
            assert done.code == 0, (words, done.err)
            search.see(f"smq {' '.join(words)}", done.out + done.err)
    denied = run(cluster, "topic", "delete", "t", "--yes", identity="app")
    assert denied.code == 1 and "app may not" in denied.err
    search.see("smq topic delete", denied.out + denied.err)


def look_everywhere(search: SecretSearch, cluster: SecureCluster) -> None:
    """What processes log, write on disk, show of themselves, serve, and store in the filer."""
    paths = (cluster.folder / "leader.log", *(cluster.folder / "logs").glob("*.log"))
    logs = {path.stem: path.read_text() for path in paths}
    assert logs.keys() >= {"leader", *cluster.pids()}
    for path in cluster.folder.rglob("*"):
        if path.is_file() and cluster.security not in path.parents and path.suffix != ".token":
            search.see(f"file {path.relative_to(cluster.folder)}", path.read_bytes())
    for pid in (cluster.leader_pid, *cluster.pids().values()):
        search.see(f"command line of {pid}", Path(f"/proc/{pid}/cmdline").read_bytes())
    leader = _ready("leader.ready", logs["leader"])
    served = [f"127.0.0.1:{leader['http']}{path}" for path in ("/", "/overview.json", "/metrics", "/readyz")]
    for name in cluster.pids():
        served += [f"{_ready('broker.ready', logs[name])['http']}{path}" for path in ("/metrics", "/readyz")]
    for url in served:
        with urllib.request.urlopen(f"http://{url}", timeout=HANG_GUARD) as answer:
            search.see(f"page {url}", answer.read())
    store = cluster.store.open()
    documents = list(store.list(""))
    assert {"_topic.json", "_layout.json"} <= {it.path.rpartition("/")[2] for it in documents}
    for it in documents:
        search.see(f"object {it.path}", bytes(store.get(it.path).data))


def _ready(event: str, log: str) -> dict[str, str]:
    """The line of the log in which a process says where it serves."""
    line: dict[str, str] = json.loads(next(it for it in reversed(log.splitlines()) if f'"{event}"' in it))
    return line
