"""A command of `kubectl smq` that runs for long outlives the Pod that it came in by."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from e2e.kubectl_plugin import KubectlPlugin
from e2e.release import SPACE, Release, unique
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]


def test_a_consumer_goes_on_when_the_brokers_are_replaced(release: Release, tmp_path: Path) -> None:
    smq, topic, group = KubectlPlugin(release), f"{SPACE}/{unique('followed')}", unique("group")
    smq.run("topic", "create", topic, "--partitions", "16")
    read = tmp_path / "read"

    def described() -> str:
        return smq.run("group", "describe", topic, group)

    with smq.running(read, "consume", topic, "--group", group, "--from", "earliest") as process:
        smq.run("publish", topic, stdin="before\n")
        eventually(lambda: read.read_text() == "before\n", what="the first message is read")
        brokers = [pod["metadata"]["name"] for pod in release.pods("broker")]
        release.kube.kubectl("-n", SPACE, "delete", "pod", *brokers)
        release.wait_ready()
        smq.run("publish", topic, stdin="after\n")
        eventually(lambda: read.read_text() == "before\nafter\n", what="the next message is read")
        eventually(lambda: re.search(r"^Lag: +0\b", described(), re.M), what="both are committed")
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal
        assert process.wait() == 130
    assert re.search(r"^State: +no members$", described(), re.M), described()
