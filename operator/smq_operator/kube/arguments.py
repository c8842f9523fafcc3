"""The flags of ``smq-operator kube``. What needs the Kubernetes packages is imported only when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smq_core.errors import InvalidRequest
from smq_operator.flags import duration_of
from smq_operator.kube.settings import KubeSettings
from smq_operator.settings import DEFAULT_PORT, Settings

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def add_flags(modes: Any, environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = modes.add_parser("kube", help="brokers are Pods, topics are resources")
    text = parser.add_argument
    text("--release", default="smq", help="the Helm release that this operator belongs to (smq)")
    text("--namespace", default="", help="lead the Topics of this Namespace only; default: of all")
    text("--listen", default=f"0.0.0.0:{DEFAULT_PORT}", help="host:port of the control API; port 0 takes a free one")
    text("--http", default="0.0.0.0:8080", help="host:port of /healthz, /readyz and /metrics")
    text("--node-grace", default="60s", help="a Node that has failed looks Ready for less (60s)")
    parser.set_defaults(environment=environment)
    return parser


def run(settings: Settings, given: argparse.Namespace) -> None:
    """Raises InvalidRequest, StoreUnfit, LeadershipLost."""
    kube = settings_of(given, given.environment)
    try:
        from smq_operator.kube.errors import KubeError
        from smq_operator.kube.run import main
    except ImportError as error:
        raise InvalidRequest(f"{error.name} is not installed: pip install 'seaweedmq[operator]'") from error
    try:
        main(settings, kube)
    except KubeError as error:
        raise InvalidRequest(error.message) from error


def settings_of(given: argparse.Namespace, environment: Mapping[str, str]) -> KubeSettings:
    """The Namespace of the release is POD_NAMESPACE, else the service account's, else --namespace."""
    home = environment.get("POD_NAMESPACE") or (ACCOUNT.read_text().strip() if ACCOUNT.is_file() else given.namespace)
    if not home:
        raise InvalidRequest("say in which Namespace the release is: set POD_NAMESPACE")
    if not given.release:
        raise InvalidRequest("--release is the name of the Helm release, such as smq")
    grace = duration_of("--node-grace", given)
    return KubeSettings(given.release, home, given.namespace, environment.get("POD_NAME", ""), grace)
