"""The commands of leader and clients: one function for each action. Bodies are the messages of data.proto."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import Message

from smq_broker.holdings import Holdings
from smq_broker.locator import Locator, full_name
from smq_broker.report import broker_status
from smq_core.errors import InvalidRequest
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import check_protocol, outcome_to_pb, segment_from_pb, topic_from_pb

Action = Callable[[object, Any], Message | None]


class Actions:
    """``run(name, body, context)`` gives the answer's body, or None. Raises SmqError."""

    def __init__(self, name: str, holdings: Holdings, locator: Locator) -> None:
        self._name = name
        self._holdings = holdings
        self._locator = locator
        self._by_name: dict[str, tuple[Action, str]] = {
            "open": (self._open, "OpenSegment -> OpenedSegment"),
            "seal": (self._seal, "SealSegment -> SealOutcome"),
            "outcome": (self._outcome, "OutcomeRequest -> SealOutcome"),
            "locate": (self._locate, "LocateRequest -> LocateReply"),
            "drain": (self._drain, "DrainRequest -> nothing"),
            "status": (self._status, "nothing -> BrokerStatus"),
        }

    def run(self, name: str, body: object, context: Any) -> Message | None:
        action = self._by_name.get(name)
        if action is None:
            raise InvalidRequest(f"there is no action {name!r}; there are {', '.join(self._by_name)}")
        return action[0](body, context)

    def known(self) -> Iterable[tuple[str, str]]:
        return [(name, what) for name, (_, what) in self._by_name.items()]

    def _open(self, body: object, _: Any) -> Message:
        request = parse(pb.OpenSegment, body)
        check_protocol(request.protocol)
        self._holdings.check_incarnation(request.incarnation)
        try:
            topic = topic_from_pb(request.topic)
            held = self._holdings.open(topic, segment_from_pb(request.segment))
        except (ValueError, KeyError) as error:
            raise InvalidRequest(f"not a segment to open: {error}") from error
        return pb.OpenedSegment(credit=held.credit)

    def _seal(self, body: object, context: Any) -> Message | None:
        request = parse(pb.SealSegment, body)
        check_protocol(request.protocol)
        if request.only_flush:
            self._holdings.flush_ahead(request)
            return None
        successors = [segment_from_pb(s) for s in request.successors]
        held, outcome = self._holdings.seal(request, successors, context)
        return outcome_to_pb(outcome, successors=held.successors)

    def _outcome(self, body: object, _: Any) -> Message:
        request = parse(pb.OutcomeRequest, body)
        found, successors = self._holdings.outcome(full_name(request.topic), request.uid, request.segment)
        return outcome_to_pb(found, only=request.producer or None, successors=successors)

    def _locate(self, body: object, _: Any) -> Message:
        return self._locator.locate(parse(pb.LocateRequest, body).topic)

    def _drain(self, body: object, _: Any) -> None:
        self._holdings.check_incarnation(parse(pb.DrainRequest, body).incarnation)
        self._holdings.drain()

    def _status(self, _: object, __: Any) -> Message:
        return broker_status(self._name, self._holdings)
