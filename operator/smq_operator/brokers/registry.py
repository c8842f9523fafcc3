"""The registry of brokers: one entry per incarnation, updated by reports, termination proofs and liveness probes.

It exists in memory only. An incarnation is ALIVE while it reports. It is SUSPECT when its reports stop, or when a probe
confirms a peer's report that it is unreachable. A process that has ended, as the platform or a newer incarnation of the
same broker proves, never reports again. Of two incarnations the newer one is the one that got an answer which the
leader gave after it knew the other: a report that arrives late shows nothing. The journal may outlive the process:

- It is ENDED until the next incarnation of the broker reports whether it has the journal.
- It is RECOVERED while that one lists it, and can seal in its place. It is SUSPECT when that one is.
- It is GONE, forever, when the next incarnation does not list it, or the platform proves that the journal is gone.

If a SUSPECT incarnation reports again, it was only slow, so its report timeout doubles. Otherwise a cluster with too
little CPU would fail over again and again, which costs the CPU that it lacks.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_core.model.entities import Layout, Liveness, Replica
from smq_core.model.names import check_labels, check_name
from smq_core.scaling.placement import BrokerView
from smq_operator.platform_port import Platform
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb

ACCEPTING_STATES = (pb.SegmentReport.WAITING, pb.SegmentReport.OPEN)
# States of a segment at a broker that takes no more messages of it.
FENCED_STATES = (pb.SegmentReport.FENCED, pb.SegmentReport.SEALED)

# Of names of brokers, nodes and zones: as long as names in Kubernetes may be.
MAX_BROKER_NAME_LENGTH = 253
# A host's name of 253 characters, and a port.
MAX_ADDRESS_LENGTH = 300

SUSPECT_AFTER_US = 2_500_000
# A report that arrives this long after a layout was read was sent after that layout was written.
REPORT_IN_FLIGHT_US = 2_500_000
GONE_RETENTION_US = 600_000_000
# How many former incarnations that no known layout names are registered. A layout may name them later.
MAX_FORMER = 2_000
MAX_REPORT_TIMEOUT_US = 20_000_000
# Without another false alarm for this long, a broker's report timeout halves again.
REPORT_TIMEOUT_DECAY_US = 60_000_000


@dataclass(slots=True, kw_only=True)
class Broker:
    """One incarnation. Times are microseconds of the leader's clock."""

    replica: Replica
    node: str = ""
    zone: str = ""
    last_report_at: int = 0
    status: pb.BrokerStatus = field(default_factory=pb.BrokerStatus)
    status_at: int = 0
    """When ``status`` arrived. A pause of this process does not change it, unlike ``last_report_at``."""
    status_bytes: int = 0
    """The size of ``status``."""
    draining: bool = False
    report_timeout_us: int = SUSPECT_AFTER_US
    """It is suspected when no report arrives for this long."""
    timeout_changed_at: int = 0
    suspected: bool = False
    """A probe failed. Only a successful probe clears this; reports do not."""
    ended: str | None = None
    """Why its process has certainly ended, as text for people; None while there is no proof."""
    ended_at: int = 0
    """When the leader learned that."""
    gone: str | None = None
    """Why its journal has certainly ended with it; None while the journal may come back."""
    cause: str = ""
    """Why its process has ended, as the platform says it; empty if it does not. A newer one may report before that."""
    cause_at: int = 0
    """When the leader learned the cause."""
    journal_holder: Broker | None = None
    """The newer incarnation that reported that it has this one's journal."""
    recovered: frozenset[str] = frozenset()
    """The former incarnations whose journals this one has."""
    registered_after: int = 0
    """The number of the last answer before its first report."""
    superseded_others: bool = False
    """Whether every other known incarnation of its broker is gone, or has its journal here."""
    authorities: str = ""
    """The id of the set of authorities that it uses, from its last report."""
    kafka_address: str = ""
    """Where Kafka clients reach it, from its last report."""
    reports_foreign_segments: bool = False
    """Its last report named segments that layouts give to others."""
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
        if self.ended is not None:
            holder = self.journal_holder
            if holder is None or holder.terminated is not None:
                return Liveness.ENDED
            return Liveness.RECOVERED if holder.liveness(now) is Liveness.ALIVE else Liveness.SUSPECT
        if self.suspected or now - self.last_report_at > self.report_timeout_us:
            return Liveness.SUSPECT
        return Liveness.ALIVE

    @property
    def terminated(self) -> str | None:
        """Why this process certainly does nothing more; None while it may run."""
        return self.gone or self.ended

    @property
    def ended_unexpectedly(self) -> bool:
        """Whether its process ended without a drain, as one that was killed. One that never reported here may have."""
        return self.ended is not None and not self.draining and self.has_reported

    @property
    def has_reported(self) -> bool:
        """Whether this leader knows the process by its own reports, and not only its journal or a layout."""
        return self.status_bytes > 0

    def end(self, why: str, now: int, *, journal_gone: bool) -> bool:
        """Takes a termination proof. True if it says something new."""
        before = (self.ended, self.gone)
        if self.ended is None:
            self.ended, self.ended_at = why, now
        if journal_gone:
            self.gone = self.gone or why
        return (self.ended, self.gone) != before

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
        self.leader = uuid.uuid4().hex
        self._answers = 0
        self._brokers: dict[str, Broker] = {}
        self._fully_known_layouts: dict[str, Layout] = {}
        """By uid: layouts all of whose replicas are registered."""
        self._unregistered_since: dict[str, int] = {}
        """Incarnations that only layouts name, and when they were first seen there."""

    # ---- updates

    def report(self, report: brokers_pb2.BrokerReport, now: int, named: Collection[str] = ()) -> Broker:
        """Takes a report. The first one of an incarnation registers it.

        One that names an answer of this leader proves that the incarnations have ended which it knew before the answer.

        ``named`` has the incarnations that layouts name.
        Raises WrongIncarnation if the incarnation has ended, and InvalidRequest if the report lacks its name.
        """
        if not (report.broker and report.incarnation and report.address):
            raise InvalidRequest("a report needs the broker's name, incarnation and address")
        check_labels(
            [
                ("a broker's name", report.broker),
                ("an incarnation", report.incarnation),
                ("a broker's node", report.node),
                ("a broker's zone", report.zone),
                ("the id of a broker's authorities", report.authorities),
            ],
            MAX_BROKER_NAME_LENGTH,
        )
        check_name("a broker's address", report.address, MAX_ADDRESS_LENGTH)
        if report.kafka_address:
            check_name("a broker's address for Kafka clients", report.kafka_address, MAX_ADDRESS_LENGTH)
        known = self._brokers.get(report.incarnation)
        broker = known or self._register(report, now)
        if broker.terminated is not None:
            raise WrongIncarnation(
                f"incarnation {report.incarnation} of broker {report.broker} was declared gone ({broker.terminated}). "
                "Stop this process; a new process may register under this name"
            )
        if known is not None and not broker.suspected:
            broker.mark_alive(now)
        broker.last_report_at = broker.status_at = now
        broker.status, broker.status_bytes = report.status, report.status.ByteSize()
        broker.node, broker.zone, broker.authorities = report.node, report.zone, report.authorities
        broker.kafka_address = report.kafka_address
        broker.draining = broker.draining or report.leaving or report.status.draining
        recovered = frozenset(report.recovered) - {report.incarnation}
        unregistered = any(it in named and it not in self._brokers for it in recovered)
        if not broker.superseded_others or recovered != broker.recovered or unregistered:
            broker.recovered = recovered
            ran_at = report.last_answer if report.last_leader == self.leader else 0
            self._update_former(broker, now, ran_at, named)
        return broker

    def next_answer(self) -> int:
        """The number of the answer to a report."""
        self._answers += 1
        return self._answers

    def _register(self, report: brokers_pb2.BrokerReport, now: int) -> Broker:
        replica = Replica(report.broker, report.incarnation, report.address)
        broker = self._brokers[report.incarnation] = Broker(replica=replica, registered_after=self._answers)
        for other in self.named(report.broker):
            other.superseded_others = False
        if self._platform.is_current_incarnation(report.broker, report.incarnation) is False:
            broker.end("another process runs under its name", now, journal_gone=False)
            for other in self.named(report.broker):
                current = self._platform.is_current_incarnation(report.broker, other.replica.incarnation)
                if other is not broker and other.terminated is None and current:
                    self._update_former(other, now, self._answers + 1)
        return broker

    def _update_former(self, newest: Broker, now: int, ran_at: int, named: Collection[str] = ()) -> None:
        """Ends the incarnations whose journals ``newest`` has, and those known before the answer ``ran_at``."""
        name = newest.replica.broker
        capacity = MAX_FORMER - sum(1 for broker in self._brokers.values() if not broker.status_at)
        for incarnation in sorted(newest.recovered - self._brokers.keys(), key=lambda it: it not in named):
            if incarnation not in named and capacity <= 0:
                break
            capacity -= 1
            replica = Replica(name, incarnation, newest.replica.address)
            self._brokers[incarnation] = Broker(replica=replica, last_report_at=now)
        for former in self.named(name):
            if former is newest:
                continue
            if former.replica.incarnation in newest.recovered:
                former.end(f"a newer incarnation of {name} has its journal", now, journal_gone=False)
                former.journal_holder = newest
            elif former.journal_holder is newest or former.registered_after < ran_at:
                former.end(f"a newer incarnation of {name} registered without its journal", now, journal_gone=True)
        others = (it for it in self.named(name) if it is not newest)
        newest.superseded_others = all(it.gone is not None or it.journal_holder is newest for it in others)

    def apply_termination_proofs(self, layouts: Iterable[Layout], now: int) -> list[Broker]:
        """Looks for a termination proof of every incarnation that is not gone; returns those that have one now.

        That is those whose processes are proved to have ended, and those whose journals are. An incarnation that only
        a layout names is registered if there is a proof.
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
        return [broker for broker in self._brokers.values() if broker.gone is None and self._find_proof(broker, now)]

    def _find_proof(self, broker: Broker, now: int) -> bool:
        """Whether there is a new proof for this incarnation."""
        reporting = broker.liveness(now) is Liveness.ALIVE
        proof = self._platform.termination_proof(broker.replica.incarnation, reporting)
        found = proof is not None and broker.end(proof.text, now, journal_gone=proof.journal_gone)
        if proof is not None and not broker.cause:
            broker.cause, broker.cause_at, found = proof.text, now, True
        orphaned = broker.ended is not None and broker.journal_holder is None
        if orphaned and broker.gone is None and self._reported_since(broker.replica, broker.ended_at):
            found = broker.end(_without_journal(broker.replica), now, journal_gone=True)
        return found

    def _check_unregistered(self, replica: Replica, now: int) -> None:
        proof = self._platform.termination_proof(replica.incarnation)
        if proof is not None:
            broker = self._brokers[replica.incarnation] = Broker(replica=replica)
            broker.end(proof.text, now, journal_gone=proof.journal_gone)
        elif self.superseded(replica, now):
            broker = self._brokers[replica.incarnation] = Broker(replica=replica)
            broker.end(_without_journal(replica), now, journal_gone=True)

    def superseded(self, replica: Replica, now: int) -> bool:
        """Whether another incarnation of its broker reported after a layout named this one, which never reported.

        Then this one is older, and gone with its journal, since the other one would have listed it. Before that it may
        be newer, and registered at another leader.
        """
        return self._reported_since(replica, self._unregistered_since.setdefault(replica.incarnation, now))

    def _reported_since(self, replica: Replica, at: int) -> bool:
        """Whether another process of its broker runs and sent a report after ``at``."""
        others = self.named(replica.broker)
        return any(o.terminated is None and o.last_report_at - at >= REPORT_IN_FLIGHT_US for o in others)

    def compensate_pause(self, microseconds: int) -> None:
        """This process was paused for that time, so missing reports say nothing about the brokers."""
        for broker in self._brokers.values():
            broker.last_report_at += microseconds
            broker.ended_at += microseconds
        for incarnation in self._unregistered_since:
            self._unregistered_since[incarnation] += microseconds

    def forget(self, named: Collection[str], now: int, retention_us: int | None = None) -> list[str]:
        """Drops and returns incarnations that were silent for this time, and that no layout and no journal names.

        One that still runs registers again with its next report.
        """
        retention_us = GONE_RETENTION_US if retention_us is None else retention_us
        recovered = {name for broker in self._brokers.values() if broker.ended is None for name in broker.recovered}
        done = [
            incarnation
            for incarnation, broker in self._brokers.items()
            if incarnation not in named
            and incarnation not in recovered
            and not any(it in named for it in broker.recovered)
            and now - broker.last_report_at > retention_us
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

    def is_current(self, broker: str, incarnation: str) -> bool:
        """Whether the platform knows this incarnation as the process that runs under the broker's name."""
        return self._platform.is_current_incarnation(broker, incarnation) is True

    def unmanaged(self, besides: str) -> list[Broker]:
        """The incarnations that have sent reports and that the platform does not know, besides this one."""
        return [
            broker
            for incarnation, broker in self._brokers.items()
            if broker.status_at and incarnation != besides and not self.is_current(broker.replica.broker, incarnation)
        ]

    def get(self, incarnation: str) -> Broker | None:
        return self._brokers.get(incarnation)

    def receiver(self, replica: Replica) -> Replica:
        """The process that answers for this replica: itself, or the newer one that has its journal."""
        broker = self._brokers.get(replica.incarnation)
        holder = broker.journal_holder if broker is not None and broker.terminated is not None else None
        return replica if holder is None else holder.replica

    def holds(self, incarnation: str, uid: str, segment: str) -> bool:
        """See :meth:`Broker.holds`."""
        broker = self._brokers.get(incarnation)
        return broker is not None and broker.holds(uid, segment)

    def host_of(self, uid: str) -> str:
        """A broker that reports segments of the topic with that uid; empty if there is none."""
        found = (b for b in self._brokers.values() if any(it.uid == uid for it in b.status.segments))
        return next((broker.replica.broker for broker in found), "")

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

    def journal_problems(self, now: int) -> dict[str, str]:
        """The incarnations that report that they continue without a journal, and why."""
        return {b.replica.incarnation: b.status.journal_problem for b in self.alive(now) if b.status.journal_problem}

    def filer_problems(self, now: int) -> list[tuple[str, str, float]]:
        """The living brokers that cannot write to the filer: name, problem, and for how many seconds."""
        failing = (b for b in self.alive(now) if b.status.filer_problem)
        return sorted((b.replica.broker, b.status.filer_problem, b.status.filer_failing_seconds) for b in failing)

    def stalled_segments(self, now: int, seconds: float) -> set[tuple[str, str, str]]:
        """(incarnation, uid, segment) of primaries whose producers have waited for this time or longer."""
        return {
            (b.replica.incarnation, it.uid, it.segment)
            for b in self.alive(now)
            for it in b.status.segments
            if it.primary and it.stalled_seconds >= seconds
        }

    def with_other_authorities(self, id: str) -> list[str]:
        """The brokers that use another set of authorities than this one, and that may still run."""
        known = (it for it in self._brokers.values() if it.has_reported and it.terminated is None)
        return sorted(it.replica.broker for it in known if it.authorities != id)

    def alive(self, now: int) -> list[Broker]:
        return [b for b in self._brokers.values() if b.liveness(now) is Liveness.ALIVE]

    def views(self, work: Mapping[str, int], traffic: Mapping[str, float], now: int) -> dict[str, BrokerView]:
        """The brokers as core sees them, by incarnation.

        ``work``: see :func:`assigned_work`. ``traffic``: the load of each in multiples of a segment's target load.
        """
        return {
            incarnation: BrokerView(
                replica=broker.replica,
                liveness=broker.liveness(now),
                draining=broker.draining,
                node=broker.node,
                zone=broker.zone,
                load=traffic.get(incarnation, 0.0),
                segments=work.get(incarnation, 0),
            )
            for incarnation, broker in self._brokers.items()
        }


def _without_journal(replica: Replica) -> str:
    return f"a newer incarnation of {replica.broker} reports without its journal"


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
