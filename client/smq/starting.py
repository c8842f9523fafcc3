"""Where a consumer begins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from smq.view import TopicView
from smq_core.dag import Loss, Reader, latest_of
from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_core.model import SealedSegment, Segment
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from smq_storage.chain import Chain
from smq_storage.paths import first_offset

log = logging.getLogger("smq")

STATUS_WITHIN = 1.0
CLOCKS_DIFFER_BY = timedelta(minutes=2)

Start = str | datetime | Mapping[str, int]


def check_start(start: object, group: str | None) -> None:
    """Raises InvalidRequest."""
    if isinstance(start, str):
        if start not in ("earliest", "latest"):
            raise InvalidRequest(f'start is "earliest", "latest", a datetime or positions, not {start!r}')
    elif isinstance(start, Mapping):
        bad = {s: o for s, o in start.items() if not isinstance(s, str) or not isinstance(o, int) or o < 0}
        if bad:
            raise InvalidRequest(f"positions are {{segment: next offset}}, not {bad}")
    elif not isinstance(start, datetime):
        raise InvalidRequest(f'start is "earliest", "latest", a datetime or positions, not {start!r}')
    if group is not None and not isinstance(start, str):
        raise InvalidRequest('a group begins at "earliest" or "latest"; then its own commits say where it is')


def begin(
    view: TopicView, reader: Reader, start: Start, sealed: Iterable[SealedSegment], ends: Mapping[str, int]
) -> int:
    """Sets the reader's positions. Returns the time (microseconds) before which messages are left out, 0: none.

    The reader knows the DAG already; ``ends`` are those of removed segments, as far as they are known.

    Raises Unavailable when the ends of living segments cannot be learnt.
    """
    if isinstance(start, Mapping):
        # Nothing follows a segment that there never was: its position says of no other that it was read.
        known = view.known.layout.next_number
        reader.positions.update({name: offset for name, offset in start.items() if latest_of((name,)) < known})
        reader.update({})
        for name, position in start.items():
            node = reader.nodes.get(name)
            if node is None and name in reader.positions:
                reader.removed(name, ends.get(name))
            elif node is None:
                reader.losses.append(Loss(name, position, position))
            elif node.end is not None and position > node.end:
                reader.ended(name, node.end)
    elif start == "latest":
        reader.skip_to_latest()
        living = {s.name: s for s in view.known.layout.segments}
        for name in reader.readable():
            reader.advance(name, watermark(view, living[name]))
    elif isinstance(start, datetime):
        aware = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        since = round(aware.timestamp() * 1_000_000)
        _skip_older(view, reader, aware, since, sealed)
        return since
    return 0


def watermark(view: TopicView, segment: Segment) -> int:
    """How far the segment is durable now, from any of its replicas, else from the filer. Raises Unavailable."""
    for replica in segment.replicas:
        try:
            with view.network.flight(replica.address) as client:
                body = call(client, "status", pb.BrokerStatus(), timeout=STATUS_WITHIN)
            status = pb.BrokerStatus.FromString(body)
        except SmqError as error:
            log.info("%s does not say how far %s is: %s", replica.broker, segment.name, error.message)
            continue
        for report in status.segments:
            if status.incarnation == replica.incarnation and report.segment == segment.name:
                return report.watermark
    chain = _chain(view, segment.name)
    end = 0
    for info in chain.walk(chain.latest_hint()):
        end = info.end
    if end == 0 and not segment.predecessors:
        raise Unavailable(f"no replica of {segment.name} says how far it is: try again")
    return end


def _skip_older(view: TopicView, reader: Reader, aware: datetime, since: int, sealed: Iterable[SealedSegment]) -> None:
    """Whole segments and chunks that were written before: they count as read."""
    ends = {s.name: s for s in sealed}
    for name, found in ends.items():
        if found.sealed_at < since:
            reader.advance(name, found.end)
    for name in reader.readable():
        firsts = 0
        for listed in _chain(view, name).files():
            first = first_offset(listed.path)
            if first is not None and listed.modified + CLOCKS_DIFFER_BY < aware:
                # Whatever is in it was appended before; its end is the next one's beginning.
                firsts = first
        if firsts:
            reader.advance(name, firsts)


def _chain(view: TopicView, segment: str) -> Chain:
    known = view.known
    return Chain(view.store(), known.topic.name, known.topic.uid, segment)
