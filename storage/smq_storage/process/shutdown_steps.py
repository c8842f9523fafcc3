"""A shutdown whose steps all run, even if an earlier one raises, and whose output cannot stop it."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that request an orderly end. A program started by ``nohup`` goes on when its terminal goes away."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if ignores_hangup else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class Shutdown:
    """Runs steps in the order of the calls. ``errors`` are the step and the error of each that failed.

    ``on_error`` gets each error at once; what it raises itself is dropped, because the next step matters more.
    """

    on_error: Callable[[str, Exception], None] = lambda step, error: None
    errors: list[tuple[str, Exception]] = field(default_factory=list)

    def run(self, step: str, action: Callable[[], object]) -> None:
        with self._collected(step):
            action()

    async def run_async(self, step: str, action: Callable[[], Awaitable[object]]) -> None:
        with self._collected(step):
            await action()

    @property
    def failed(self) -> str | None:
        """What went wrong, in one line; None if every step succeeded."""
        if not self.errors:
            return None
        return "; ".join(f"{step}: {error or type(error).__name__}" for step, error in self.errors)

    @contextmanager
    def _collected(self, step: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.errors.append((step, error))
            try:
                self.on_error(step, error)
            except Exception as second:
                self.errors.append((f"reporting {step}", second))


def write_if_possible(write: Callable[[], object], stream: TextIO) -> bool:
    """Calls ``write``, which writes to the stream for a person to read. False if nobody can read it any more.

    The terminal may be gone (EIO), and so may the reader of the pipe. Then the stream is connected to nothing, so that
    neither what it still buffers nor a later write fails, and the program goes on.
    """
    try:
        write()
        stream.flush()
    except (OSError, ValueError, SystemExit):  # rich ends the program by SystemExit if a pipe is broken
        discard_output(stream)
        return False
    return True


def discard_output(stream: TextIO) -> None:
    """Connects the stream's descriptor to nothing, and drops what it buffers, as far as that is possible."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)
        stream.flush()
    except (OSError, ValueError):
        return
