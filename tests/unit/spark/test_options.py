"""Options are parsed exactly, and what is wrong with one is said in its own words."""

from __future__ import annotations

import pickle

import pytest

from pyspark_smq.errors import InvalidOption
from pyspark_smq.options import MIB, Connection, ReadOptions, StreamOptions, Timestamp, WriteOptions, parse_timestamp
from smq_core.model.entities import SECOND
from smq_core.reading.pins import DEFAULT_LIFETIME

BASE = {"topic": "flights", "leader": "localhost:7070"}
SEGMENT = "flights-0-64-0"


def test_defaults() -> None:
    read, stream = ReadOptions.parse(BASE), StreamOptions.parse(BASE)
    assert (read.start, read.end, stream.start) == ("earliest", "latest", "latest")
    assert read.fail_on_data_loss and stream.fail_on_data_loss
    assert read.max_partition_bytes == 128 * MIB
    assert read.columns is None and read.ranges is None and not read.push_filters and not read.files_only
    assert read.pin_lifetime == DEFAULT_LIFETIME
    assert ReadOptions.parse(BASE | {"pinLifetime": "2h"}).pin_lifetime == 7200 * SECOND
    assert stream.max_rows_per_trigger is None and stream.max_bytes_per_trigger is None


def test_names_are_not_case_sensitive_as_spark_hands_them_over_in_lower_case() -> None:
    read = ReadOptions.parse({"TOPIC": "a/b", "filer": "s3://b", "failondataloss": "FALSE", "columns": "key, value"})
    assert read.connection.topic == "a/b"
    assert not read.fail_on_data_loss
    assert read.columns == ("key", "value")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "topic is missing"),
        ({"topic": ""}, "topic is missing"),
        (BASE | {"startingPositon": "latest"}, "did you mean 'startingPosition'"),
        (BASE | {"subscribe": "flights"}, "is 'topic' here"),
        (BASE | {"kafka.bootstrap.servers": "b:1"}, "is 'leader' here"),
        (BASE | {"zzz": "1"}, "there is no option 'zzz' for a batch read"),
        (BASE | {"maxRowsPerTrigger": "1"}, "no meaning for a batch read"),
        (BASE | {"txnAppId": "1"}, "no meaning for a batch read"),
        (BASE | {"startingPosition": "latest", "startingTimestamp": "1"}, "exclude each other"),
        (BASE | {"ranges": "{}", "endingPosition": "latest"}, "exclude each other"),
        (BASE | {"startingPosition": "soon"}, "earliest, latest or JSON"),
        (BASE | {"startingPosition": "[1]"}, "earliest, latest or JSON"),
        (BASE | {"startingPosition": f'{{"{SEGMENT}": -1}}'}, "must be 0 or more, not -1"),
        (BASE | {"startingPosition": f'{{"{SEGMENT}": true}}'}, "must be 0 or more, not True"),
        (BASE | {"endingPosition": "earliest"}, "nothing would be read"),
        (BASE | {"ranges": f'{{"{SEGMENT}": [[3, 2]]}}'}, "pairs of offsets in order"),
        (BASE | {"ranges": f'{{"{SEGMENT}": [[0, 4], [3, 5]]}}'}, "pairs of offsets in order"),
        (BASE | {"ranges": f'{{"{SEGMENT}": [0, 4]}}'}, "pairs of offsets in order"),
        (BASE | {"startingTimestamp": "yesterday"}, "2026-01-31T12:00:00Z"),
        (BASE | {"failOnDataLoss": "yes"}, "true or false"),
        (BASE | {"minPartitions": "0"}, "1 or more"),
        (BASE | {"pinLifetime": "soon"}, "pinLifetime is 'soon'"),
        (BASE | {"pinLifetime": "4s"}, "5 seconds or longer"),
        (BASE | {"pinLifetime": "1h", "pin": "mine"}, "exclude each other"),
        (BASE | {"maxPartitionBytes": "big"}, "a size like"),
        (BASE | {"columns": "a,,b"}, "names of columns"),
        (BASE | {"columns": "a,a"}, "names a column twice"),
        (BASE | {"filerAccessKey": "k"}, "filerSecretKey is missing"),
        (BASE | {"filerSessionToken": "t"}, "filerSessionToken belongs to"),
        (BASE | {"token": "hush"}, "there is no option 'token', because plans .* give tokenFile"),
        (BASE | {"Token": "hush"}, "give tokenFile"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        ReadOptions.parse(options)


def test_positions_and_ranges() -> None:
    read = ReadOptions.parse(
        BASE | {"startingPosition": f'{{"{SEGMENT}": 3}}', "endingPosition": f'{{"{SEGMENT}": 9}}'}
    )
    assert (read.start, read.end) == ({SEGMENT: 3}, {SEGMENT: 9})
    assert ReadOptions.parse(BASE | {"ranges": f'{{"{SEGMENT}": [[3, 9], [9, 12]]}}'}).ranges == {
        SEGMENT: ((3, 9), (9, 12))
    }
    assert ReadOptions.parse(BASE | {"ranges": "{}"}).ranges == {}


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01T02:00:00.000001+02:00", 1),
        ("1970-01-02", 86_400_000_000),
    ],
)
def test_times_are_iso_or_milliseconds_as_kafka_has_them(text: str, micros: int) -> None:
    assert parse_timestamp(text) == Timestamp(micros)


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("64k", 65536), ("1m", MIB), ("2MiB", 2 * MIB), ("1gb", 1 << 30)])
def test_sizes_are_as_sparks_own(text: str, size: int) -> None:
    assert StreamOptions.parse(BASE | {"maxBytesPerTrigger": text}).max_bytes_per_trigger == size


def test_kafkas_name_of_the_limit_is_an_alias() -> None:
    assert StreamOptions.parse(BASE | {"maxOffsetsPerTrigger": "5"}).max_rows_per_trigger == 5
    with pytest.raises(InvalidOption, match="exclude each other"):
        StreamOptions.parse(BASE | {"maxOffsetsPerTrigger": "5", "maxRowsPerTrigger": "5"})


def test_writes() -> None:
    write = WriteOptions.parse(BASE | {"txnAppId": "daily", "txnVersion": "7", "checkpointLocation": "/tmp/c"})
    assert (write.txn_app_id, write.txn_version) == ("daily", 7)
    with pytest.raises(InvalidOption, match="txnVersion is missing"):
        WriteOptions.parse(BASE | {"txnAppId": "daily"})
    for name in ("", "a\n", "\x1b[2J", "\ud800", "x" * 129):
        with pytest.raises(InvalidOption, match="option txnAppId: an app's name has 1 to 128 printable characters"):
            WriteOptions.parse(BASE | {"txnAppId": name, "txnVersion": "7"})
    with pytest.raises(InvalidOption, match="no meaning for a write"):
        WriteOptions.parse(BASE | {"startingPosition": "latest"})


def test_a_stream_refuses_the_app_of_batch_writes_because_a_new_checkpoint_would_drop_its_rows() -> None:
    with pytest.raises(InvalidOption, match="are for batch writes"):
        WriteOptions.parse(BASE | {"txnAppId": "daily", "txnVersion": "7"}, stream=True)
    assert WriteOptions.parse(BASE, stream=True).txn_app_id is None


def test_a_write_needs_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMQ_LEADER", raising=False)
    with pytest.raises(InvalidOption, match="leader is missing"):
        WriteOptions.parse({"topic": "flights", "filer": "s3://b"})


def test_credentials_travel_and_are_never_printed() -> None:
    read = ReadOptions.parse(BASE | {"filerAccessKey": "AKIA", "filerSecretKey": "hush", "filerSessionToken": "t"})
    assert "AKIA" not in repr(read) and "hush" not in repr(read) and "token='t'" not in repr(read)
    arrived = pickle.loads(pickle.dumps(read))
    assert arrived == read and arrived.connection.arguments()["filer_session_token"] == "t"


def test_paths_of_a_secure_release_travel_and_a_token_does_not() -> None:
    read = ReadOptions.parse(BASE | {"caFile": "/ca.crt", "tokenFile": "/token"})
    arguments = pickle.loads(pickle.dumps(read)).connection.arguments()
    assert (arguments["ca_file"], arguments["token_file"]) == ("/ca.crt", "/token")
    assert read.connection.spark_options()["tokenFile"] == "/token"
    with pytest.raises(InvalidOption) as caught:
        ReadOptions.parse(BASE | {"token": "hush"})
    assert "hush" not in str(caught.value)


def test_arguments_are_those_of_the_client() -> None:
    import inspect

    import smq

    assert set(Connection("t").arguments()) <= set(inspect.signature(smq.connect).parameters)
