"""When the alerts of a missing leader, a filer without writes, and losses fire, by their expressions over samples."""

from __future__ import annotations

from typing import Any

import pytest

from support.kube.chart import of_kind, render
from support.promql import Series, firing

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
EVALUATION_SECONDS = 30.0
RECONCILIATIONS, LOST = "smq_leader_reconciliations_total", "smq_topic_lost_messages"


def rule(alert: str, interval: str = "15s") -> dict[str, Any]:
    values = {"monitoring": {"serviceMonitor": {"interval": interval}, "alerts": {"enabled": True}}}
    (group,) = of_kind(render(values), "PrometheusRule")["smq-metrics"]["spec"]["groups"]
    (found,) = [it for it in group["rules"] if it["alert"] == alert]
    return dict(found)


def fired(found: dict[str, Any], series: list[Series], until: float, after: float = 0.0) -> list[float]:
    """The times at which it fires."""
    seconds = {"5m": 5 * MINUTE, "1m": MINUTE, None: 0.0}[found.get("for")]
    every = (at * EVALUATION_SECONDS for at in range(int(until / EVALUATION_SECONDS) + 1))
    return [at for at in firing(found["expr"], series, every, seconds) if at >= after]


def sampled(name: str, interval: float, steps: list[tuple[float, float, float]], pod: str = "a", **more: Any) -> Series:
    """Scrapes at each interval; each step is (from, to, value), and what is in none was not scraped."""
    labels = {"namespace": "default", "service": "smq-metrics", "pod": pod} | more.pop("labels", {})
    samples = {
        at: value
        for start, stop, value in steps
        for at in (start + n * interval for n in range(int((stop - start) / interval)))
    }
    return Series(name, labels, samples, **more)


def counting(interval: float, start: float, stop: float, pod: str = "a", **more: Any) -> Series:
    """A leader that reconciles twice a second."""
    steps = [
        (at, at + interval, 2 * (at - start))
        for at in (start + n * interval for n in range(int((stop - start) / interval)))
    ]
    return sampled(RECONCILIATIONS, interval, steps, pod, **more)


INTERVALS = [("15s", 15.0), ("1m", MINUTE), ("2m", 2 * MINUTE)]


@pytest.mark.parametrize(("interval", "seconds"), INTERVALS)
def test_a_leader_that_leads_is_no_alert(interval: str, seconds: float) -> None:
    former = counting(seconds, 0, HOUR, "a", ended=HOUR)
    assert fired(rule("SmqNoLeader", interval), [former, counting(seconds, HOUR, 2 * HOUR, "b")], 2 * HOUR) == []


@pytest.mark.parametrize(("interval", "seconds"), INTERVALS)
def test_a_leader_that_hangs_is_an_alert_although_it_is_scraped(interval: str, seconds: float) -> None:
    running = counting(seconds, 0, HOUR)
    hung = Series(running.name, running.labels, {at: min(value, HOUR) for at, value in running.samples.items()})
    found = fired(rule("SmqNoLeader", interval), [hung], HOUR)
    assert found and HOUR / 2 < found[0] <= HOUR / 2 + 12 * MINUTE
    assert found[-1] == HOUR


@pytest.mark.parametrize(("interval", "seconds"), INTERVALS)
def test_no_leader_is_an_alert(interval: str, seconds: float) -> None:
    found = fired(rule("SmqNoLeader", interval), [counting(seconds, 0, HOUR, ended=HOUR)], 2 * HOUR)
    assert found[0] == HOUR + MINUTE


def lost(steps: list[tuple[float, float, float]], pod: str = "a", topic: str = "queue/t", **more: Any) -> Series:
    return sampled(LOST, 15.0, steps, pod, labels={"topic": topic}, **more)


def test_a_loss_is_an_alert_for_a_quarter_of_an_hour() -> None:
    found = fired(rule("SmqDataLoss"), [lost([(0, HOUR, 0), (HOUR, 2 * HOUR, 5)])], 2 * HOUR)
    assert found[0] == HOUR and found[-1] == pytest.approx(HOUR + 15 * MINUTE, abs=MINUTE)


@pytest.mark.parametrize("gap", [20 * MINUTE, 6 * HOUR, 2 * DAY])
def test_old_losses_are_no_alert_after_a_gap(gap: float) -> None:
    """Prometheus did not run, or no leader did; the next leader has another Pod."""
    before, after = lost([(0, HOUR, 5)], ended=HOUR + MINUTE), lost([(HOUR + gap, 2 * HOUR + gap, 5)], "b")
    assert fired(rule("SmqDataLoss"), [before, after], 2 * HOUR + gap, after=HOUR) == []


def test_a_loss_in_a_gap_is_an_alert_when_it_is_known() -> None:
    before, after = lost([(0, HOUR, 5)], ended=HOUR + MINUTE), lost([(3 * HOUR, 4 * HOUR, 7)], "b")
    found = fired(rule("SmqDataLoss"), [before, after], 4 * HOUR, after=HOUR)
    assert found[0] == 3 * HOUR and found[-1] <= 3 * HOUR + 16 * MINUTE


def test_a_loss_of_a_new_topic_is_an_alert() -> None:
    other = lost([(0, 2 * HOUR, 0)], topic="queue/other")
    assert fired(rule("SmqDataLoss"), [other, lost([(HOUR, 2 * HOUR, 3)])], 2 * HOUR)[0] == HOUR


def test_a_loss_of_a_topic_that_was_created_again_is_an_alert() -> None:
    again = lost([(0, HOUR, 100), (HOUR, 2 * HOUR, 0), (2 * HOUR, 3 * HOUR, 3)])
    assert fired(rule("SmqDataLoss"), [again], 3 * HOUR, after=HOUR)[0] == 2 * HOUR


def test_the_same_holds_for_losses_whose_end_nobody_knows() -> None:
    known, unknown = rule("SmqDataLoss")["expr"], rule("SmqPossibleDataLoss")["expr"]
    assert known.replace(LOST, "smq_topic_open_ended_losses") == unknown


def available(steps: list[tuple[float, float, float]], pod: str = "a", **more: Any) -> Series:
    return sampled("smq_leader_filer_available", 15.0, steps, pod, **more)


def test_a_filer_that_takes_no_writes_is_an_alert_until_it_takes_them() -> None:
    full = available([(0, HOUR, 1), (HOUR, 2 * HOUR, 0), (2 * HOUR, 3 * HOUR, 1)])
    found = fired(rule("SmqFilerUnavailable"), [full], 3 * HOUR)
    assert found[0] == HOUR + MINUTE and found[-1] == 2 * HOUR - EVALUATION_SECONDS


def test_a_leader_whose_filer_takes_no_writes_is_not_hidden_by_the_former_one() -> None:
    """Nobody has found the former leader's target gone yet, so that its last sample counts."""
    former, present = available([(0, HOUR, 1)]), available([(HOUR, 2 * HOUR, 0)], "b")
    assert fired(rule("SmqFilerUnavailable"), [former, present], 2 * HOUR)[0] == HOUR + MINUTE


def test_a_write_that_fails_once_is_no_filer_alert() -> None:
    short = available([(0, HOUR, 1), (HOUR, HOUR + MINUTE / 2, 0), (HOUR + MINUTE / 2, 2 * HOUR, 1)])
    assert fired(rule("SmqFilerUnavailable"), [short], 2 * HOUR) == []


def test_no_leader_is_no_filer_alert() -> None:
    assert fired(rule("SmqFilerUnavailable"), [available([(0, HOUR, 1)], ended=HOUR)], 2 * HOUR) == []


@pytest.mark.parametrize(
    ("name", "labels", "left"),
    [
        ("smq_broker_certificate_expiry_timestamp_seconds", {}, 6 * HOUR),
        ("smq_leader_certificate_expiry_timestamp_seconds", {}, 6 * HOUR),
        ("smq_leader_authority_expiry_timestamp_seconds", {"phase": "signing"}, 7 * DAY),
        ("smq_leader_authority_expiry_timestamp_seconds", {"phase": "retired"}, None),
    ],
)
def test_a_certificate_that_nobody_renews_is_an_alert(name: str, labels: dict[str, str], left: float | None) -> None:
    series = [sampled(name, MINUTE, [(0, 2 * HOUR, HOUR + (left or 0.0))], labels=labels)]
    found = fired(rule("SmqCertificateExpires"), series, 2 * HOUR)
    assert found[:1] == ([] if left is None else [HOUR + 5 * MINUTE + EVALUATION_SECONDS])
