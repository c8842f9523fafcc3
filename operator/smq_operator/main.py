"""The script ``smq-operator``: the leader of all brokers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from smq_core.errors import InvalidRequest, SmqError
from smq_operator import log
from smq_operator.collecting import add_flags, patience_of
from smq_operator.kube import arguments as kube
from smq_operator.leader import LeadershipLost
from smq_operator.local import arguments as local
from smq_operator.settings import Settings, host_port
from smq_storage.store import StoreSettings

LOST = 1
"""Exit code of one that another took the leadership from: start it again, and it stands by."""
WRONG_USE = 2
"""Exit code for what a person has to change: flags, a port, a second leader, an unfit store."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until it is asked to stop.

    Exit codes: 0 stopped, 1 another leads now, 2 something must be changed first (it says what).
    """
    given = _parser(os.environ).parse_args(arguments)
    log.configure(given.log_level)
    try:
        (kube.run if given.mode == "kube" else local.run)(_settings(given), given)
    except SmqError as error:
        print(f"smq-operator: {error.message}", file=sys.stderr)
        sys.exit(WRONG_USE)
    except LeadershipLost as lost:
        print(f"smq-operator: {lost}", file=sys.stderr)
        sys.exit(LOST)


def _settings(given: argparse.Namespace) -> Settings:
    if not given.filer_url:
        raise InvalidRequest("say where the log is kept: --filer-url s3://bucket/prefix, or SMQ_FILER_URL")
    for address in filter(None, (given.listen, given.http)):
        host_port(address)
    store = StoreSettings(given.filer_url, given.filer_endpoint or None, given.filer_region or None)
    if given.filer_timeout:
        store = replace(store, timeout=given.filer_timeout)
    http = given.http or None
    return Settings(store, given.listen, given.advertise or None, http, given.log_level, patience_of(given))


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="smq-operator",
        description="The leader of SeaweedMQ's brokers: keeps topics as they are wished, whatever happens to brokers.",
        epilog="Flags of the filer can be given as SMQ_FILER_URL, SMQ_FILER_ENDPOINT, SMQ_FILER_REGION too. Its "
        "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them requests are not signed.",
    )
    modes = parser.add_subparsers(dest="mode", required=True, metavar="local | kube")
    for mode in (local.add_flags(modes), kube.add_flags(modes, environment)):
        add_flags(mode)
        text = mode.add_argument
        text("--advertise", default="", help="host:port that brokers and clients are told; default: where it listens")
        text("--filer-url", default=environment.get("SMQ_FILER_URL", ""), help="where the log is, such as s3://bucket")
        text(
            "--filer-endpoint", default=environment.get("SMQ_FILER_ENDPOINT", ""), help="such as http://127.0.0.1:8333"
        )
        text("--filer-region", default=environment.get("SMQ_FILER_REGION", ""), help="the S3 region")
        text("--filer-timeout", type=float, default=None, help="seconds that one request to the filer may take")
        levels = ("debug", "info", "warning", "error")
        text("--log-level", default="info", choices=levels, help="how much is logged (info)")
    return parser


if __name__ == "__main__":
    main()
