"""What tests need of the nodes they make."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from e2e.cluster.binaries import DNS, KUBE, NotBuilt, require
from e2e.cluster.cluster import Cluster
from e2e.kind.kind import KindCluster


def require_nodes() -> None:
    """Skips the test where no nodes can be made."""
    try:
        require(KUBE, DNS)
    except NotBuilt as missing:
        pytest.skip(str(missing))
    if os.geteuid() != 0:
        pytest.skip("nodes need root")


def load_images(cluster: Cluster | KindCluster, archives: Iterable[Path]) -> None:
    """Only what the nodes do not have yet: it takes half a minute for each."""
    for archive in archives:
        loaded, state = cluster.folder / f"{archive.name}.loaded", str(archive.stat().st_mtime_ns)
        if not loaded.exists() or loaded.read_text() != state:
            cluster.load(archive)
            loaded.write_text(state)
