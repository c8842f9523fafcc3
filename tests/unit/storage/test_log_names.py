"""A log line has the name of the module that wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from smq_broker.runtime import logs
from smq_operator.runtime import log


@pytest.fixture(autouse=True)
def configuration() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("bind", [False, True])
def test_a_brokers_line(capsys: pytest.CaptureFixture[str], bind: bool) -> None:
    logs.configure("info", "json", broker="b-0")
    logger = structlog.get_logger("smq_broker.segments.registry")
    (logger.bind(topic="t") if bind else logger).info("segment.opened", segment="t-0-8-0")
    line = json.loads(capsys.readouterr().out)
    assert (line["event"], line["logger"]) == ("segment.opened", "smq_broker.segments.registry")
    assert (line["broker"], line["level"]) == ("b-0", "info")


def test_the_operators_line(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info")
    structlog.get_logger("smq_operator.reconcile.loop").warning("reconcile.failed")
    line = json.loads(capsys.readouterr().out)
    assert (line["event"], line["logger"]) == ("reconcile.failed", "smq_operator.reconcile.loop")


def test_a_logger_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info")
    structlog.get_logger().info("started")
    assert json.loads(capsys.readouterr().out)["logger"] == ""
