"""What a broker is told at its start: flags, or environment variables of the same names with ``SMQ_`` before them."""

from __future__ import annotations

import argparse
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from smq_core.errors import InvalidRequest
from smq_core.starts import name_start
from smq_storage.store import StoreSettings
from smq_storage.units import parse_size


class BrokerSettings(BaseModel):
    """Sizes in bytes, durations in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default_factory=socket.gethostname, description="the broker's name, such as its Pod's")
    incarnation: str = Field("", description="the id of this start of the process; default: a random one")
    pod_uid: str = Field("", description="metadata.uid of the Pod it runs in; its incarnation says so then")
    listen: str = Field("127.0.0.1:0", description="host:port of the Flight server; port 0 takes a free one")
    advertise: str = Field("", description="host or host:port that others connect to; default: where it listens")
    leader: tuple[str, ...] = Field((), description="addresses host:port of leaders, separated by commas")
    filer_url: str = Field("", description="where the log is kept, such as s3://bucket/prefix")
    filer_endpoint: str = Field("", description="the S3 endpoint, such as http://127.0.0.1:8333")
    filer_region: str = Field("", description="the S3 region")
    filer_timeout: float = Field(15.0, gt=0, description="seconds that one request to the filer may take")
    memory: int = Field(2**30, ge=32 * 2**20, description="memory of this process, such as 1Gi")
    max_batch: int = Field(16 * 2**20, ge=2**16, description="the largest batch that is accepted, such as 16Mi")
    http: str = Field("127.0.0.1:0", description="host:port of /healthz, /readyz and /metrics")
    relay: str = Field("", description="host:port where clients that reach no other broker come in; default: none")
    node: str = Field("", description="the machine it runs on; replicas avoid sharing one")
    zone: str = Field("", description="the zone it runs in; replicas avoid sharing one")
    grace: float = Field(110.0, ge=0, description="seconds after SIGTERM until it leaves even if a leader says wait")
    leaderless: float = Field(5.0, ge=0, description="seconds after SIGTERM that it waits for a leader that is away")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning or error")
    log_format: str = Field("auto", pattern="^(auto|json|console)$", description="json, console, or auto")

    @field_validator("memory", "max_batch", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value) if isinstance(value, str) else value

    @field_validator("leader", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("listen", "http", "relay")
    @classmethod
    def _listens(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @field_validator("pod_uid")
    @classmethod
    def _pod(cls, value: str) -> str:
        if value:
            name_start(value, 0, "00000000")
        return value

    @field_validator("filer_url")
    @classmethod
    def _filer(cls, value: str) -> str:
        if not value:
            raise ValueError("say where the log is kept: --filer-url s3://bucket/prefix or SMQ_FILER_URL")
        return value

    def new_incarnation(self) -> str:
        """The id of this start: the one that was given, or a new one."""
        if self.pod_uid and not self.incarnation:
            return name_start(self.pod_uid, int(time.time()), uuid.uuid4().hex[:8])
        return self.incarnation or uuid.uuid4().hex

    def store(self) -> StoreSettings:
        """How to reach the filer; credentials stay in the AWS_ variables."""
        return StoreSettings(
            self.filer_url,
            endpoint=self.filer_endpoint or None,
            region=self.filer_region or None,
            timeout=self.filer_timeout,
        )

    def advertised(self, port: int) -> str:
        """The address to tell others, given the port that was bound."""
        host, _ = split_address(self.listen)
        if host in ("", "0.0.0.0", "::"):
            host = socket.gethostname()
        if not self.advertise:
            return f"{host}:{port}"
        if ":" not in self.advertise:
            return f"{self.advertise}:{port}"
        told, told_port = split_address(self.advertise)
        return f"{told}:{told_port or port}"


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(port)


def parse_settings(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> BrokerSettings:
    """Flags go before environment variables. Raises InvalidRequest with one line for each thing that is wrong."""
    parser = argparse.ArgumentParser(
        prog="smq-broker",
        description="A broker of SeaweedMQ: keeps the tail of segments in memory and writes it to the filer.",
        epilog="Each flag can be given as an environment variable too: --filer-url is SMQ_FILER_URL. "
        "Credentials of the filer come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them requests are "
        "not signed.",
    )
    for name, field in BrokerSettings.model_fields.items():
        parser.add_argument("--" + name.replace("_", "-"), dest=name, metavar="…", help=field.description)
    given = vars(parser.parse_args(arguments))
    values = {}
    for name in BrokerSettings.model_fields:
        value = given[name] if given[name] is not None else environment.get("SMQ_" + name.upper())
        if value is not None and value != "":
            values[name] = value
    values.setdefault("filer_url", "")
    try:
        return BrokerSettings.model_validate(values)
    except ValidationError as error:
        lines = [f"--{'.'.join(map(str, e['loc'])).replace('_', '-')}: {e['msg']}" for e in error.errors()]
        raise InvalidRequest("\n".join(lines)) from None
