"""Kubeflow's Spark operator, built from its Go module, runs every application of examples/spark/kubeflow on nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from e2e.flight_pipeline import MINUTES, STREAM_SETTINGS, all_rows, check_compaction, flight_stream
from e2e.images import spark_operator as image
from e2e.nodes import load_images
from e2e.release import Release, unique
from e2e.spark_applications import SparkApplications
from e2e.spark_operator import SparkOperator
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800, func_only=True)]


@pytest.fixture(scope="module")
def operator(release: Release, spark: SparkApplications) -> Iterator[SparkOperator]:
    load_images(release.cluster, [image.archive()])
    operator = SparkOperator(release.kube)
    operator.install()
    yield operator
    operator.uninstall()


def test_it_compacts_a_topic_once(release: Release, operator: SparkOperator) -> None:
    name = unique("compact")

    def run(arguments: Sequence[str]) -> str:
        operator.apply("compact", name, arguments, {})
        with operator.removing("SparkApplication", name):
            return operator.finish(name)

    check_compaction(release, run, all_rows)


def test_it_compacts_a_topic_on_a_schedule(release: Release, operator: SparkOperator) -> None:
    name = unique("nightly")

    def run(arguments: Sequence[str]) -> str:
        operator.apply("compact-nightly", name, arguments, {}, schedule="* * * * *")
        with operator.removing("ScheduledSparkApplication", name):
            return operator.finish(operator.first_run(name))

    check_compaction(release, run, all_rows)


def test_it_goes_on_with_a_stream_whose_driver_was_lost(
    release: Release, spark: SparkApplications, operator: SparkOperator
) -> None:
    name = unique("stream")
    driver = operator.driver(name)
    with flight_stream(release) as stream:
        began = time.monotonic()
        operator.apply("flights-hourly", name, stream.arguments, STREAM_SETTINGS)
        with operator.removing("SparkApplication", name):
            stream.publisher.send(MINUTES)
            eventually(stream.all_is_read, what="the first flights are read", pause=0.5)
            started = time.monotonic() - began
            first = spark.driver(driver)
            for pod in (first, *spark.executors(driver)):
                secrets = [source["secretRef"]["name"] for source in pod["spec"]["containers"][0]["envFrom"]]
                assert secrets == ["filer-credentials"]
            began = time.monotonic()
            spark.kill(driver)
            stream.publisher.send(MINUTES)
            eventually(
                lambda: spark.driver(driver)["metadata"]["uid"] != first["metadata"]["uid"],
                what="there is another driver",
                pause=0.5,
            )
            eventually(stream.all_is_read, what="all flights are read", pause=0.5)
            went_on = time.monotonic() - began
            hours = stream.check()
            assert operator.state(name) == "RUNNING"
    print(
        f"\n{stream.topic}: {stream.publisher.sent} flights in {hours} hours of carriers, each once, in topic and "
        f"table; the first were read {started:.0f} s after the application was made, the others {went_on:.0f} s after "
        "the driver's Pod was deleted"
    )
