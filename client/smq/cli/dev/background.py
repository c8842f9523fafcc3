"""`smq dev` in the background: starts it, waits until it is ready, and ends it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from smq.cli.connection.session import CommandFailed
from smq.cli.connection.waiting import wait_until
from smq.cli.dev.cluster import check_installed, find_running, last_lines
from smq.cli.dev.private_folder import make_private
from smq.cli.dev_folder import DevRecord, read_record
from smq_storage.process.child_processes import start_child
from smq_storage.process.pids import ProcessId

LOG = Path("logs") / "dev.log"
STOP_TIMEOUT_SECONDS = 90.0


def start_in_background(folder: Path, arguments: Sequence[str], timeout: float) -> DevRecord:
    """Runs ``smq dev`` with these arguments in a separate session, and returns when it is ready.

    Raises CommandFailed with the end of its log if it ends before, or is not ready within ``timeout`` seconds; then it
    is ended. Raises Unavailable if the extra `local` is missing.
    """
    check_installed()
    if running := find_running(folder):
        raise CommandFailed(
            f"a `smq dev` runs on {folder} already (process {running.process.pid}, leader {running.leader}); "
            f"`smq dev stop --dir {folder}` ends it"
        )
    log_path = folder / LOG
    make_private(folder)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log_path.write_bytes(b"")
    process = start_child([sys.executable, "-m", "smq.cli", "dev", "--dir", str(folder), *arguments], log_path)

    def ready() -> DevRecord | None:
        if (code := process.poll()) is not None:
            raise CommandFailed(f"`smq dev` ended (exit code {code}); {log_path} ends with:\n{last_lines(log_path)}")
        record = read_record(folder)
        return record if record is not None and record.process.pid == process.pid and record.ready else None

    try:
        return wait_until(
            ready,
            "SeaweedFS, the leader and its brokers to start",
            timeout,
            lambda: f"it is not ready after {timeout:.0f} s; {log_path} ends with:\n{last_lines(log_path)}",
        )
    except BaseException:
        if process.poll() is None:
            process.terminate()
            process.wait()
        raise


def stop_in_background(folder: Path, process: ProcessId, timeout: float) -> None:
    """Ends it as Ctrl-C does, and returns when it has ended. Raises CommandFailed."""
    process.send(signal.SIGTERM)
    wait_until(
        lambda: None if process.is_alive else True,
        f"`smq dev` (process {process.pid}) to stop everything in order",
        timeout,
        lambda: f"process {process.pid} still stops after {timeout:.0f} s; see {folder / LOG}",
    )
    if read_record(folder) is not None:
        raise CommandFailed(f"not everything stopped in order; see {folder / LOG}. The next `smq dev` cleans up")
