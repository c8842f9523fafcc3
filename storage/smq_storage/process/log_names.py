"""Loggers with a name, which structlog's loggers that print do not have."""

from __future__ import annotations

import contextlib
from typing import TextIO

import structlog


class NamedLogger(structlog.PrintLogger):
    """Prints lines. ``structlog.stdlib.add_logger_name`` puts ``name`` into each of them as ``logger``."""

    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.name = name

    def msg(self, message: str) -> None:
        """Prints a line. It is dropped if it cannot be written: the terminal may be gone, or the disk full.

        Whoever logs must not fail because of it: a thread would end, or a shutdown stop half-way.
        """
        with contextlib.suppress(OSError, ValueError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class NamedLoggerFactory:
    """Makes the loggers of ``structlog.get_logger(__name__)``."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, name: str = "") -> NamedLogger:
        return NamedLogger(self._file, name)
