"""``python -m tests.e2e.cluster``: build, up, down, kubectl, load, base-image; the README says more."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from . import base_image, binaries
from .cluster import Cluster

FOLDER = Path(os.environ.get("SMQ_E2E") or Path(tempfile.gettempdir()) / f"seaweedmq-e2e-{os.getuid()}")


def main() -> int:
    given = _parser().parse_args()
    try:
        return int(given.do(given) or 0)
    except (binaries.NotBuilt, FileNotFoundError, RuntimeError) as error:
        print(error, file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(error.stderr or error, file=sys.stderr)
    return 1


def _build(given: argparse.Namespace) -> None:
    binaries.build(binaries.KUBE, *([] if given.control_plane else [binaries.DNS]))


def _up(given: argparse.Namespace) -> None:
    cluster = Cluster(FOLDER, given.nodes, attached=False)
    cluster.up()
    print(f"export KUBECONFIG={cluster.kubeconfig} PATH={binaries.BIN}:$PATH")


def _down(_: argparse.Namespace) -> None:
    Cluster.running(FOLDER).down()


def _kubectl(given: argparse.Namespace) -> int:
    command = Cluster.running(FOLDER).control_plane.kubectl_command
    return subprocess.run([*command, *given.arguments]).returncode


def _load(given: argparse.Namespace) -> None:
    Cluster.running(FOLDER).load(*given.archives)


def _base_image(_: argparse.Namespace) -> None:
    print(base_image.python_base())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.cluster", description="a real Kubernetes, for tests")
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="build Kubernetes and CoreDNS into the cache, when they are not there")
    build.add_argument("--control-plane", action="store_true", help="without what only nodes need")
    build.set_defaults(do=_build)
    up = commands.add_parser("up", help="start a cluster that lives until `down`")
    up.add_argument("--nodes", type=int, default=0, choices=range(3), help="real nodes; they need root (0)")
    up.set_defaults(do=_up)
    commands.add_parser("down", help="end it and remove its state").set_defaults(do=_down)
    kubectl = commands.add_parser("kubectl", help="kubectl as admin")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    kubectl.set_defaults(do=_kubectl)
    load = commands.add_parser("load", help="bring images (docker-archive) to every node")
    load.add_argument("archives", nargs="+", type=Path)
    load.set_defaults(do=_load)
    base = commands.add_parser("base-image", help="make an image with Debian and Python, once; prints its archive")
    base.set_defaults(do=_base_image)
    return parser


if __name__ == "__main__":
    sys.exit(main())
