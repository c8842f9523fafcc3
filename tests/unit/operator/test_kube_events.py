"""Events: one for what happens again and again, and few for what goes wrong without end."""

from __future__ import annotations

import asyncio

import pytest

from smq_operator.kube.errors import Forbidden, NotFound
from smq_operator.kube.events import (
    BURST,
    COUNT_EVERY,
    FORGOTTEN_AFTER,
    REFILL_EVERY,
    About,
    EventBook,
    EventWriter,
    Happened,
    body_of,
)
from smq_operator.kube.kinds import Kind, Resource

TOPIC = About("seaweedmq.io/v1alpha1", "Topic", "travel", "flights", "uid")
START = 1_700_000_000_000_000


def happened(message: str = "two are better", about: About = TOPIC) -> Happened:
    return Happened(about, "Split", message)


def test_the_same_again_is_counted_now_and_then() -> None:
    book = EventBook("p")
    first = book.take(happened(), START)
    assert first is not None and first.count == 1
    assert [book.take(happened(), START + n) for n in range(1, 10)] == [None] * 9
    again = book.take(happened(), START + COUNT_EVERY)
    assert again is first and again.count == 11


def test_another_message_is_another_event() -> None:
    book = EventBook("p")
    one, two = book.take(happened("a"), START), book.take(happened("b"), START)
    assert one and two and one.name != two.name


def test_another_process_has_names_of_its_own() -> None:
    one, two = (EventBook(process).take(happened(), START) for process in ("p", "q"))
    assert one and two and one.name != two.name


def test_after_an_hour_it_is_a_new_one() -> None:
    book = EventBook("p")
    first, later = (book.take(happened(), START + wait) for wait in (0, FORGOTTEN_AFTER))
    assert first and later and later.count == 1 and later.name != first.name


def test_a_broken_topic_does_not_flood_and_does_not_silence_others() -> None:
    book = EventBook("p")
    told = [book.take(happened(str(n)), START) for n in range(1000)]
    assert sum(each is not None for each in told) == BURST
    assert book.dropped == 1000 - BURST
    assert book.take(happened(about=About("v1", "Topic", "travel", "other", "u")), START) is not None
    assert book.take(happened("later"), START + REFILL_EVERY) is not None
    assert book.take(happened("more"), START + REFILL_EVERY) is None


def test_an_event_is_as_the_api_has_it() -> None:
    event = Happened(TOPIC, "DataLoss", "x" * 5000, warning=True)
    written = EventBook("p").take(event, START)
    assert written is not None
    body = body_of(event, written, "operator-0")
    assert (body["type"], body["count"], len(body["message"])) == ("Warning", 1, 1000)
    assert body["metadata"]["namespace"] == body["involvedObject"]["namespace"] == "travel"
    assert body["metadata"]["name"].startswith("flights.")


class Api:
    """Takes what it is given; ``error`` is what it says instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[Resource] = []

    async def create_event(self, body: Resource) -> Resource:
        self.calls.append(body)
        if self.error is not None:
            raise self.error
        return body

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, part: str = "") -> Resource:
        self.calls.append(change)
        if self.error is not None:
            raise self.error
        return change


def written(api: Api, *events: tuple[Happened, int]) -> list[Resource]:
    async def main() -> None:
        now = START
        writer = EventWriter(api, "operator-0", "p", lambda: now)
        keeping = asyncio.create_task(writer.keep())
        for event, at in events:
            now = at
            before = len(api.calls)
            writer.tell(event)
            async with asyncio.timeout(5):
                while len(api.calls) == before:
                    await asyncio.sleep(0.001)
        keeping.cancel()

    asyncio.run(main())
    return api.calls


def test_a_repeated_event_is_counted_at_the_api() -> None:
    created, counted = written(Api(), (happened(), START), (happened(), START + COUNT_EVERY))
    assert created["reason"] == "Split"
    assert counted == {"count": 2, "lastTimestamp": "2023-11-14T22:13:50Z"}


@pytest.mark.parametrize("error", [Forbidden("the operator may not create events"), RuntimeError("bug")])
def test_an_event_that_cannot_be_written_stops_nothing(error: Exception) -> None:
    assert len(written(Api(error), (happened("a"), START), (happened("b"), START))) == 2


def test_one_that_is_gone_is_made_anew() -> None:
    api = Api(NotFound("gone"))
    calls = written(api, (happened(), START), (happened(), START + COUNT_EVERY), (happened(), START + 2 * COUNT_EVERY))
    assert ["count" in c and "reason" not in c for c in calls] == [False, True, False]
