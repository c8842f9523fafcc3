"""Says which extra is missing when a program is started after a plain installation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_USAGE = 2

OWN_PACKAGES = ("smq", "smq_core", "smq_storage", "smq_proto", "smq_broker", "smq_operator")


@contextmanager
def needs_extra(program: str, extra: str) -> Iterator[None]:
    """Around imports: a distribution that is not installed ends the program with exit code 2 and what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in OWN_PACKAGES:
            raise  # a mistake of this project
        print(
            f"{program} needs the extra `{extra}` ({error.name} is not installed): pip install 'seaweedmq[{extra}]'",
            file=sys.stderr,
        )
        sys.exit(EXIT_USAGE)
