"""Says which extra is missing when a program is started after a plain installation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

EXIT_USAGE = 2

NOT_PUBLISHED = "the package is not published, so no index has it"


def install_command(extra: str) -> str:
    """How to install this package with an extra. Nobody owns its name at an index, so never by its name."""
    wheel = f"./seaweedmq-{version('seaweedmq')}-py3-none-any.whl[{extra}]"
    return f"pip install '.[{extra}]' in a clone, or pip install '{wheel}' beside the wheel ({NOT_PUBLISHED})"


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
            f"{program} needs the extra `{extra}` ({error.name} is not installed): {install_command(extra)}",
            file=sys.stderr,
        )
        sys.exit(EXIT_USAGE)
