"""A whole release with --security=required: leader, brokers and clients as they are, over a real filer."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl
import pytest
import yaml

import smq
from smq_core import errors
from smq_operator.security.identities.tokens import token_digest
from smq_proto.v1 import admin_pb2
from support.processes.leader import LeaderProcess, manifest
from support.processes.seaweed import Seaweed
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LeaderProcess]:
    started = LeaderProcess(
        tmp_path_factory.mktemp("release"), seaweed.settings("release"), "--security=required", brokers=3
    )
    started.start()
    started.wait_for_brokers()
    started.apply(manifest(segments={"min": 2, "max": 4}))
    started.wait_until_open()
    yield started
    started.stop()


def connect(leader: LeaderProcess, token: str = "") -> smq.Client:
    """As the administrator, or with another token."""
    security = leader.folder / "security"
    who = {"token": token} if token else {"token_file": security / "admin.token"}
    return smq.connect(leader.address, ca_file=security / "ca.crt", timeout=30, **who)  # type: ignore[arg-type]


def add_caller(leader: LeaderProcess, identity: str, **rule: list[str]) -> str:
    """A new identity with a token, which is returned, and with these rights in the namespace ``default``."""
    security, token = leader.folder / "security", f"token-of-{identity}"
    tokens, policy = (yaml.safe_load((security / name).read_text()) for name in ("tokens.yaml", "policy.yaml"))
    tokens["tokens"].append({"identity": identity, "sha256": token_digest(token).hex()})
    (security / "tokens.yaml").write_text(yaml.safe_dump(tokens))
    if rule:
        policy["rules"].append({"identities": [identity], "namespaces": ["default"], **rule})
        (security / "policy.yaml").write_text(yaml.safe_dump(policy))
    return token


def publish(client: smq.Client, *values: str) -> None:
    with client.producer("t") as producer:
        for value in values:
            producer.send(value.encode(), key=value.encode())
        producer.flush()


def read(client: smq.Client, *wanted: str, group: str | None = None) -> None:
    """Returns when these messages of the topic were read."""
    found: set[str] = set()
    with client.consumer("t", group=group, start="earliest") as consumer:
        while not found.issuperset(wanted):
            batch = consumer.poll(HANG_GUARD)
            assert batch is not None, f"only {found} of {wanted}"
            found |= {value.decode() for value in batch.table.column("value").to_pylist()}


def test_messages_travel_from_producers_to_consumers(leader: LeaderProcess) -> None:
    values = {str(number) for number in range(20)}
    with connect(leader) as client:
        publish(client, *values)
        read(client, *values)
        read(client, *values, group="billing")
        table = pa.table({"key": [b"k"], "value": [b"atomic"]})
        client.publish_atomically("t", app="loader", version=1, table=table)
        read(client, "atomic")


def test_a_right_to_read_is_none_to_write(leader: LeaderProcess) -> None:
    with connect(leader) as client:
        publish(client, "for readers")
    token = add_caller(leader, "reader", topics=["t"], verbs=["consume"], consumerGroups=["team.*"])
    with connect(leader, token) as client:
        read(client, "for readers")
        read(client, "for readers", group="team.a")
        with pytest.raises(errors.PermissionDenied, match="topics/produce"):
            publish(client, "x")
        with pytest.raises(errors.PermissionDenied, match="groups/consume"):
            read(client, "for readers", group="other")
        with pytest.raises(errors.PermissionDenied, match="delete"):
            client.admin().delete("t")
    with connect(leader, add_caller(leader, "writer", topics=["t"], verbs=["produce"])) as client:
        publish(client, "by a writer")
        with pytest.raises(errors.PermissionDenied, match="topics/consume"):
            read(client, "by a writer")
    with connect(leader, add_caller(leader, "nobody")) as client, pytest.raises(errors.PermissionDenied):
        publish(client, "x")


def test_a_killed_leader_and_a_killed_broker_come_back_and_nothing_is_lost(leader: LeaderProcess) -> None:
    with connect(leader) as client:
        publish(client, "before")
        incarnations = leader.alive()
        leader.kill()
        leader.start()
        leader.wait_for_brokers()
        assert leader.alive() == incarnations, "adopted brokers know the leader, and it knows them"
        killed = leader.kill_broker("broker-1")
        leader.wait_until_open(without=killed)
        publish(client, "after")
        read(client, "before", "after")
    tokens = {path.stem for path in (leader.folder / "security" / "brokers").iterdir()}
    assert killed not in tokens and tokens >= set(leader.alive().values())


def test_a_stranger_reaches_no_broker(leader: LeaderProcess) -> None:
    addresses = [broker.address for broker in leader.brokers() if broker.state == admin_pb2.BrokerList.Broker.ALIVE]
    roots = (leader.folder / "security" / "ca.crt").read_bytes()
    for address in addresses:
        for url, how in ((f"grpc+tls://{address}", {"tls_root_certs": roots}), (f"grpc://{address}", {})):
            with fl.connect(url, **how) as stranger, pytest.raises((pa.ArrowException, OSError)):
                list(stranger.do_action(fl.Action("status", b""), fl.FlightCallOptions(timeout=10)))
