"""The folder of a local cluster, which has its messages and logs."""

from __future__ import annotations

from pathlib import Path

# A file that every local cluster creates in its folder.
LOCK = "dev.lock"


def make_private(folder: Path) -> None:
    """Creates the folder so that nobody else can read it, or makes a former cluster's so.

    A folder that no cluster has used may be somebody's own, and stays as it is. Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / LOCK).exists():
        folder.chmod(0o700)
