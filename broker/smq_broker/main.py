"""``smq-broker``, or ``python -m smq_broker.main``."""

from __future__ import annotations

import faulthandler
import os

from smq_broker.runtime import import_blocker
from smq_storage.process import allocator
from smq_storage.process.extras import needs_extra
from smq_storage.process.file_modes import make_files_private
from smq_storage.process.grpc_logs import keep_errors_only


def main() -> None:
    faulthandler.enable()  # a crash in a native library leaves the Python frames of every thread in the log
    import_blocker.block_imports()
    make_files_private()
    # Before any library starts a thread and so gets another arena: glibc returns memory that was freed in such an arena
    # to the system too early or never.
    allocator.set_malloc({allocator.ARENA_MAX: 1})
    # Arrow's own pools return the memory of each encoded chunk to the system, and the next chunk causes page faults.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    keep_errors_only()
    # Imported here, because the import blocker must be installed before.
    with needs_extra("smq-broker", "broker"):
        from smq_broker.process import run
    run()


if __name__ == "__main__":
    main()
