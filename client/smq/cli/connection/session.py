"""What every command shares: the leader's address, error messages and exit codes.

Exit codes: 0 done; 1 refused or failed, with a message on stderr; 2 the command line is wrong (typer prints why);
130 and 143 after Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from smq.cli.connection.reachability import check_leader, check_relay
from smq.cli.dev_folder import options_of, security_of_leader
from smq.transport.security.security_files import SecurityOptions
from smq_core.errors import SmqError
from smq_core.model.names import bounded, shown
from smq_storage.process.shutdown_steps import discard_output, write_if_possible

if TYPE_CHECKING:
    from smq import Client

P = ParamSpec("P")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic: name, or namespace/name.")]

FilerUrl = Annotated[
    str | None,
    typer.Option(envvar="SMQ_FILER_URL", metavar="URL", help="Where the files are, such as s3://bucket/prefix."),
]
FilerEndpoint = Annotated[str | None, typer.Option(envvar="SMQ_FILER_ENDPOINT", metavar="URL", help="The S3 endpoint.")]
FilerRegion = Annotated[str | None, typer.Option(envvar="SMQ_FILER_REGION", metavar="REGION", help="The S3 region.")]

LeaderTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.1,
        metavar="SECONDS",
        help="The longest to wait for the leader, and for a filer that does not answer.",
        show_default="10",
    ),
]

DEFAULT_LEADER_ADDRESS = "127.0.0.1:7070"
# Where `smq dev` keeps its data by default.
DEV_FOLDER = Path(".smq")
LEADER_TIMEOUT_SECONDS = 10.0
# Of an error. A manifest's mistakes take some thousands.
MAX_PRINTED_CHARACTERS = 10_000

out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(highlight=False, markup=False, soft_wrap=True, stderr=True)


class CommandFailed(Exception):
    """The command failed. The message is printed to the user."""


_leader: list[str] = []
_via: list[str] = []
_timeout: list[float] = []
_security: list[SecurityOptions] = []


def set_leader(
    address: str | None,
    via: str | None = None,
    timeout: float | None = None,
    security: SecurityOptions | None = None,
) -> None:
    """Remembers the options before the command for the rest of this process."""
    _security[:] = [security or {}]
    _leader[:] = [address] if address else []
    _via[:] = [via] if via else []
    _timeout[:] = [timeout] if timeout is not None else []


def leader_address() -> str:
    """From ``--leader``, SMQ_LEADER, or where `smq dev` listens by default."""
    return next(iter(_leader), None) or os.environ.get("SMQ_LEADER") or DEFAULT_LEADER_ADDRESS


def relay_address() -> str | None:
    """From ``--via`` or SMQ_VIA."""
    return next(iter(_via), None)


def leader_timeout() -> float:
    """From ``--timeout``, in seconds."""
    return next(iter(_timeout), LEADER_TIMEOUT_SECONDS)


def security_options() -> SecurityOptions:
    """How to enter a secure release, as ``smq.connect`` takes it: from the options and the environment.

    Or else from the `smq dev --secure` in this folder, if it is the one whose leader was chosen.
    """
    chosen = next(iter(_security), SecurityOptions())
    if "ca_file" in chosen or _via:
        return chosen
    found = options_of(security_of_leader(DEV_FOLDER, leader_address()))
    if os.environ.get("SMQ_TOKEN") or "cert_file" in chosen:
        found.pop("token_file", None)
    return {**found, **chosen}


def _connect(timeout: float) -> Client:
    import smq  # imported late: Arrow and gRPC take half a second, which `smq --help` does not need

    options: dict[str, Any] = {"timeout": timeout, "on_wait": print_wait, **security_options()}
    if _via:
        check_relay(_via[0], timeout)
        return smq.connect(next(iter(_leader), None), via=_via[0], **options)
    address = leader_address()
    made = smq.connect(address, **options)
    check_leader(address, timeout)
    return made


@contextmanager
def client(within: float | None = None) -> Iterator[Client]:
    """Yields a client of the chosen leader, none of whose calls lasts longer than ``within`` seconds, if it is given.

    Raises Unavailable at once if the address refuses connections.
    """
    timeout = leader_timeout()
    with _connect(timeout if within is None else min(timeout, within)) as made:
        yield made


@contextmanager
def filer_client(url: str | None, endpoint: str | None, region: str | None) -> Iterator[Client]:
    """Yields a client that reads the files there, also without a leader; without a url as :func:`client`."""
    if not url:
        with client() as made:
            yield made
        return
    import smq  # as in _connect

    leader = next(iter(_leader), None)
    with smq.connect(
        leader,
        via=next(iter(_via), None),
        filer_url=url,
        filer_endpoint=endpoint,
        filer_region=region,
        timeout=leader_timeout(),
        on_wait=print_wait,
        **(security_options() if leader else {}),
    ) as made:
        yield made


def reported(function: Callable[P, None]) -> Callable[P, None]:
    """Turns the errors of a command into a message and an exit code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            if sys.stdout is not None:  # it may have been closed before the start
                sys.stdout.flush()
        except BrokenPipeError:
            # The reader of the pipe has ended (`smq consume … | head`). Discard what is still buffered.
            discard_output(sys.stdout)
            raise typer.Exit(0) from None
        except (SmqError, CommandFailed) as error:
            print_error(error.message if isinstance(error, SmqError) else str(error))
            raise typer.Exit(1) from None
        except OSError as error:
            print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            raise typer.Exit(1) from None
        except UnicodeEncodeError as error:  # an argument that is no UTF-8, or output that cannot be shown
            print_error(f"{shown(error.object)} cannot be written in {error.encoding}: use UTF-8")
            raise typer.Exit(1) from None

    return run


def command(function: Callable[P, None]) -> Callable[..., None]:
    """As :func:`reported`, for a command that calls the leader: it has ``--timeout``, unless it declares its own."""
    run = reported(function)
    signature = inspect.signature(function, eval_str=True)
    if "timeout" in signature.parameters:
        return run

    @functools.wraps(function)
    def run_with_timeout(*args: Any, timeout: float | None = None, **kwargs: Any) -> None:
        if timeout is not None:
            _timeout[:] = [timeout]
        run(*args, **kwargs)

    option = inspect.Parameter("timeout", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=LeaderTimeout)
    run_with_timeout.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), option]
    )
    return run_with_timeout


def say(text: object = "") -> None:
    """Prints progress to stdout. If nobody can read it any more, the program goes on."""
    write_if_possible(lambda: out.print(text), sys.stdout)


def print_error(message: str) -> None:
    """Prints an error to stderr, if anybody can read it. What could move a cursor in it is escaped."""
    message = bounded(message, MAX_PRINTED_CHARACTERS)
    write_if_possible(lambda: err.print(Text.assemble(("smq: ", "bold red"), message)), sys.stderr)


def print_warning(message: str) -> None:
    """Prints to stderr, if anybody can read it, what a command that goes on will cause."""
    write_if_possible(lambda: err.print(Text.assemble(("smq: warning: ", "bold yellow"), message)), sys.stderr)


def print_note(message: str) -> None:
    """Prints a note that is not part of the output to stderr, if anybody can read it."""
    write_if_possible(lambda: err.print(Text(message, style="dim")), sys.stderr)


def confirm(question: str) -> bool:
    """Asks at the terminal. Raises CommandFailed if there is none."""
    if not sys.stdin.isatty():
        raise CommandFailed("there is no terminal for the question; add --yes")
    return typer.confirm(question)


@functools.cache
def print_wait(message: str) -> None:
    """Prints what is waited for. Each text appears once."""
    print_note(message)


def end_on_sigterm() -> None:
    """Makes SIGTERM unwind the stack as Ctrl-C does, so that producers deliver and consumers leave their group."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM take effect after the block. A second one takes effect at once."""
    caught: list[int] = []

    def defer(number: int, _: FrameType | None) -> None:
        caught.append(number)
        if len(caught) > 1:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    handlers = {number: signal.signal(number, defer) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
    if caught:
        signal.raise_signal(caught[0])
