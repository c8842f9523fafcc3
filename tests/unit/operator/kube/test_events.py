"""Events: one for what happens again and again, and few for what goes wrong without end."""

from __future__ import annotations

import asyncio

import pytest

from smq_operator.kube.client.errors import Forbidden, NotFound
from smq_operator.kube.client.events import (
    BURST,
    COUNT_INTERVAL_US,
    EVENT_TTL_US,
    REFILL_INTERVAL_US,
    EventCorrelator,
    EventRecorder,
    KubeEvent,
    ObjectReference,
    event_body,
)
from smq_operator.kube.client.kinds import Kind, Resource
from support.virtual_time import virtual_time
from support.waiting import HANG_GUARD

TOPIC = ObjectReference(
    api_version="seaweedmq.io/v1alpha1", kind="Topic", namespace="travel", name="flights", uid="uid"
)
START = 1_700_000_000_000_000


def kube_event(message: str = "two are better", involved_object: ObjectReference = TOPIC) -> KubeEvent:
    return KubeEvent(involved_object, "Split", message)


def test_the_same_again_is_counted_now_and_then() -> None:
    book = EventCorrelator("p")
    first = book.correlate(kube_event(), START)
    assert first is not None and first.count == 1
    assert [book.correlate(kube_event(), START + n) for n in range(1, 10)] == [None] * 9
    again = book.correlate(kube_event(), START + COUNT_INTERVAL_US)
    assert again is first and again.count == 11


def test_another_message_is_another_event() -> None:
    book = EventCorrelator("p")
    one, two = book.correlate(kube_event("a"), START), book.correlate(kube_event("b"), START)
    assert one and two and one.name != two.name


def test_another_process_has_names_of_its_own() -> None:
    one, two = (EventCorrelator(process).correlate(kube_event(), START) for process in ("p", "q"))
    assert one and two and one.name != two.name


def test_after_an_hour_it_is_a_new_one() -> None:
    book = EventCorrelator("p")
    first, later = (book.correlate(kube_event(), START + wait) for wait in (0, EVENT_TTL_US))
    assert first and later and later.count == 1 and later.name != first.name


def test_a_broken_topic_does_not_flood_and_does_not_silence_others() -> None:
    book = EventCorrelator("p")
    correlated = [book.correlate(kube_event(str(n)), START) for n in range(1000)]
    assert sum(each is not None for each in correlated) == BURST
    assert book.dropped == 1000 - BURST
    assert (
        book.correlate(
            kube_event(
                involved_object=ObjectReference(
                    api_version="v1", kind="Topic", namespace="travel", name="other", uid="u"
                )
            ),
            START,
        )
        is not None
    )
    assert book.correlate(kube_event("later"), START + REFILL_INTERVAL_US) is not None
    assert book.correlate(kube_event("more"), START + REFILL_INTERVAL_US) is None


def test_an_event_is_as_the_api_has_it() -> None:
    event = KubeEvent(TOPIC, "DataLoss", "x" * 5000, warning=True)
    written = EventCorrelator("p").correlate(event, START)
    assert written is not None
    body = event_body(event, written, "operator-0")
    assert (body["type"], body["count"], len(body["message"])) == ("Warning", 1, 1000)
    assert body["metadata"]["namespace"] == body["involvedObject"]["namespace"] == "travel"
    assert body["metadata"]["name"].startswith("flights.")


class RecordingEventsApi:
    """Takes what it is given; ``error`` is what it says instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[Resource] = []

    async def create_event(self, body: Resource) -> Resource:
        self.calls.append(body)
        if self.error is not None:
            raise self.error
        return body

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, subresource: str = "") -> Resource:
        self.calls.append(change)
        if self.error is not None:
            raise self.error
        return change


async def written(api: RecordingEventsApi, *events: tuple[KubeEvent, int]) -> list[Resource]:
    now = START
    writer = EventRecorder(api, "operator-0", "p", lambda: now)
    keeping = asyncio.create_task(writer.run())
    for event, at in events:
        now = at
        before = len(api.calls)
        writer.record(event)
        async with asyncio.timeout(HANG_GUARD):
            while len(api.calls) == before:
                await asyncio.sleep(0.001)
    keeping.cancel()
    return api.calls


@virtual_time
async def test_a_repeated_event_is_counted_at_the_api() -> None:
    created, counted = await written(
        RecordingEventsApi(), (kube_event(), START), (kube_event(), START + COUNT_INTERVAL_US)
    )
    assert created["reason"] == "Split"
    assert counted == {"count": 2, "lastTimestamp": "2023-11-14T22:13:50Z"}


@pytest.mark.parametrize("error", [Forbidden("the operator may not create events"), RuntimeError("bug")])
@virtual_time
async def test_an_event_that_cannot_be_written_stops_nothing(error: Exception) -> None:
    assert len(await written(RecordingEventsApi(error), (kube_event("a"), START), (kube_event("b"), START))) == 2


@virtual_time
async def test_one_that_is_gone_is_made_anew() -> None:
    api = RecordingEventsApi(NotFound("gone"))
    calls = await written(
        api,
        (kube_event(), START),
        (kube_event(), START + COUNT_INTERVAL_US),
        (kube_event(), START + 2 * COUNT_INTERVAL_US),
    )
    assert ["count" in c and "reason" not in c for c in calls] == [False, True, False]
