"""The script ``smq-operator``: the leader of all brokers."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from smq_core.errors import InvalidRequest, SmqError
from smq_core.fleet import FleetPolicy
from smq_operator import clock, log
from smq_operator.leader import lead
from smq_operator.local.lock import FolderLock
from smq_operator.local.world import LocalWorld
from smq_operator.settings import DEFAULT_PORT, LocalSettings, Settings, host_port
from smq_storage.store import StoreSettings
from smq_storage.units import parse_duration, parse_size

WRONG_USE = 2
"""Exit code for what a person has to change: flags, a port, a second leader, an unfit store."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until it is asked to stop. Exit codes: 0 stopped, 2 something must be changed first (it says what)."""
    given = _parser(os.environ).parse_args(arguments)
    log.configure(given.log_level)
    try:
        _local(given)
    except SmqError as error:
        print(f"smq-operator: {error.message}", file=sys.stderr)
        sys.exit(WRONG_USE)


def _local(given: argparse.Namespace) -> None:
    settings, local = _settings(given)
    try:
        local.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"cannot make the folder {local.folder} ({error.strerror}): choose another --dir"
        ) from None
    policy = FleetPolicy(
        max(local.brokers, 1),
        max(local.max_brokers or 0, local.brokers, 1),
        bytes_per_second=local.broker_capacity,
        scale_in_after=local.scale_in_after,
    )
    lock = FolderLock(local.folder)
    lock.acquire()
    environment = settings.store.to_env()
    elastic = policy if local.max_brokers is not None else None
    asyncio.run(lead(settings, lambda address: LocalWorld(local, address, environment, clock.now), elastic))


def _settings(given: argparse.Namespace) -> tuple[Settings, LocalSettings]:
    if not given.filer_url:
        raise InvalidRequest("say where the log is kept: --filer-url s3://bucket/prefix, or SMQ_FILER_URL")
    if given.brokers < 0:
        raise InvalidRequest(f"--brokers is a count, not {given.brokers}")
    for address in filter(None, (given.listen, given.http)):
        host_port(address)
    if given.max_brokers is not None and given.max_brokers < given.brokers:
        raise InvalidRequest(f"--max-brokers {given.max_brokers} is below --brokers {given.brokers}: raise it")
    store = StoreSettings(given.filer_url, given.filer_endpoint or None, given.filer_region or None)
    if given.filer_timeout:
        store = replace(store, timeout=given.filer_timeout)
    settings = Settings(store, given.listen, given.advertise or None, given.http or None, given.log_level)
    local = LocalSettings(
        Path(given.dir).resolve(),
        given.brokers,
        given.max_brokers,
        _size(given.broker_capacity),
        given.broker_memory,
        tuple(given.broker_arg),
        given.keep_brokers,
        tuple(shlex.split(given.broker_wrapper)),
        _duration(given.scale_in_after),
    )
    return settings, local


def _duration(text: str) -> int | None:
    try:
        return parse_duration(text) if text else None
    except ValueError as error:
        raise InvalidRequest(f"--scale-in-after: {error}") from None


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise InvalidRequest(f"--broker-capacity: {error}") from None


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smq-operator",
        description="The leader of SeaweedMQ's brokers: keeps topics as they are wished, whatever happens to brokers.",
        epilog="Flags of the filer can be given as SMQ_FILER_URL, SMQ_FILER_ENDPOINT, SMQ_FILER_REGION too. Its "
        "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them requests are not signed.",
    )
    modes = parser.add_subparsers(dest="mode", required=True, metavar="local")
    local = modes.add_parser("local", help="brokers are child processes, topics are manifests in a folder")
    text = local.add_argument
    text("--dir", required=True, help="the folder with topics, brokers, logs and the leader's lock")
    text("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", help="host:port of the control API; port 0 takes a free one")
    text("--advertise", default="", help="host:port that brokers and clients are told; default: where it listens")
    text("--http", default="", help="host:port of /healthz, /readyz and /metrics; default: none")
    text("--filer-url", default=environment.get("SMQ_FILER_URL", ""), help="where the log is, such as s3://bucket")
    text("--filer-endpoint", default=environment.get("SMQ_FILER_ENDPOINT", ""), help="such as http://127.0.0.1:8333")
    text("--filer-region", default=environment.get("SMQ_FILER_REGION", ""), help="the S3 region")
    text("--filer-timeout", type=float, default=None, help="seconds that one request to the filer may take")
    text("--brokers", type=int, default=3, help="how many brokers are kept running (3)")
    text("--max-brokers", type=int, default=None, help="as many as the load may ask for; default: as many as --brokers")
    text("--broker-capacity", default="100Mi", help="bytes per second that one broker is expected to carry (100Mi)")
    text("--scale-in-after", default="", help="how long one broker fewer must have been enough, such as 30s (2m)")
    text("--broker-memory", default="1Gi", help="memory of each broker (1Gi)")
    text("--broker-arg", action="append", default=[], help="a flag for every broker, such as --broker-arg=--zone=a")
    text(
        "--broker-wrapper",
        default="",
        help="a command that runs each broker's command by exec, such as 'nice -n 5'; SMQ_NAME says which broker",
    )
    text("--keep-brokers", action="store_true", help="leave brokers running when the leader stops")
    text("--log-level", default="info", choices=("debug", "info", "warning", "error"), help="how much is logged (info)")
    return parser


if __name__ == "__main__":
    main()
