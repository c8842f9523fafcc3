"""What of a broker's report counts. Whoever reaches the port can send one, in the name of any process.

A report is refused if it is too large, or contradicts what the registry or a layout says of its sender. Segments that
a layout gives to other brokers do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from smq_core.errors import InvalidRequest, Overloaded
from smq_core.model.entities import Layout, Replica
from smq_operator.brokers.registry import SUSPECT_AFTER_US, BrokerRegistry
from smq_operator.reconcile.broker_assignments import BrokerAssignments
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb

# In one report. Each segment has buffers and a thread, so a broker hosts far fewer.
MAX_SEGMENTS = 10_000
# How many others a report names as unresponsive, or as former ones.
MAX_INCARNATIONS = 1_000
# Of what a report says how long it has lasted: a hundred years.
MAX_DURATION_SECONDS = 100 * 365 * 24 * 3600.0
# How many incarnations that report are registered, besides those that the platform knows.
MAX_BROKERS = 2_000
# Of the last reports of these incarnations together, which the leader keeps. A report of 1,000 segments has 0.3 MB.
MAX_REPORTED_BYTES = 32_000_000


def check_size(report: brokers_pb2.BrokerReport) -> None:
    """Raises InvalidRequest, also for a duration that is none: it would end whoever compares it or shows it."""
    for what, count, limit in (
        ("segments", len(report.status.segments), MAX_SEGMENTS),
        ("unresponsive brokers", len(report.unresponsive), MAX_INCARNATIONS),
        ("former incarnations", len(report.recovered), MAX_INCARNATIONS),
    ):
        if count > limit:
            raise InvalidRequest(f"a report has {count} {what}, at most {limit} are accepted")
    status = report.status
    for seconds in (status.filer_failing_seconds, *(it.stalled_seconds for it in status.segments)):
        if not 0 <= seconds <= MAX_DURATION_SECONDS:  # NaN is in no range
            raise InvalidRequest(f"a report has a duration of {seconds} seconds")


def check_sender(report: brokers_pb2.BrokerReport, registry: BrokerRegistry, layouts: Iterable[Layout]) -> None:
    """Raises InvalidRequest if registry or layouts have the sender, or a former one it names, as another broker."""
    known = registry.get(report.incarnation)
    unknown = {it for it in report.recovered if registry.get(it) is None}
    if known is None:
        unknown.add(report.incarnation)
    named = named_replicas(layouts) if unknown else {}
    sender = known.replica if known is not None else named.get(report.incarnation)
    given = (report.broker, report.address)
    has_ended = known is not None and known.terminated is not None  # which is its own error
    if sender is not None and not has_ended and (sender.broker, sender.address) != given:
        raise InvalidRequest(
            f"incarnation {report.incarnation} is broker {sender.broker} at {sender.address}, and not "
            f"{report.broker} at {report.address}"
        )
    for incarnation in report.recovered:
        former = registry.get(incarnation)
        replica = former.replica if former is not None else named.get(incarnation)
        if replica is not None and replica.broker != report.broker:
            raise InvalidRequest(
                f"broker {report.broker} has no journal of incarnation {incarnation}, which is one of {replica.broker}"
            )


def require_capacity(
    report: brokers_pb2.BrokerReport, registry: BrokerRegistry, assignments: BrokerAssignments, now: int
) -> list[str]:
    """Forgets silent incarnations that no layout names, if the report would be too much, and returns them.

    Raises Overloaded if that is not enough. Reports of processes that the platform knows are never too much.
    """
    if registry.is_current(report.broker, report.incarnation) or not _excess(report, registry):
        return []
    forgotten = assignments.forget_brokers(now, retention_us=SUSPECT_AFTER_US)
    if excess := _excess(report, registry):
        raise Overloaded(f"{excess} already: wait until those that are gone are forgotten")
    return forgotten


def _excess(report: brokers_pb2.BrokerReport, registry: BrokerRegistry) -> str:
    """What there is too much of with this report; empty if there is not."""
    others = registry.unmanaged(besides=report.incarnation)
    if registry.get(report.incarnation) is None and len(others) >= MAX_BROKERS:
        return f"{MAX_BROKERS} brokers are registered"
    if sum(it.status_bytes for it in others) + report.status.ByteSize() > MAX_REPORTED_BYTES:
        return f"the reports of brokers that the platform does not know have {MAX_REPORTED_BYTES:,} bytes"
    return ""


def drop_foreign_segments(report: brokers_pb2.BrokerReport, topics: Mapping[str, ManagedTopic]) -> int:
    """Removes the segments that layouts give to other brokers. Returns how many these are."""
    own = [it for it in report.status.segments if not _is_foreign(it, report, topics.get(it.topic))]
    dropped = len(report.status.segments) - len(own)
    if dropped:
        del report.status.segments[:]
        report.status.segments.extend(own)
    return dropped


def _is_foreign(segment: pb.SegmentReport, report: brokers_pb2.BrokerReport, managed: ManagedTopic | None) -> bool:
    layout = managed.layout if managed is not None else None
    if managed is None or layout is None or layout.uid != segment.uid:
        return False
    if segment.segment in layout:
        # A process reports a former one's segment if only its journal shows that more was acked than is sealed.
        replicas = layout.segment(segment.segment).replicas
        return not any(it.incarnation == report.incarnation or it.broker == report.broker for it in replicas)
    entry = managed.index.sealed.get(segment.segment)
    return entry is not None and bool(entry.brokers) and report.broker not in entry.brokers


def named_replicas(layouts: Iterable[Layout]) -> dict[str, Replica]:
    return {it.incarnation: it for layout in layouts for segment in layout.segments for it in segment.replicas}
