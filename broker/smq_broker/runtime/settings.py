"""Settings of a broker: flags, or environment variables of the same names with the prefix ``SMQ_``."""

from __future__ import annotations

import argparse
import socket
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, CliSettingsSource, NoDecode, SettingsConfigDict, SettingsError

from smq_core.access.server_hosts import checked_hosts
from smq_core.errors import InvalidRequest
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.addresses import WILDCARDS, advertised_address, join_address, split_address
from smq_core.model.entities import SECOND
from smq_core.model.incarnation_ids import format_incarnation
from smq_core.replica.log_entries import ProducerLimits
from smq_storage.object_store.store import StoreSettings
from smq_storage.process.shared_settings import (
    Size,
    add_argument,
    invalid_settings,
    required_filer_url,
    size_field,
    store_settings,
)

# Of this machine: whoever uses one of them means all.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
# How many heartbeats a member sends in a session: one each five seconds in Kafka's session of 45 seconds.
HEARTBEATS_PER_SESSION = 9


class BrokerSettings(BaseSettings):
    """Sizes in bytes, durations in seconds."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, env_prefix="SMQ_", env_ignore_empty=True
    )

    name: str = Field(default_factory=socket.gethostname, description="the broker's name; default: the host name")
    incarnation: str = Field("", description="the id of this start of the process; default: a random one")
    pod_uid: str = Field("", description="metadata.uid of the Pod it runs in; becomes part of the incarnation")
    listen: str = Field("127.0.0.1:0", description="host:port of the Flight server; port 0 takes a free one")
    advertise: str = Field("", description="host or host:port that others connect to; default: where it listens")
    leader: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="addresses host:port of leaders, separated by commas"
    )
    kafka_proxy: bool = Field(
        False,
        description="be no broker but a proxy for Kafka clients that do not reach the brokers: listen at --kafka, and "
        "send their requests on to the brokers that the leader knows; needs no filer",
    )
    ca_file: str = Field("", description="the roots of the release in PEM; with them all connections are encrypted")
    token_file: str = Field("", description="a file with the token by which leaders recognise this broker")
    permissive: bool = Field(
        False, description="serve callers in clear text, too, while the release is being secured; needs --ca-file"
    )
    filer_url: str = Field("", description="where the log is kept, such as s3://bucket/prefix; required")
    filer_endpoint: str = Field("", description="the S3 endpoint, such as http://127.0.0.1:8333")
    filer_region: str = Field("", description="the S3 region")
    filer_timeout: float = Field(15.0, gt=0, description="seconds that one request to the filer may take")
    memory: Size = size_field(2**30, "memory of this process", ge=32 * 2**20)
    max_batch: Size = size_field(16 * 2**20, "the largest batch that is accepted", ge=2**16)
    producer_expiry: float = Field(
        7 * 24 * 3600.0, gt=0, description="seconds without a batch after which a segment forgets a producer"
    )
    max_producers: int = Field(20_000, ge=1, description="how many disconnected producers a segment remembers")
    http: str = Field("127.0.0.1:0", description="host:port of /healthz, /readyz and /metrics")
    relay: str = Field("", description="host:port of the relay for clients outside the cluster; default: no relay")
    kafka: str = Field("", description="host:port of the listener for Kafka clients; default: none")
    kafka_advertise: str = Field(
        "", description="host or host:port that Kafka clients connect to; default: the host of --advertise"
    )
    kafka_names: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="more names and IP addresses by which Kafka clients connect, separated by commas: they are in the "
        "certificate of a secure release, beside the host of --kafka-advertise",
    )
    kafka_auto_create_topics: bool = Field(
        False, description="create a topic that a Kafka client wants to use and that does not exist"
    )
    kafka_session_timeout: float = Field(
        45.0,
        ge=10,
        le=1800,
        description="seconds without a heartbeat after which a member with group.protocol=consumer leaves its group",
    )
    journal: str = Field(
        "", description="a folder on local disk in which tails outlive this process; default: no journal"
    )
    journal_size: Size = size_field(
        8 * 2**30, "how much disk the journal may take; it is the buffer while the filer is away", ge=64 * 2**20
    )
    drain: bool = Field(False, description="only seal what former processes left in the journal, then end")
    node: str = Field("", description="the machine it runs on; replicas avoid sharing one")
    zone: str = Field("", description="the zone it runs in; replicas avoid sharing one")
    grace: float = Field(110.0, ge=0, description="seconds after SIGTERM in which a leader may delay the exit")
    leader_timeout: float = Field(5.0, ge=0, description="seconds after SIGTERM in which it waits for a missing leader")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning or error")
    log_format: str = Field("auto", pattern="^(auto|json|console)$", description="json, console, or auto")

    @field_validator("leader", "kafka_names", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("listen", "http", "relay", "kafka")
    @classmethod
    def _listens(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @field_validator("advertise", "kafka_advertise")
    @classmethod
    def _advertises(cls, value: str) -> str:
        if value:
            advertised_address(value, 0)
        return value

    @field_validator("kafka_names")
    @classmethod
    def _certified(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            checked_hosts(value)
        except InvalidRequest as error:
            raise ValueError(error.message) from None
        return value

    @field_validator("pod_uid")
    @classmethod
    def _pod(cls, value: str) -> str:
        if value:
            format_incarnation(value, 0, "00000000")
        return value

    @field_validator("token_file")
    @classmethod
    def _secure(cls, value: str, others: ValidationInfo) -> str:
        ca_file, leader = others.data.get("ca_file"), others.data.get("leader")
        if value and not ca_file:
            raise ValueError("a token would travel in clear text: give the roots of the release as --ca-file, too")
        if ca_file and not value:
            raise ValueError("required with --ca-file, because leaders have to recognise this broker by its token")
        if ca_file and not leader:
            raise ValueError("a secure broker logs in at a leader: give the addresses of leaders as --leader")
        return value

    @field_validator("kafka_proxy")
    @classmethod
    def _proxy(cls, value: bool, others: ValidationInfo) -> bool:
        if value and not others.data.get("leader"):
            raise ValueError("the proxy finds brokers by the leader: give the addresses of leaders as --leader")
        return value

    @field_validator("filer_url")
    @classmethod
    def _filer(cls, value: str, others: ValidationInfo) -> str:
        return value if others.data.get("kafka_proxy") else required_filer_url(value)

    @field_validator("kafka")
    @classmethod
    def _proxy_listens(cls, value: str, others: ValidationInfo) -> str:
        if not value and others.data.get("kafka_proxy"):
            raise ValueError("required with --kafka-proxy: where the proxy listens, such as [::]:9092")
        return value

    @field_validator("permissive")
    @classmethod
    def _permissive(cls, value: bool, others: ValidationInfo) -> bool:
        if value and not others.data.get("ca_file"):
            raise ValueError("needs the roots of the release (--ca-file): without them all callers use clear text")
        return value

    def new_incarnation(self) -> str:
        """The id of this start of the process: the configured one, or a new one."""
        if self.pod_uid and not self.incarnation:
            return format_incarnation(self.pod_uid, int(time.time()), uuid.uuid4().hex[:8])
        return self.incarnation or uuid.uuid4().hex

    def store(self) -> StoreSettings:
        """How to reach the filer. The credentials come from the AWS_ variables."""
        return store_settings(self.filer_url, self.filer_endpoint, self.filer_region, self.filer_timeout)

    def producer_limits(self) -> ProducerLimits:
        """When segments forget producers."""
        return ProducerLimits(self.max_producers, round(self.producer_expiry * SECOND))

    def advertised(self, port: int) -> str:
        """The address that others connect to, given the bound port."""
        return _advertised(self.advertise, self.listen, port)

    def kafka_advertised(self, port: int) -> str:
        """The address that Kafka clients connect to, given the bound port."""
        host = split_address(self.advertised(port))[0] if self.advertise else ""
        return _advertised(self.kafka_advertise or host, self.kafka, port)

    def kafka_hosts(self) -> tuple[str, ...]:
        """By what Kafka clients know this broker. Empty if it serves none."""
        if not self.kafka:
            return ()
        host = split_address(self.kafka_advertised(1))[0]
        return (host, *(LOOPBACK_NAMES if host in LOOPBACK_NAMES else ()), *self.kafka_names)

    def kafka_groups(self) -> GroupSettings:
        timeout = int(self.kafka_session_timeout * SECOND)
        return GroupSettings(
            consumer_session_timeout=timeout, consumer_heartbeat_interval=timeout // HEARTBEATS_PER_SESSION
        )


def _advertised(given: str, listens_at: str, port: int) -> str:
    if given:
        return advertised_address(given, port)
    host, _ = split_address(listens_at)
    return join_address(socket.gethostname() if host in WILDCARDS else host, port)


def parse_settings(arguments: Sequence[str]) -> BrokerSettings:
    """Flags take precedence over environment variables. Raises InvalidRequest with one line per invalid setting."""
    parser = argparse.ArgumentParser(
        prog="smq-broker",
        description="A broker of SeaweedMQ: keeps the tails of segments in memory and writes them to the filer.",
        epilog="Each flag can be given as an environment variable too: --filer-url is SMQ_FILER_URL. "
        "Credentials of the filer come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them requests are "
        "not signed.",
    )
    flags = CliSettingsSource[argparse.ArgumentParser](
        BrokerSettings, root_parser=parser, add_argument_method=add_argument, cli_kebab_case=True
    )
    try:
        options: dict[str, Any] = {"_cli_settings_source": flags(args=list(arguments))}
        return BrokerSettings(**options)
    except ValidationError as error:
        raise invalid_settings(BrokerSettings, error) from None
    except SettingsError as error:
        raise InvalidRequest(str(error)) from None
