"""No repr shows a token, a key or a password: a log, an exception or a debugger may print any object."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import smq
from pyspark_smq.options import Connection, ReadOptions
from smq.transport.connect_target import resolve_target
from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.leader_client.leader_channels import LeaderChannels
from smq_core.access.peers import Peer, Role
from smq_operator.kube.security.release_secret import ReleaseSecret
from smq_operator.local.security.folder import SecurityFolder
from smq_operator.security.identities.tokens import StaticTokens
from smq_proto.signed_grants import GrantSigner, GrantVerifier
from smq_storage.object_store.presigned.urls import SigningKey
from smq_storage.object_store.store import StoreSettings

PACKAGES = ("smq", "smq_core", "smq_proto", "smq_storage", "smq_broker", "smq_operator", "pyspark_smq")
SECRET = re.compile(r"(^|_)(tokens?|keys?|secrets?|passwords?|pem|credentials?|authorization|digest|signature)(_|$)")
# The key of a message, of which a topic is full, and names of columns with it.
MESSAGE_KEYS = {
    "pyspark_smq.planning.wanted.Wanted": {"key"},
    "smq.admin.topic_infos.TopicInfo": {"key"},
    "smq.batch.Message": {"key"},
    "smq.cli.files.sinks.Shown": {"key_delimiter"},
    "smq.cli.files.sources.Reading": {"key", "key_delimiter"},
    "smq.producing.batching.message_group.MessageGroup": {"keys"},
    "smq.producing.batching.row_batch.RowBatch": {"keys"},
    "smq.reading.open_topic.OpenedTopic": {"key"},
    "smq_broker.kafka.records.decoding.DecodedRecords": {"keys"},
    "smq_broker.kafka.records.decoding.RecordLists": {"keys"},
    "smq_broker.rows.batches.WireSchemas": {"key"},
    "smq_core.file_lists.file_list.FileEntry": {"key_min", "key_max"},
    "smq_core.invariants.Message": {"key"},
    "smq_core.model.compacted_rows.CompactedRows": {"key_min", "key_max"},
    "smq_core.model.compacted_rows.StoredRows": {"key_min", "key_max"},
    "smq_core.model.entities.TopicSpec": {"key"},
    "smq_storage.compaction.topic_compaction.MergeTask": {"key"},
    "smq_storage.tables.file_lists._Columns": {"key_min", "key_max"},
    "smq_storage.topic_manifests.fields.SpecModel": {"key"},
}
OTHERS = {
    # The number of an API of Kafka.
    "smq_broker.kafka.protocol.messages.KafkaRequest": {"api_key"},
    # The id or the name of a topic.
    "smq_broker.kafka.apis.fetch_sessions.WantedTopic": {"key"},
    # An object, whose own repr is below: it hides what it has.
    "smq.transport.connect_target.ConnectTarget": {"key"},
    "smq.transport.dialer.Dialer": {"credentials"},
    "smq_operator.security.access.access_control.IdleChecks": {"tokens"},
    "smq_storage.object_store.clients.S3Options": {"key"},
    "smq_storage.object_store.presigned.session_keys.SessionKeys": {"key"},
    # Names: of an audience, and of a Secret.
    "smq_operator.kube.settings.KubeSettings": {"token_audience", "ca_secret"},
    # Whether requests have to be signed.
    "smq_storage.object_store.store.StoreSettings": {"needs_credentials"},
    # The public key of an issuer.
    "smq_operator.security.identities.oidc.issuer_keys.IssuerKey": {"key"},
}
SHOWN = MESSAGE_KEYS | OTHERS


@cache
def classes() -> dict[str, type]:
    """Every class of the project, by its full name."""
    found = {}
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
            found |= {f"{module.name}.{it.__qualname__}": it for _, it in members if it.__module__ == module.name}
    return found


def field_names(kind: type) -> list[str]:
    """Of a class that shows its fields; others show none."""
    if is_dataclass(kind):
        return [it.name for it in fields(kind)]
    if issubclass(kind, BaseModel):
        return list(kind.model_fields)
    return list(getattr(kind, "_fields", ())) if issubclass(kind, tuple) else []


def secret_fields() -> Iterator[tuple[str, type, str]]:
    """Those with such a name. A name that ends with ``_file`` is that of a path."""
    for name, kind in classes().items():
        for field in field_names(kind):
            if SECRET.search(field) and not field.endswith("_file"):
                yield name, kind, field


def filled(kind: type) -> Any:
    """An instance whose fields are texts, without the checks of its constructor."""
    values = {name: f"the-{name}-value" for name in field_names(kind)}
    if issubclass(kind, BaseModel):
        return kind.model_construct(**values)
    if issubclass(kind, tuple):
        return kind(*values.values())
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_no_field_with_a_secret_is_shown() -> None:
    shown = []
    for name, kind, field in secret_fields():
        if field not in SHOWN.get(name, ()):
            made, value = filled(kind), f"the-{field}-value"
            assert getattr(made, field) == value
            shown += [f"{name}.{field}" for text in (repr(made), str(made), f"{made}") if value in text]
    assert not shown, "hide it by field(repr=False), or say in this file why it is no secret"


def test_the_fields_that_are_known_are_found() -> None:
    found = {(kind.__name__, field) for _, kind, field in secret_fields()}
    assert found > {
        ("StoreSettings", "secret_key"),
        ("SigningKey", "session_token"),
        ("Connection", "filer_secret_key"),
        ("SecurityFiles", "token"),
        ("Certificate", "key"),
        ("AuthorityKeys", "key"),
        ("AuthoritySet", "keys"),
        ("StaticToken", "digest"),
    }
    named = {(name, field) for name, _, field in secret_fields()}
    assert {(name, field) for name, known in SHOWN.items() for field in known} <= named, "no longer there"


def holders(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Objects of a running release that reach secrets, and what these secrets are."""
    kept = SecurityFolder(folder / "security", lambda: 1_700_000_000.0)
    kept.ensure("r1")
    brokers = kept.broker_tokens(lambda _: False)
    security = kept.open(brokers, "leader-1")
    authority = security.authority
    certificate = authority.issue(Peer(Role.CLIENT, "r1", "app", 1_700_000_900), now=1_700_000_000.0)
    grant_key = (folder / "security" / "grants.key").read_bytes()
    words = {"access_key": "an-access-key", "secret_key": "a-secret-key", "session_token": "a-session-token"}
    store = StoreSettings(url="s3://bucket/prefix", endpoint="http://127.0.0.1:1", **words)
    files = {"ca_file": str(folder / "security" / "ca.crt"), "token": "a-token-of-a-program"}
    given = {f"filer_{name}": value for name, value in words.items()}
    target = resolve_target("127.0.0.1:1", filer_url=store.url, **files, **given)
    client = smq.connect("127.0.0.1:1", filer_url=store.url, **files, **given)
    connection = Connection("t", filer=store.url, **given)
    login = Login("r1", certificate, GrantVerifier([security.grants.public_key]))
    found = {
        "StoreSettings": store,
        "Store": store.open(),
        "SigningKey": SigningKey(**words),
        "S3Options": store.open()._options,
        "ConnectTarget": target,
        "Dialer": target.dialer,
        "Credentials": target.dialer.credentials,
        "SecurityFiles": target.dialer.credentials and target.dialer.credentials.files,
        "Client": client,
        "Admin": client.admin(),
        "Connection": connection,
        "ReadOptions": ReadOptions(connection),
        "Certificate": certificate,
        "Login": login,
        "BrokerCredentials": BrokerCredentials(login),
        "LeaderChannels": LeaderChannels(files["ca_file"], str(folder / "security" / "admin.token")),
        "AuthorityKeys": authority.keys,
        "CertificateAuthority": authority,
        "Authorities": security.authorities,
        "AuthoritySet": security.authorities.known,
        "LeaderSecurity": security,
        "LeaderCertificate": security.certificate,
        "GrantSigner": GrantSigner(grant_key),
        "StaticTokens": StaticTokens(folder / "security" / "tokens.yaml"),
        "BrokerTokens": brokers,
        "BrokerCredentials of a folder": kept.credentials(brokers),
        "SecurityFolder": kept,
        "ReleaseSecret": ReleaseSecret(api=None, namespace="n", name="s", labels={}),  # type: ignore[arg-type]
    }
    keys = [it.key.decode().splitlines()[2] for it in (certificate, authority.keys)]
    raw = [grant_key, (folder / "security" / "brokers.key").read_bytes()]
    texts = [*words.values(), files["token"], (folder / "security" / "admin.token").read_text(), brokers.issue("i")]
    client.close()
    return found, [*texts, *keys, *(repr(it)[2:-1] for it in raw), *(it.hex() for it in raw)]


def test_what_reaches_a_secret_does_not_show_it(tmp_path: Path) -> None:
    found, secrets = holders(tmp_path)
    assert all(secrets) and len(secrets) > 10
    assert not [
        (name, secret[:5])
        for name, it in found.items()
        for secret in secrets
        for text in (repr(it), str(it))
        if secret in text
    ]
