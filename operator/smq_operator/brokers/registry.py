"""The registry of brokers: one entry per incarnation, updated by reports, termination proofs and liveness probes.

It exists in memory only. An incarnation is ALIVE while it reports. It is SUSPECT when its reports stop, or when a probe
confirms a peer's report that it is unreachable. It is GONE, forever, only by proof: the platform has one, or a newer
incarnation of the same broker has registered.

If a SUSPECT incarnation reports again, it was only slow, so its report timeout doubles. Otherwise a cluster with too
little CPU would fail over again and again, which costs the CPU that it lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_core.model.entities import Layout, Liveness, Replica
from smq_core.scaling.placement import BrokerView
from smq_operator.platform_port import Platform
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb

ACCEPTING_STATES = ("waiting", "open")
FENCED_STATES = ("fenced", "sealed")
"""States of a segment at a broker that takes messages of it, or will."""

SUSPECT_AFTER_US = 2_500_000
REPORT_IN_FLIGHT_US = 2_500_000
"""A report that arrives this long after a layout was read was sent after that layout was written."""
GONE_RETENTION_US = 600_000_000
MAX_REPORT_TIMEOUT_US = 20_000_000
REPORT_TIMEOUT_DECAY_US = 60_000_000
"""Without another false alarm for this long, a broker's report timeout halves again."""


@dataclass(slots=True)
class Broker:
    """One incarnation. Times are microseconds of the leader's clock."""

    replica: Replica
    node: str = ""
    zone: str = ""
    last_report_at: int = 0
    status: pb.BrokerStatus = field(default_factory=pb.BrokerStatus)
    draining: bool = False
    report_timeout_us: int = SUSPECT_AFTER_US
    """It is suspected when no report arrives for this long."""
    timeout_changed_at: int = 0
    suspected: bool = False
    """A probe failed. Only a successful probe clears this; reports do not."""
    gone: str | None = None
    """The termination proof, as text for people; None while there is none."""
    _accepting_segments: tuple[pb.BrokerStatus, frozenset[tuple[str, str]]] | None = None

    def holds(self, uid: str, segment: str) -> bool:
        """Whether its last report says that it hosts this segment of the topic with that uid, and accepts messages."""
        if self._accepting_segments is None or self._accepting_segments[0] is not self.status:
            taking = ((s.uid, s.segment) for s in self.status.segments if s.state in ACCEPTING_STATES)
            self._accepting_segments = self.status, frozenset(taking)
        return (uid, segment) in self._accepting_segments[1]

    def liveness(self, now: int) -> Liveness:
        if self.gone is not None:
            return Liveness.GONE
        if self.suspected or now - self.last_report_at > self.report_timeout_us:
            return Liveness.SUSPECT
        return Liveness.ALIVE

    def mark_alive(self, now: int) -> None:
        """It reported or answered a probe. If it was SUSPECT until now, that was wrong, and its timeout doubles."""
        if self.liveness(now) is Liveness.SUSPECT:
            self.report_timeout_us, self.timeout_changed_at = (
                min(2 * self.report_timeout_us, MAX_REPORT_TIMEOUT_US),
                now,
            )
        elif self.report_timeout_us > SUSPECT_AFTER_US and now - self.timeout_changed_at >= REPORT_TIMEOUT_DECAY_US:
            self.report_timeout_us, self.timeout_changed_at = max(self.report_timeout_us // 2, SUSPECT_AFTER_US), now


class BrokerRegistry:
    """See the module's docstring."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._brokers: dict[str, Broker] = {}
        self._fully_known_layouts: dict[str, Layout] = {}
        """By uid: layouts all of whose replicas are registered."""
        self._unregistered_since: dict[str, int] = {}
        """Incarnations that only layouts name, and when they were first seen there."""

    # ---- updates

    def report(self, report: lpb.BrokerReport, now: int) -> Broker:
        """Takes a report. The first report of an incarnation registers it, and proves older ones of that broker gone.

        Raises WrongIncarnation if the incarnation is gone, and InvalidRequest if the report lacks its name.
        """
        if not (report.broker and report.incarnation and report.address):
            raise InvalidRequest("a report needs the broker's name, incarnation and address")
        known = self._brokers.get(report.incarnation)
        broker = known or self._register(report)
        if broker.gone is not None:
            raise WrongIncarnation(
                f"incarnation {report.incarnation} of broker {report.broker} was declared gone ({broker.gone}). "
                "Stop this process; a new process may register under this name"
            )
        if known is not None and not broker.suspected:
            broker.mark_alive(now)
        broker.last_report_at = now
        broker.status = report.status
        broker.node, broker.zone = report.node, report.zone
        broker.draining = broker.draining or report.leaving or report.status.draining
        return broker

    def _register(self, report: lpb.BrokerReport) -> Broker:
        replica = Replica(report.broker, report.incarnation, report.address)
        broker = self._brokers[report.incarnation] = Broker(replica)
        if self._platform.is_current_incarnation(report.broker, report.incarnation) is False:
            broker.gone = "another process runs under its name"
            return broker
        for older in self.named(report.broker):
            if older is not broker and older.gone is None:
                older.gone = f"a newer incarnation of {report.broker} registered"
        return broker

    def apply_termination_proofs(self, layouts: Iterable[Layout], now: int) -> list[Broker]:
        """Looks for a termination proof of every incarnation that is not gone; returns those that are gone now.

        An incarnation that only a layout names is registered as gone if there is a proof.
        """
        before, self._fully_known_layouts = self._fully_known_layouts, {}
        for layout in layouts:
            unknown: list[Replica] = []
            if before.get(layout.uid) is not layout:
                unknown = [r for s in layout.segments for r in s.replicas if r.incarnation not in self._brokers]
            for replica in unknown:
                self._check_unregistered(replica, now)
            if not unknown:
                self._fully_known_layouts[layout.uid] = layout
        found = []
        for broker in self._brokers.values():
            if broker.gone is None:
                reporting = broker.liveness(now) is Liveness.ALIVE
                broker.gone = self._platform.termination_proof(broker.replica.incarnation, reporting)
                if broker.gone is not None:
                    found.append(broker)
        return found

    def _check_unregistered(self, replica: Replica, now: int) -> None:
        proof = self._platform.termination_proof(replica.incarnation)
        if proof is not None:
            self._brokers[replica.incarnation] = Broker(replica, gone=proof)
        elif self.superseded(replica, now):
            newer = f"a newer incarnation of {replica.broker} registered"
            self._brokers[replica.incarnation] = Broker(replica, gone=newer)

    def superseded(self, replica: Replica, now: int) -> bool:
        """Whether another incarnation of its broker reported after a layout named this one, which never reported.

        Then this one is older, and gone. Before that it may be newer, and registered at another leader.
        """
        seen_at = self._unregistered_since.setdefault(replica.incarnation, now)
        others = self.named(replica.broker)
        return any(other.gone is None and other.last_report_at - seen_at >= REPORT_IN_FLIGHT_US for other in others)

    def compensate_pause(self, microseconds: int) -> None:
        """This process was paused for so long, so missing reports in that time say nothing about the brokers."""
        for broker in self._brokers.values():
            broker.last_report_at += microseconds
        for incarnation in self._unregistered_since:
            self._unregistered_since[incarnation] += microseconds

    def forget(self, named: Collection[str], now: int) -> list[str]:
        """Drops incarnations that have long been gone and that no layout names; returns them."""
        done = [
            incarnation
            for incarnation, broker in self._brokers.items()
            if broker.gone is not None and incarnation not in named and now - broker.last_report_at > GONE_RETENTION_US
        ]
        for incarnation in done:
            del self._brokers[incarnation]
        self._unregistered_since = {
            n: at
            for n, at in self._unregistered_since.items()
            if n not in self._brokers and now - at < GONE_RETENTION_US
        }
        if done:
            self._fully_known_layouts.clear()
        return done

    # ---- queries

    def get(self, incarnation: str) -> Broker | None:
        return self._brokers.get(incarnation)

    def holds(self, incarnation: str, uid: str, segment: str) -> bool:
        """See :meth:`Broker.holds`."""
        broker = self._brokers.get(incarnation)
        return broker is not None and broker.holds(uid, segment)

    def named(self, name: str) -> list[Broker]:
        return [b for b in self._brokers.values() if b.replica.broker == name]

    def all(self) -> list[Broker]:
        return sorted(self._brokers.values(), key=lambda b: (b.replica.broker, b.last_report_at))

    def states(self, now: int) -> dict[str, tuple[Liveness, bool]]:
        """Liveness and draining of every incarnation. While it does not change, brokers require no new decision."""
        return {name: (broker.liveness(now), broker.draining) for name, broker in self._brokers.items()}

    def healthy_incarnations(self, now: int) -> set[str]:
        """The incarnations that are alive and not draining."""
        states = self.states(now)
        return {name for name, state in states.items() if state == (Liveness.ALIVE, False)}

    def alive(self, now: int) -> list[Broker]:
        return [b for b in self._brokers.values() if b.liveness(now) is Liveness.ALIVE]

    def views(self, work: Mapping[str, int], traffic: Mapping[str, float], now: int) -> dict[str, BrokerView]:
        """The brokers as core sees them, by incarnation.

        ``work``: see :func:`assigned_work`. ``traffic``: the load of each in multiples of a segment's target load.
        """
        return {
            incarnation: BrokerView(
                broker.replica,
                broker.liveness(now),
                broker.draining,
                broker.node,
                broker.zone,
                load=traffic.get(incarnation, 0.0),
                segments=work.get(incarnation, 0),
            )
            for incarnation, broker in self._brokers.items()
        }


def assigned_work(layouts: Iterable[Layout]) -> Counter[str]:
    """The work of each incarnation: 2 for each segment as primary, 1 as follower, as placement counts it."""
    held: Counter[str] = Counter()
    for layout in layouts:
        for segment in layout.segments:
            if segment.successors:
                continue
            for rank, replica in enumerate(segment.replicas):
                held[replica.incarnation] += 2 if rank == 0 else 1
    return held
