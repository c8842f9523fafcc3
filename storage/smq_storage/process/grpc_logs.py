"""What gRPC writes to standard error by itself, outside of this process's log."""

from __future__ import annotations

import os


def keep_errors_only() -> None:
    """Call it before gRPC is imported. Otherwise each failed handshake is a line: strangers choose them.

    A level that the environment sets stays.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
