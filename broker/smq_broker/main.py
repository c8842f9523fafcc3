"""``smq-broker``, or ``python -m smq_broker.main``."""

from __future__ import annotations

import os

from smq_broker import spare
from smq_storage import glibc


def main() -> None:
    spare.refuse_imports()
    # Before a library starts a thread: what is freed in any arena but the first, glibc gives back too early or never.
    glibc.set_malloc({glibc.ARENA_MAX: 1})
    # Arrow's own pools give back the memory of each encoded chunk: the next would touch it for the first time again.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # After that, so that nothing of it has been imported yet.
    from smq_broker.process import run

    run()


if __name__ == "__main__":
    main()
