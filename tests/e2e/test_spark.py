"""Spark on nodes: `spark-submit` in cluster mode, executors as Pods, topics of a release in another Namespace."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import pytest

from e2e.flight_pipeline import LEADER, MINUTES, STREAM_SETTINGS, check_compaction, flight_stream
from e2e.release import SPACE, Release, unique
from e2e.spark_applications import SparkApplications, documented_settings
from smq_core.errors import SmqError
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800, func_only=True)]


def test_a_stream_goes_on_while_the_brokers_are_replaced(release: Release, spark: SparkApplications) -> None:
    driver = unique("stream")
    with flight_stream(release) as stream:
        publisher = stream.publisher

        def all_is_read() -> bool:
            if spark.ended(driver):
                pytest.fail("the driver of the stream has ended")
            return stream.all_is_read()

        def replaced() -> bool:
            try:
                publisher.send(100)
            except SmqError as error:  # some may be in the topic, so sending them again would double them
                pytest.fail(f"flights could not be published: {error}")
            return release.rolled_out()

        began = time.monotonic()
        settings = spark.example("flights-hourly") | STREAM_SETTINGS
        spark.submit(driver, "flights_hourly", *stream.arguments, settings=settings)
        with spark.running(driver):
            publisher.send(MINUTES)
            eventually(all_is_read, what="the first flights are read", pause=0.5)
            started = time.monotonic() - began
            brokers = {pod["metadata"]["uid"] for pod in release.pods("broker")}
            release.kube.kubectl("-n", SPACE, "rollout", "restart", "deployment/smq-broker")
            eventually(replaced, what="the brokers are replaced", pause=0.1)
            assert not brokers & {pod["metadata"]["uid"] for pod in release.pods("broker")}
            publisher.send(MINUTES)
            eventually(all_is_read, what="all flights are read", pause=0.5)
            hours = stream.check()
            pod = spark.driver(driver)
            assert spark.ended(driver) is None and pod["status"]["containerStatuses"][0]["restartCount"] == 0
    print(
        f"\n{stream.topic}: {publisher.sent} flights in {hours} hours of carriers, each once, in topic and table; the "
        f"first were read {started:.0f} s after the submission"
    )


def test_the_compaction_changes_no_row(release: Release, spark: SparkApplications) -> None:
    def run(arguments: Sequence[str]) -> str:
        driver = unique("compact")
        spark.submit(driver, "compact", *arguments, settings=spark.example("compact"))
        return spark.finish(driver)

    def checksum(release: Release, topic: str, rows: int) -> str:
        """What the job that verifies a topic says of it."""
        driver = unique("verify")
        arguments = [f"--topic={SPACE}/{topic}", LEADER, "--sequence=flight"]
        spark.submit(driver, "verify", *arguments, settings=documented_settings())
        said = spark.finish(driver)
        found = re.search(r"(\d+) rows, checksum ([0-9a-f]{16}): whole", said)
        assert found is not None and int(found[1]) == rows, spark.describe(driver)
        return found[2]

    check_compaction(release, run, checksum)
