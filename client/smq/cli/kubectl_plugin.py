"""`kubectl smq …`: the command line through a port-forward to a release in a cluster.

kubectl runs the program ``kubectl-smq`` that it finds on the PATH. It finds the release's Service, forwards a free
local port to it, and runs `smq` with the rest of the arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SELECTOR = "app.kubernetes.io/name=seaweedmq"
RELEASE_LABEL = "app.kubernetes.io/instance"
LEADER_PORT, RELAY_PORT = "grpc", "relay"
"""The names of the ports of a release's Services."""
FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ")


class PluginFailed(Exception):
    """The message is for the user."""


@dataclass(frozen=True, slots=True)
class ServicePort:
    """Where to connect: a relay reaches leader, brokers and filer; the leader's port the leader only."""

    release: str
    service: str
    namespace: str
    port: int
    relay: bool


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of ``kubectl-smq``. Ends with the exit code of `smq`; 1 if there is no release to connect to."""
    given = _parser().parse_args(arguments)
    try:
        kubectl = _kubectl(given)
        where = _find(kubectl, given.namespace, given.release)
        with _forwarded(kubectl, where) as address:
            name = "SMQ_VIA" if where.relay else "SMQ_LEADER"
            code = subprocess.run(
                [sys.executable, "-m", "smq.cli", *given.command], env={**os.environ, name: address}, check=False
            ).returncode
    except PluginFailed as failed:
        print(f"kubectl smq: {failed}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def choose(services: Sequence[Mapping[str, Any]], release: str | None) -> ServicePort:
    """The port to forward to: a relay if there is one. Raises PluginFailed if there is no release, or several."""
    ports = [
        ServicePort(
            service["metadata"]["labels"].get(RELEASE_LABEL, ""),
            service["metadata"]["name"],
            service["metadata"]["namespace"],
            port["port"],
            port["name"] == RELAY_PORT,
        )
        for service in services
        for port in service["spec"]["ports"]
        if port.get("name") in (LEADER_PORT, RELAY_PORT)
    ]
    ports = [port for port in ports if release in (None, port.release)]
    releases = sorted({(port.namespace, port.release) for port in ports})
    if not releases:
        wanted = f"release {release}" if release else "release of the chart seaweedmq"
        raise PluginFailed(f"there is no {wanted} in this namespace; choose one with -n NAMESPACE")
    if len(releases) > 1:
        raise PluginFailed(f"there are several releases: {', '.join(r for _, r in releases)}; choose with --release")
    return max(ports, key=lambda port: port.relay)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl smq",
        description="Runs `smq COMMAND` through a port-forward. With external.enabled in the chart all commands work; "
        "without it those that only call the leader, so not publish, consume and files.",
    )
    parser.add_argument("-n", "--namespace", help="the release's namespace; default: that of the context")
    parser.add_argument("--release", help="the Helm release, if there are several in the namespace")
    parser.add_argument("--context", help="the kubeconfig's context")
    parser.add_argument("--kubeconfig", help="the kubeconfig file")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="as for smq: topic list, ...")
    return parser


def _kubectl(given: argparse.Namespace) -> list[str]:
    program = shutil.which("kubectl")
    if program is None:
        raise PluginFailed("kubectl is not on the PATH")
    words = [program]
    for name in ("context", "kubeconfig"):
        if value := getattr(given, name):
            words.append(f"--{name}={value}")
    return words


def _find(kubectl: Sequence[str], namespace: str | None, release: str | None) -> ServicePort:
    words = [*kubectl, "get", "services", "--selector", SELECTOR, "--output=json"]
    words += [f"--namespace={namespace}"] if namespace else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # kubectl logs its attempts before it says what went wrong.
        raise PluginFailed((done.stderr.strip() or f"kubectl ended with exit code {done.returncode}").splitlines()[-1])
    return choose(json.loads(done.stdout)["items"], release)


@contextmanager
def _forwarded(kubectl: Sequence[str], where: ServicePort) -> Iterator[str]:
    """Yields the local address. Raises PluginFailed if kubectl cannot forward."""
    target = ["port-forward", f"service/{where.service}", f":{where.port}", f"--namespace={where.namespace}"]
    with subprocess.Popen([*kubectl, *target], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None and forward.stderr is not None
            for line in forward.stdout:
                if found := FORWARDING.match(line):
                    yield found[1]
                    return
            raise PluginFailed(forward.stderr.read().strip() or "kubectl port-forward ended")
        finally:
            forward.terminate()


if __name__ == "__main__":
    main()
