"""Loggers with a name, which structlog's loggers that print do not have."""

from __future__ import annotations

from typing import TextIO

import structlog


class NamedLogger(structlog.PrintLogger):
    """Prints lines. ``structlog.stdlib.add_logger_name`` puts ``name`` into each of them as ``logger``."""

    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.name = name


class NamedLoggerFactory:
    """Makes the loggers of ``structlog.get_logger(__name__)``."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, name: str = "") -> NamedLogger:
        return NamedLogger(self._file, name)
