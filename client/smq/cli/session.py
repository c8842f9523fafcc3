"""What every command shares: the leader's address, how errors are told, how commands end.

Exit codes: 0 done; 1 refused or failed, with a message on stderr; 2 the command line itself is wrong (told by typer).
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from smq_core.errors import SmqError, Unavailable

if TYPE_CHECKING:
    from smq import Client

P = ParamSpec("P")

DEFAULT_LEADER = "127.0.0.1:7070"
CONNECT_TIMEOUT = 3.0

out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(highlight=False, markup=False, soft_wrap=True, stderr=True)


class Failed(Exception):
    """The command did not do what was asked; the message is for people."""


_leader: list[str] = []
_via: list[str] = []


def choose_leader(address: str | None, via: str | None = None) -> None:
    """Remembers ``--leader`` and ``--via`` for the rest of this process."""
    _leader[:] = [address] if address else []
    _via[:] = [via] if via else []


def leader_address() -> str:
    """From ``--leader``, SMQ_LEADER, or where `smq dev` listens by default."""
    return next(iter(_leader), None) or os.environ.get("SMQ_LEADER") or DEFAULT_LEADER


def _connect() -> Client:
    import smq  # Arrow and gRPC take half a second to load; `smq --help` shall not

    if _via:
        _check_somebody_listens(_via[0], "relay", "`--via` or SMQ_VIA is the address of the brokers' external Service")
        return smq.connect(next(iter(_leader), None), via=_via[0])
    address = leader_address()
    made = smq.connect(address)
    _check_somebody_listens(
        address,
        "leader",
        "Start one with `smq dev`, or say where one is: smq --leader host:port …, or SMQ_LEADER=host:port",
    )
    return made


@contextmanager
def client() -> Iterator[Client]:
    """A client of the chosen leader. Raises Unavailable at once when nobody listens there."""
    with _connect() as made:
        yield made


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Turns what a command raises into a message and an exit code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever reads us has seen enough (`smq consume … | head`). What is still buffered goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (SmqError, Failed) as error:
            complain(error.message if isinstance(error, SmqError) else str(error))
            raise typer.Exit(1) from None
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            raise typer.Exit(1) from None

    return run


def complain(message: str) -> None:
    """An error, to stderr."""
    err.print(Text.assemble(("smq: ", "bold red"), message))


def note(message: str) -> None:
    """Something to know that is not the output, to stderr."""
    err.print(Text(message, style="dim"))


def end_on_sigterm() -> None:
    """Lets SIGTERM unwind as Ctrl-C does, so that producers deliver and consumers leave their group."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _check_somebody_listens(addresses: str, who: str, advice: str) -> None:
    """A refused connection is worth saying at once; the library would go on trying."""
    causes = []
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
            return
        except OSError as error:
            causes.append(error.strerror or str(error))
    raise Unavailable(f"no {who} answers at {addresses} ({', '.join(dict.fromkeys(causes))}).\n{advice}")
