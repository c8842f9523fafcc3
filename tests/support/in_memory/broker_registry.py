"""The leader's registry of brokers, with brokers that report again after a leader's first answer, as processes do."""

from __future__ import annotations

from collections.abc import Collection

from smq_operator.brokers.registry import Broker, BrokerRegistry
from smq_proto.v1 import brokers_pb2


class AnsweringRegistry(BrokerRegistry):
    def report(self, report: brokers_pb2.BrokerReport, now: int, named: Collection[str] = ()) -> Broker:
        super().report(report, now, named)
        again = brokers_pb2.BrokerReport()
        again.CopyFrom(report)
        again.last_leader, again.last_answer = self.leader, self.next_answer()
        return super().report(again, now, named)
