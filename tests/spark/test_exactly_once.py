"""A stream from topic to topic has every row once, though its driver is killed and doubled. ``make chaos`` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes.local_cluster import LocalCluster
from support.spark.copying import Copying

pytestmark = [pytest.mark.spark]


@pytest.mark.slow
def test_every_row_is_there_once(cluster: LocalCluster, tmp_path: Path) -> None:
    with Copying(cluster, tmp_path / "copying", "local[2,20]", seed=1, rows_per_round=400) as copying:
        copying.round("driver")
        copying.round("second driver")
        copying.finish()
