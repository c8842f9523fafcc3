"""What others can reach of the chart's trial filer."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes.sockets import listening
from support.processes.trial_filer import TrialFiler

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_only_s3_of_the_trial_can_be_reached_from_other_machines(tmp_path: Path) -> None:
    """Its gRPC port belongs to S3, and cannot be bound elsewhere: the chart's NetworkPolicy closes it."""
    with TrialFiler(tmp_path / "data", flags=()) as filer:
        sockets = listening(filer.pid)
        assert filer.store().get("_probe").data == b"ready"
    assert {port for address, port in sockets if not address.is_loopback} == filer.s3_ports
    assert {port for address, port in sockets if address.is_loopback}, "filer, master and volume listen"
