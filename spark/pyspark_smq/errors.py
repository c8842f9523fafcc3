"""Errors as Spark users see them.

Spark shows an error of a Python data source as the class name and the message, inside its own ``AnalysisException``
(while a query is planned) or ``PythonException`` (while it runs). So the message alone says what happened, and what to
do; no message has a secret in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from smq_core.errors import InvalidRequest, SmqError


@dataclass(eq=False, kw_only=True)
class InvalidOption(InvalidRequest):
    """An option of the data source, or an argument of ``read``, is unknown, missing, wrong, or clashes."""

    option: str = ""


@dataclass(eq=False, kw_only=True)
class UnreadableSchema(InvalidRequest):
    """Rows, or a DataFrame, cannot be read or written with these columns."""

    difference: tuple[str, ...] = dataclasses.field(default=())
    """What differs, an entry for each column."""


class OverwriteRefused(InvalidRequest):
    """A topic is a log: what is in it stays."""


class SparkNotSupported(SmqError):
    """This Spark, or its Java, cannot run what was called."""


def nearest(name: str, names: Iterable[str]) -> str:
    """``; did you mean 'topic'?`` for the name that is most like this one, or nothing if none is like it."""
    known = {it.lower(): it for it in names}
    found = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {known[found[0]]!r}?" if found else ""
