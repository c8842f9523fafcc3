"""The flags of ``smq-operator local``, and how it is run."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from smq_core.errors import InvalidRequest
from smq_core.fleet import FleetPolicy
from smq_operator import clock
from smq_operator.leader import lead
from smq_operator.local.identity import folder_id
from smq_operator.local.lock import FolderLock
from smq_operator.local.world import LocalWorld
from smq_operator.settings import DEFAULT_PORT, LocalSettings, Settings
from smq_storage.units import parse_duration, parse_size


def add_flags(modes: Any) -> argparse.ArgumentParser:
    local: argparse.ArgumentParser = modes.add_parser(
        "local", help="brokers are child processes, topics are manifests in a folder"
    )
    text = local.add_argument
    text("--dir", required=True, help="the folder with topics, brokers, logs and the leader's lock")
    text("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", help="host:port of the control API; port 0 takes a free one")
    text("--http", default="", help="host:port of /healthz, /readyz and /metrics; default: none")
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
    return local


def run(settings: Settings, given: argparse.Namespace) -> None:
    """Raises InvalidRequest, StoreUnfit."""
    local = _settings(given)
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
    settings = replace(settings, owner=folder_id(local.folder))
    environment = settings.store.to_env()
    elastic = policy if local.max_brokers is not None else None
    asyncio.run(lead(settings, lambda address: LocalWorld(local, address, environment, clock.now), elastic))


def _settings(given: argparse.Namespace) -> LocalSettings:
    if given.brokers < 0:
        raise InvalidRequest(f"--brokers is a count, not {given.brokers}")
    if given.max_brokers is not None and given.max_brokers < given.brokers:
        raise InvalidRequest(f"--max-brokers {given.max_brokers} is below --brokers {given.brokers}: raise it")
    return LocalSettings(
        Path(given.dir).resolve(),
        given.brokers,
        given.max_brokers,
        _size(given.broker_capacity),
        given.broker_memory,
        tuple(given.broker_arg),
        given.keep_brokers,
        _words(given.broker_wrapper),
        _duration(given.scale_in_after),
    )


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidRequest(f"--broker-wrapper {text!r} is no command: {error}") from None


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
