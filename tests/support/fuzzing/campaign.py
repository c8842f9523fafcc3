"""Many malformed inputs to everything that reads what others send, in this process."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

import structlog

from support.fuzzing.broker_requests import AttackedBroker
from support.fuzzing.leader_requests import run_leader
from support.fuzzing.parsers import parsers
from support.fuzzing.targets import Outcome, peak_bytes, run

PARTS = ("parsers", "broker", "leader")


def attack(part: str, seed: int, inputs: int) -> tuple[list[Outcome], int]:
    """At least ``inputs`` inputs to one of ``PARTS``, and the bytes by which the memory of this process grew."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        _run(part, seed, 1)  # imports, and caches that are made once
        before = peak_bytes()
        outcomes = _run(part, seed, inputs)
        return outcomes, peak_bytes() - before
    finally:
        structlog.reset_defaults()


def _run(part: str, seed: int, inputs: int) -> list[Outcome]:
    return run_leader(seed, inputs) if part == "leader" else list(_run_targets(part, seed, inputs))


def _run_targets(part: str, seed: int, inputs: int) -> Iterator[Outcome]:
    broker = AttackedBroker() if part == "broker" else None
    targets = parsers() if broker is None else broker.targets()
    per_share = inputs / sum(target.share for target in targets)
    for target in targets:
        yield run(target, seed, math.ceil(per_share * target.share))
    if broker is not None:
        broker.check_alive()
        broker.stop()
