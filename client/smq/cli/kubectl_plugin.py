"""`kubectl smq …`: the command line through a port-forward to a release in a cluster.

kubectl runs the program ``kubectl-smq`` that it finds on the PATH. It finds the release's Service, forwards a free
local port to it, and runs `smq` with the rest of the arguments. What is not an option of the plugin belongs to `smq`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from smq.cli.connection.port_forward import ForwardFailed, PortForward
from smq.cli.release_access import AccessFailed, release_access
from smq_storage.process.shutdown_steps import stop_signals

# The Services of all releases have it; its value is the name of the release.
RELEASE_LABEL = "seaweedmq.io/release"
# The Services of a release that knows its callers have it; its value is the audience of their tokens.
AUDIENCE_ANNOTATION = "seaweedmq.io/token-audience"
LEADER_PORT, RELAY_PORT = "grpc", "relay"
"""The names of the ports of a release's Services."""
RELAY_SUFFIX = "-external"
OPTIONS = ("--namespace", "--release", "--account", "--context", "--kubeconfig")


class PluginFailed(Exception):
    """The message is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePort:
    """Where to connect: a relay reaches leader, brokers and filer; the leader's port the leader only.

    ``audience`` is that of tokens, and empty in an open release.
    """

    release: str
    service: str
    namespace: str
    port: int
    relay: bool
    audience: str = ""

    @property
    def prefix(self) -> str:
        """That of the names of the release's resources."""
        return self.service.removesuffix(RELAY_SUFFIX) if self.relay else self.service


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of ``kubectl-smq``. Ends with the exit code of `smq`; 1 if there is no release to connect to."""
    own, command = split(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    given = parser.parse_args(own)
    if not command:
        print(parser.format_help(), flush=True)
    if not needs_cluster(command):
        _run(command)
        return
    try:
        kubectl = _kubectl(given)
        found = _find(kubectl, given.namespace, given.release)
        _end_on_signals()
        with (
            _access(kubectl, found, given.account),
            PortForward(kubectl, found.service, found.namespace, found.port) as forward,
        ):
            # Addresses that the user has set lead to other clusters.
            os.environ.pop("SMQ_LEADER", None)
            os.environ.pop("SMQ_VIA", None)
            os.environ["SMQ_VIA" if found.relay else "SMQ_LEADER"] = forward.address
            _run(command)
    except (PluginFailed, AccessFailed, ForwardFailed) as failed:
        print(f"kubectl smq: {failed}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of the plugin, and the command line for `smq` behind them."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word in OPTIONS or word == "-n":
            at += 2
        elif word.partition("=")[0] in OPTIONS or (word.startswith("-n") and not word.startswith("--")):
            at += 1
        elif word in ("-h", "--help"):
            return list(arguments[: at + 1]), []
        else:
            break
    return list(arguments[:at]), list(arguments[at:])


def needs_cluster(command: Sequence[str]) -> bool:
    """False if `smq` only prints its version or help, which it also prints for a group alone."""
    words = list(command[: command.index("--")] if "--" in command else command)
    if {"-h", "--help"} & set(words) or not words or words[0] == "--version":
        return False
    if len(words) > 1:
        return True
    from smq.cli.app import RootGroup  # imported late, because few calls need it
    from smq.cli.command_loader import CommandTable

    return not getattr(CommandTable(RootGroup.targets).get(words[0]), "no_args_is_help", False)


def choose(services: Sequence[Mapping[str, Any]], release: str | None, namespace: str | None = None) -> ServicePort:
    """The port to forward to: a relay if there is one. Raises PluginFailed if there is no release, or several.

    ``services`` are those of ``namespace``, or of the context's.
    """
    ports = [
        ServicePort(
            release=service["metadata"]["labels"].get(RELEASE_LABEL, ""),
            service=service["metadata"]["name"],
            namespace=service["metadata"]["namespace"],
            port=port["port"],
            relay=port["name"] == RELAY_PORT,
            audience=service["metadata"].get("annotations", {}).get(AUDIENCE_ANNOTATION, ""),
        )
        for service in services
        for port in service["spec"]["ports"]
        if port.get("name") in (LEADER_PORT, RELAY_PORT)
    ]
    ports = [port for port in ports if release in (None, port.release)]
    releases = sorted({(port.namespace, port.release) for port in ports})
    if not releases:
        wanted = f"release {release}" if release else "release of the chart seaweedmq"
        place = f"namespace {namespace}" if namespace else "the namespace of the context"
        raise PluginFailed(
            f"there is no {wanted} in {place}; name its namespace before the command: kubectl smq -n NAMESPACE COMMAND"
        )
    if len(releases) > 1:
        names = ", ".join(name for _, name in releases)
        raise PluginFailed(
            f"there are several releases: {names}; choose one before the command: kubectl smq --release NAME COMMAND"
        )
    return max(ports, key=lambda port: port.relay)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubectl smq",
        usage="kubectl smq [-n NAMESPACE] [--release NAME] [--context CONTEXT] [--kubeconfig FILE] COMMAND ...",
        description="Runs `smq COMMAND` through a port-forward. With external.enabled in the chart all commands work; "
        "without it those that only call the leader, so not publish, consume and files.",
        epilog="Commands and their options are those of smq: `kubectl smq -n queue topic list`. Without a command it "
        "prints a list of them.",
        allow_abbrev=False,
    )
    parser.add_argument("-n", "--namespace", help="the release's namespace; default: that of the context")
    parser.add_argument("--release", metavar="NAME", help="the Helm release, if there are several in the namespace")
    parser.add_argument(
        "--account",
        metavar="NAME",
        help="the ServiceAccount as which it enters a release that knows its callers; default: RELEASE-admin",
    )
    parser.add_argument("--context", help="the kubeconfig's context")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig file")
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
    words = [*kubectl, "get", "services", "--selector", RELEASE_LABEL, "--output=json"]
    words += [f"--namespace={namespace}"] if namespace else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # kubectl logs its attempts before it says what went wrong.
        raise PluginFailed((done.stderr.strip() or f"kubectl ended with exit code {done.returncode}").splitlines()[-1])
    return choose(json.loads(done.stdout)["items"], release, namespace)


@contextmanager
def _access(kubectl: Sequence[str], found: ServicePort, account: str | None) -> Iterator[None]:
    """Sets what `smq` needs to enter the release. A token that the user has set stays. Raises AccessFailed."""
    os.environ.pop("SMQ_CA_FILE", None)  # the roots of another release
    if not found.audience:
        yield
        return
    account = account or f"{found.prefix}-admin"
    with release_access(
        kubectl, name=found.prefix, namespace=found.namespace, audience=found.audience, account=account
    ) as variables:
        given = any(os.environ.get(name) for name in ("SMQ_TOKEN", "SMQ_TOKEN_FILE", "SMQ_CERT_FILE"))
        own = {name: value for name, value in variables.items() if name != "SMQ_TOKEN_FILE" or not given}
        os.environ |= own
        try:
            yield
        finally:
            for name in own:
                del os.environ[name]


def _end_on_signals() -> None:
    """Makes SIGTERM and the end of the terminal unwind the stack, so that the port-forward is ended too."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in stop_signals():
        if number != signal.SIGINT:  # Python raises KeyboardInterrupt
            signal.signal(number, end)


def _run(command: Sequence[str]) -> None:
    """Runs `smq` in this process, so that Ctrl-C and signals reach it as if there were no plugin."""
    from smq.cli import main as run  # imported late, and after kubectl was started

    sys.argv = ["kubectl smq", *command]
    run()
