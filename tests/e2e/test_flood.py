"""A flood on a real cluster: segments split and brokers are added; later both are reduced. Events report it."""

from __future__ import annotations

import time

import pytest

from e2e.load import load
from e2e.release import Release, unique
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
SPEC = {
    "partitions": 64,
    "segments": {"min": 1, "max": 8},
    "scaling": {"target": {"messagesPerSecond": 400}, "splitAfter": "2s", "mergeAfter": "10s"},
    "flush": {"interval": "1s"},
}


def test_a_flood_comes_and_goes(release: Release) -> None:
    """The brokers get a low target rate, so that a load that this machine can make is a flood."""
    release.upgrade({"brokers": {"capacity": "20Ki", "scaleInAfter": "15s"}})
    release.wait_ready()
    name = unique("flood")
    topic = release.topic(name, **SPEC)
    assert len(release.segments(name)) == 1
    try:
        began = time.monotonic()
        with load(release, name, at_once=5) as running:
            eventually(lambda: len(release.segments(name)) >= 4, what="it split", pause=0.5)
            split = time.monotonic() - began
            eventually(lambda: release.deployment("broker")["spec"]["replicas"] == 5, what="scaled out", pause=0.5)
            scaled = time.monotonic() - began
        over = time.monotonic()
        eventually(lambda: len(release.segments(name)) == 1, what="merged", pause=0.5)
        merged = time.monotonic() - over
        eventually(lambda: release.deployment("broker")["spec"]["replicas"] == 3, what="scaled in", pause=0.5)
        release.wait_ready()
        print(f"split into 4 after {split:.0f} s, 5 brokers after {scaled:.0f} s, stall {running.stall:.2f} s;")
        print(f"merged {merged:.0f} s after the flood, 3 brokers after {time.monotonic() - over:.0f} s")
        reasons = {event["reason"] for event in release.events(name)}
        assert {"Create", "Split", "Merge"} <= reasons, reasons
        assert {"ScaleOut", "ScaleIn"} <= {event["reason"] for event in release.events("smq-broker")}
        assert release.kube.get(topic)["status"]["lastDecision"]["reason"]
    finally:
        release.upgrade({})
        release.wait_ready()
