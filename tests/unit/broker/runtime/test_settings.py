"""Flags and environment variables."""

import os
from unittest import mock

import pytest

from smq_broker.runtime.settings import BrokerSettings, parse_settings
from smq_core.errors import InvalidRequest
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.entities import SECOND

FILER = {"SMQ_FILER_URL": "s3://smq/x"}


def parse(arguments: list[str], environment: dict[str, str]) -> BrokerSettings:
    with mock.patch.dict(os.environ, environment):
        return parse_settings(arguments)


def test_flags_go_before_the_environment():
    env = FILER | {"SMQ_NAME": "env", "SMQ_LEADER": "a:1, b:2", "SMQ_MEMORY": "2Gi"}
    settings = parse(["--name", "flag"], env)
    assert (settings.name, settings.leader, settings.memory) == ("flag", ("a:1", "b:2"), 2 << 30)


def test_an_empty_variable_is_as_good_as_none():
    assert parse([], FILER | {"SMQ_LEADER": "", "SMQ_NODE": ""}).leader == ()


def test_help_shows_each_flag_and_readable_defaults_only(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        parse_settings(["--help"])
    said = capsys.readouterr().out
    assert all("--" + name.replace("_", "-") in said for name in BrokerSettings.model_fields)
    assert (
        "(default: info)" in said and "(default: )" not in said and "factory" not in said and "1073741824" not in said
    )


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        ([], {}, "--filer-url"),
        (["--memory", "much"], FILER, "--memory: .*32Mi"),
        (["--memory", "1Mi"], FILER, "--memory"),
        (["--listen", "7070"], FILER, "--listen: .*host:port"),
        (["--advertise", "http://x"], FILER, "--advertise: .*host:port"),
        (["--log-level", "loud"], FILER, "--log-level"),
        (["--token-file", "t"], FILER, "--token-file: .*clear text.*--ca-file"),
        (["--ca-file", "c"], FILER | {"SMQ_LEADER": "a:1"}, "--token-file: required with --ca-file"),
        (["--ca-file", "c", "--token-file", "t"], FILER, "--token-file: .*logs in at a leader.*--leader"),
        ([], FILER | {"SMQ_CA_FILE": "c", "SMQ_LEADER": "a:1"}, "--token-file: required with --ca-file"),
        (["--permissive", "true"], FILER, "--permissive: needs the roots.*--ca-file"),
        (["--kafka", "9092"], FILER, "--kafka: .*host:port"),
        (["--kafka-proxy", "true"], {}, "--kafka-proxy: .*--leader"),
        (["--kafka-proxy", "true", "--leader", "a:1"], {}, "--kafka: required with --kafka-proxy"),
        (["--kafka-names", "a,leader.smq.internal"], FILER, "--kafka-names: .*own processes"),
        (["--kafka-session-timeout", "5"], FILER, "--kafka-session-timeout: .*10"),
        (["--kafka-names", "a:9092"], FILER, "--kafka-names: .*neither a DNS name nor an IP address"),
        ([], FILER | {"SMQ_GRACE": "soon", "SMQ_LISTEN": "7070"}, r"--listen: .*\n--grace: .*number"),
    ],
)
def test_what_is_wrong_is_said_with_its_flag(arguments: list[str], env: dict[str, str], message: str):
    with pytest.raises(InvalidRequest, match=message):
        parse(arguments, env)


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ([], ()),
        (["--kafka-names", "a"], ()),
        (["--kafka", "0.0.0.0:9092", "--advertise", "10.0.0.7", "--kafka-names", "a, b"], ("10.0.0.7", "a", "b")),
        (["--kafka", "[::]:9092", "--advertise", "fd00::a:3"], ("fd00::a:3",)),
        (["--kafka", "0.0.0.0:9092", "--kafka-advertise", "b1.example:443"], ("b1.example",)),
        (["--kafka", "127.0.0.1:9092"], ("127.0.0.1", "localhost", "127.0.0.1", "::1")),
    ],
)
def test_the_hosts_for_kafka_clients_are_those_that_are_advertised(
    arguments: list[str], hosts: tuple[str, ...]
) -> None:
    assert parse(arguments, FILER).kafka_hosts() == hosts


def test_members_send_nine_heartbeats_in_a_session() -> None:
    default = parse([], FILER).kafka_groups()
    assert default == GroupSettings(), "those of Kafka"
    shorter = parse(["--kafka-session-timeout", "18"], FILER).kafka_groups()
    assert (shorter.consumer_session_timeout, shorter.consumer_heartbeat_interval) == (18 * SECOND, 2 * SECOND)


def test_a_proxy_needs_no_filer() -> None:
    settings = parse(["--kafka-proxy", "true", "--kafka", "[::]:9092", "--leader", "a:1"], {})
    assert settings.kafka_proxy and settings.filer_url == ""
    assert not parse([], FILER).kafka_proxy


def test_a_broker_with_roots_and_a_token_is_secure() -> None:
    settings = parse(["--leader", "a:1"], FILER | {"SMQ_CA_FILE": "ca.crt", "SMQ_TOKEN_FILE": "token"})
    assert (settings.ca_file, settings.token_file) == ("ca.crt", "token")
    assert parse([], FILER).ca_file == parse([], FILER).token_file == "" and not settings.permissive
    assert not parse([], FILER | {"SMQ_PERMISSIVE": ""}).permissive
    secure = FILER | {"SMQ_CA_FILE": "ca.crt", "SMQ_TOKEN_FILE": "token", "SMQ_LEADER": "a:1"}
    assert parse([], secure | {"SMQ_PERMISSIVE": "true"}).permissive


@pytest.mark.parametrize(
    ("listen", "advertise", "expected"),
    [
        ("127.0.0.1:0", "", "127.0.0.1:4711"),
        ("127.0.0.1:0", "broker-1.smq", "broker-1.smq:4711"),
        ("0.0.0.0:7071", "10.0.0.7:7071", "10.0.0.7:7071"),
        ("0.0.0.0:7071", "10.0.0.7:0", "10.0.0.7:4711"),
        ("[::1]:0", "", "[::1]:4711"),
        ("[::]:7071", "fd00::7", "[fd00::7]:4711"),
    ],
)
def test_the_advertised_address_has_the_port_that_was_bound(listen: str, advertise: str, expected: str):
    assert BrokerSettings(filer_url="s3://x", listen=listen, advertise=advertise).advertised(4711) == expected


@pytest.mark.parametrize(
    ("kafka", "given", "expected"),
    [
        ("127.0.0.1:0", {}, "127.0.0.1:4711"),
        ("0.0.0.0:9092", {"advertise": "10.0.0.7:7071"}, "10.0.0.7:4711"),
        ("0.0.0.0:9092", {"advertise": "10.0.0.7:7071", "kafka_advertise": "k.example:19092"}, "k.example:19092"),
    ],
)
def test_kafka_clients_connect_to_the_host_of_the_broker_unless_it_is_given(
    kafka: str, given: dict[str, str], expected: str
) -> None:
    assert BrokerSettings(filer_url="s3://x", kafka=kafka, **given).kafka_advertised(4711) == expected  # type: ignore[arg-type]
