"""The script ``smq-operator``: the leader of all brokers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from smq_core.errors import InvalidRequest, SmqError
from smq_storage.process.extras import install_command, needs_extra
from smq_storage.process.grpc_logs import keep_errors_only

keep_errors_only()  # gRPC reads it when it is imported
with needs_extra("smq-operator", "operator"):
    from smq_operator.kube.settings import KubeSettings
    from smq_operator.leader_process import LeaderFailed, LeadershipLost
    from smq_operator.local import run as local
    from smq_operator.local.settings import LocalSettings
    from smq_operator.runtime import log
    from smq_operator.runtime.settings import add_flags, settings_from

# Exit code after another process took over the leadership: restart it, and it stands by.
EXIT_LEADERSHIP_LOST = 1
# Exit code after an internal failure or an incomplete shutdown: restart it, and see its log.
EXIT_FAILED = 3
# Exit code if the user has to change something: flags, a port, a second leader, an unsuitable store.
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until SIGTERM or SIGINT.

    Exit codes: 0 stopped, 1 another process leads now, 2 the user has to change something, which the message names,
    3 a task of the leader failed, or the shutdown was incomplete.
    """
    try:
        settings = parse_settings(arguments)
        log.configure(settings.log_level)
        if isinstance(settings, KubeSettings):
            _run_kube(settings)
        else:
            local.run(settings)
    except SmqError as error:
        for line in error.message.splitlines():
            print(f"smq-operator: {line}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except LeadershipLost as lost:
        print(f"smq-operator: {lost}", file=sys.stderr)
        sys.exit(EXIT_LEADERSHIP_LOST)
    except LeaderFailed as failed:
        print(f"smq-operator: {failed}", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def parse_settings(arguments: Sequence[str] | None) -> LocalSettings | KubeSettings:
    """Raises InvalidRequest, and SystemExit for ``--help`` and unknown flags."""
    parser = argparse.ArgumentParser(
        prog="smq-operator",
        description="The leader of SeaweedMQ's brokers, which keeps topics in their desired state.",
        epilog="Flags of the filer can be given as SMQ_FILER_URL, SMQ_FILER_ENDPOINT, SMQ_FILER_REGION too. Its "
        "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them requests are not signed.",
    )
    modes = parser.add_subparsers(dest="mode", required=True, metavar="local | kube")
    add_flags(
        modes.add_parser("local", help="brokers are child processes, topics are manifests in a folder"), LocalSettings
    )
    add_flags(modes.add_parser("kube", help="brokers are Pods, topics are resources"), KubeSettings)
    given = vars(parser.parse_args(arguments))
    if given.pop("mode") == "kube":
        return settings_from(KubeSettings, given)
    return settings_from(LocalSettings, given)


def _run_kube(settings: KubeSettings) -> None:
    """Imports the modules that need the Kubernetes packages only now, because local mode works without them."""
    try:
        from smq_operator.kube import run as kube
        from smq_operator.kube.client.errors import KubeError
    except ImportError as error:
        raise InvalidRequest(f"{error.name} is not installed: {install_command('operator')}") from error
    try:
        kube.main(settings)
    except KubeError as error:
        raise InvalidRequest(error.message) from error


if __name__ == "__main__":
    main()
