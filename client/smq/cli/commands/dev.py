"""`smq dev`: runs everything on this machine, in the foreground or in the background."""

from __future__ import annotations

import shlex
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from smq.cli.connection.session import DEFAULT_LEADER_ADDRESS, DEV_FOLDER, CommandFailed, out, reported, say
from smq.cli.dev_folder import DevRecord, options_of, read_failure, security_of, write_failure
from smq.cli.filer_outage import filer_notice
from smq.cli.output import formatting
from smq_core.errors import SmqError
from smq_storage.process.file_modes import make_files_private
from smq_storage.process.shutdown_steps import stop_signals

if TYPE_CHECKING:
    from smq.cli.dev.cluster import DevCluster


app = typer.Typer(add_completion=False, invoke_without_command=True, no_args_is_help=False)

Folder = Annotated[Path, typer.Option("--dir", help="The folder of the data, which stays after this command.")]
DEFAULT_FOLDER = DEV_FOLDER
READY_TIMEOUT_SECONDS = 120.0
# How long `smq dev status` waits for the leader, which answers much sooner or not at all.
STATUS_SECONDS = 2.0


class _Stopped(BaseException):
    """Raised by Ctrl-C, SIGTERM or SIGHUP, even during the start."""


@app.callback()
@reported
def dev(
    context: typer.Context,
    folder: Folder = DEFAULT_FOLDER,
    brokers: Annotated[int, typer.Option(min=1, help="The least number of brokers.")] = 3,
    max_brokers: Annotated[
        int | None, typer.Option(min=1, help="The most brokers that the load may start.", show_default="twice as many")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="SMQ_DEV_LISTEN", help="The address of the leader.")
    ] = DEFAULT_LEADER_ADDRESS,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The address of the leader's page.", show_default="a free port, then the same"
        ),
    ] = None,
    s3_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="The port of SeaweedFS' S3.",
            show_default="a free port, then the same",
        ),
    ] = None,
    no_journal: Annotated[
        bool,
        typer.Option(
            "--no-journal", help="Do not keep in the folder what brokers would lose if all were killed at once."
        ),
    ] = False,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Encrypt all connections, and let in only who has a token and a right."),
    ] = False,
    kafka: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="The first broker's port for Kafka clients; the others take the following ones.",
            show_default="none",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background, and return when it is ready.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="With --detach, the longest to wait until it is ready.")
    ] = READY_TIMEOUT_SECONDS,
) -> None:
    """Run SeaweedFS, a leader and brokers on this machine until Ctrl-C. The data stays for the next time.

    With --detach it runs on until `smq dev stop`; `smq dev status` shows whether it runs. A folder keeps its ports.
    What was acked survives the end of any process, but not a power failure, because nothing waits for the disk.
    """
    if context.invoked_subcommand is not None:
        if folder != DEFAULT_FOLDER:
            raise typer.BadParameter(f"write --dir after `{context.invoked_subcommand}`, whose option it is")
        return
    broker_limit = 2 * brokers if max_brokers is None else max_brokers
    if broker_limit < brokers:
        raise typer.BadParameter(f"--max-brokers {broker_limit} is below --brokers {brokers}")
    make_files_private()
    if detach:
        from smq.cli.dev.background import start_in_background

        arguments = ["--brokers", str(brokers), "--max-brokers", str(broker_limit), "--listen", listen]
        arguments += ["--http", http] if http is not None else []
        arguments += ["--s3-port", str(s3_port)] if s3_port is not None else []
        arguments += ["--no-journal"] if no_journal else []
        arguments += ["--secure"] if secure else []
        arguments += ["--kafka", str(kafka)] if kafka is not None else []
        record = start_in_background(folder, arguments, timeout)
        stop = f"`smq dev stop{_dir_option(folder)}` stops everything; the data stays."
        stop += f" Decisions are in {folder}/logs/dev.log"
        _print_welcome(record, folder, stop)
        return
    from smq.cli.dev.cluster import DevCluster

    more = ("--no-journal",) if no_journal else ()
    _run_in_foreground(
        DevCluster(
            folder,
            listen=listen,
            brokers=brokers,
            max_brokers=broker_limit,
            http=http,
            s3_port=s3_port,
            secure=secure,
            kafka_port=kafka,
            more=more,
        ),
        folder,
    )


@app.command()
@reported
def status(folder: Folder = DEFAULT_FOLDER) -> None:
    """Show whether a `smq dev` runs on the folder, and where its leader is. Exit code 1 if none runs."""
    from smq.cli.dev.cluster import check_installed, ended_parts, find_running

    check_installed()
    record = find_running(folder)
    if record is None:
        failure = read_failure(folder)
        why = f": the last one stopped because {failure.rstrip('.')}" if failure else ""
        raise CommandFailed(
            f"no `smq dev` runs on {folder}{why}\nStart one with `smq dev --detach{_dir_option(folder)}`"
        )
    if record.ready and (ended := ended_parts(folder)):
        raise CommandFailed(
            f"{' and '.join(ended)} ended, so the `smq dev` on {folder} (process {record.process.pid}) stops "
            f"everything; the logs are in {folder / 'logs'}"
        )
    out.print(f"{'running' if record.ready else 'starting'} (process {record.process.pid})")
    for line in _where(record, folder):
        out.print(line)
    if problem := filer_problem(record, folder):
        out.print(f"  problem    {problem}", style="bold red")


def filer_problem(record: DevRecord, folder: Path) -> str:
    """What the leader says of the filer; empty if it is well, or if the leader does not answer."""
    import smq

    security = options_of(security_of(record, folder))
    try:
        with smq.connect(record.leader, timeout=STATUS_SECONDS, **security) as client:
            return filer_notice(client.admin().problems())
    except SmqError:
        return ""


@app.command()
@reported
def stop(
    folder: Folder = DEFAULT_FOLDER,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="The longest to wait until everything has stopped.")
    ] = 90.0,
) -> None:
    """Stop the `smq dev` that runs on the folder, as Ctrl-C does: everything in order. The data stays."""
    from smq.cli.dev.background import stop_in_background
    from smq.cli.dev.cluster import check_installed, find_running

    check_installed()
    running = find_running(folder)
    if running is None:
        hint = "; --dir names another folder" if folder == DEFAULT_FOLDER else ""
        out.print(f"no `smq dev` runs on {folder}{hint}")
        return
    stop_in_background(folder, running.process, timeout)
    out.print(f"stopped; the data is in {folder}")


def _run_in_foreground(cluster: DevCluster, folder: Path) -> None:
    stopping = _StopRequest()
    for number in stop_signals():
        signal.signal(number, stopping.on_signal)
    try:
        cluster.start(_print_progress)
        cluster.wait_ready()
        _print_welcome(
            cluster.record(), folder, "Ctrl-C stops everything; the data stays. Decisions of the leader from now on:"
        )
        _print_decisions(cluster, stopping)
    except _Stopped:
        pass
    finally:
        stopping.requested = True
        say()
        cluster.stop(_print_progress)
    _print_progress(f"stopped; the data is in {folder}")


class _StopRequest:
    """The first signal stops the cluster. Further ones are ignored, because the shutdown must not end half-way.

    A terminal that goes away sends SIGHUP, and so does its shell a moment later.
    """

    def __init__(self) -> None:
        self.requested = False

    def on_signal(self, _: int, __: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            raise _Stopped


def _print_progress(text: str) -> None:
    say(Text(text, style="dim"))


def _print_welcome(record: DevRecord, folder: Path, end: str) -> None:
    options = "" if record.leader == DEFAULT_LEADER_ADDRESS else f"--leader {record.leader} "
    lines = [
        ("SeaweedMQ is ready", "bold green"),
        *_where(record, folder),
        "",
        ("Try it:" if "dev stop" in end else "In another terminal:", "bold"),
        *_exports(record, folder),
        f"  smq {options}topic create events",
        f"  echo hello | smq {options}publish events",
        f"  smq {options}consume events --from earliest --max 1",
        f"  smq {options}top",
        "",
        (end, "dim"),
    ]
    say()
    for line in lines:
        say(Text(*line) if isinstance(line, tuple) else line)


def _where(record: DevRecord, folder: Path) -> list[str]:
    lines = [
        f"  leader     {record.leader}",
        f"  brokers    {record.brokers}, up to {record.max_brokers} under load",
        f"  SeaweedFS  {record.filer_url} at {record.filer_endpoint} (S3, no credentials)",
        f"  data       {folder}    logs {folder / 'logs'}",
        f"  page       {record.page} (key space, topics, brokers and decisions, live)",
    ]
    if record.kafka:
        lines.append(f"  Kafka      {record.kafka} (bootstrap server; for topics with `--partitioner Kafka`)")
    security = security_of(record, folder)
    if security is not None:
        lines += [
            f"  CA file    {security.ca_file}",
            f"  token      {security.token_file} (the administrator's)",
        ]
        if record.kafka:
            lines.append(
                "  Kafka with security.protocol=SASL_SSL, the CA file, PLAIN, user `admin`, the token as password"
            )
    return lines


def _exports(record: DevRecord, folder: Path) -> list[str]:
    """What lets programs in that do not start in this folder."""
    security = security_of(record, folder)
    if security is None:
        return []
    return [
        f"  export SMQ_CA_FILE={shlex.quote(str(security.ca_file))}",
        f"  export SMQ_TOKEN_FILE={shlex.quote(str(security.token_file))}",
    ]


def _dir_option(folder: Path) -> str:
    return "" if folder == DEFAULT_FOLDER else f" --dir {folder}"


def _print_decisions(cluster: DevCluster, stopping: _StopRequest) -> None:
    """Prints the leader's decisions until a process ends, or a stop is requested. Raises CommandFailed."""
    import smq

    last = datetime.now(UTC)
    with smq.connect(cluster.address, timeout=2.0, **options_of(cluster.security)) as client:
        while not stopping.requested:
            time.sleep(0.5)
            if failure := cluster.failure():
                write_failure(cluster.folder, failure)
                raise CommandFailed(failure)
            try:
                decisions = [d for d in client.admin().decisions() if d.at > last]
            except SmqError:
                continue
            for d in decisions:
                where = f"{formatting.topic(d.topic)}  {', '.join(d.segments)}"
                say(Text.assemble(f"{formatting.clock(d.at)}  ", (d.action, "bold"), f"  {where}: {d.reason}"))
                last = max(last, d.at)
