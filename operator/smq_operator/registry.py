"""What the leader knows of brokers: one entry per incarnation, fed by reports, proofs and direct questions.

Only in memory. An incarnation is ALIVE while it reports, SUSPECT when it falls silent or a peer's complaint was
confirmed by asking it directly, and GONE by proof alone: the world has one, or a newer incarnation of the same broker
registered. GONE is for ever.

Who was SUSPECT and then speaks again was only slow: next time it is waited for longer. Otherwise a cluster that has too
little CPU would fail over again and again, which costs the CPU that it lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_core.model import Layout, Replica
from smq_core.placement import BrokerView
from smq_core.sealing import Liveness
from smq_operator.world import World
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb

TAKING = ("waiting", "open")
"""States of a segment at a broker that takes messages of it, or will."""

SILENT_AFTER = 2_500_000
REPORTS_UNDER_WAY = 2_500_000
"""A report that is heard so long after a layout was seen was sent after that layout was made."""
KEPT_FOR = 600_000_000
LONGEST_PATIENCE = 20_000_000
CALM_AFTER = 60_000_000
"""Without another false alarm for so long, the patience with a broker halves again."""


@dataclass(slots=True)
class Broker:
    """One incarnation. Times are microseconds of the leader's clock."""

    replica: Replica
    node: str = ""
    zone: str = ""
    heard_at: int = 0
    status: pb.BrokerStatus = field(default_factory=pb.BrokerStatus)
    draining: bool = False
    patience: int = SILENT_AFTER
    """So long it may be silent."""
    calmed_at: int = 0
    doubted: bool = False
    """It was asked directly and did not answer; reports alone do not clear it, an answer does."""
    gone: str | None = None
    """The proof, in words."""
    _told: tuple[pb.BrokerStatus, frozenset[tuple[str, str]]] | None = None

    def holds(self, uid: str, segment: str) -> bool:
        """Whether its last report said that it holds this segment of the topic with that uid, and takes messages."""
        if self._told is None or self._told[0] is not self.status:
            taking = ((s.uid, s.segment) for s in self.status.segments if s.state in TAKING)
            self._told = self.status, frozenset(taking)
        return (uid, segment) in self._told[1]

    def liveness(self, now: int) -> Liveness:
        if self.gone is not None:
            return Liveness.GONE
        if self.doubted or now - self.heard_at > self.patience:
            return Liveness.SUSPECT
        return Liveness.ALIVE

    def lives(self, now: int) -> None:
        """It said something: whoever was SUSPECT until now was so in vain."""
        if self.liveness(now) is Liveness.SUSPECT:
            self.patience, self.calmed_at = min(2 * self.patience, LONGEST_PATIENCE), now
        elif self.patience > SILENT_AFTER and now - self.calmed_at >= CALM_AFTER:
            self.patience, self.calmed_at = max(self.patience // 2, SILENT_AFTER), now


class Registry:
    """See the module's docstring."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._brokers: dict[str, Broker] = {}
        self._familiar: dict[str, Layout] = {}
        """By uid: layouts that name nobody who is not among the brokers."""
        self._strangers: dict[str, int] = {}
        """Incarnations that only layouts name, and when that was first seen."""

    # ---- news

    def report(self, report: lpb.BrokerReport, now: int) -> Broker:
        """Takes a report; the first one of an incarnation registers it, and older ones of that broker are gone.

        Raises WrongIncarnation for one that is known to be gone, InvalidRequest for a report that lacks its name.
        """
        if not (report.broker and report.incarnation and report.address):
            raise InvalidRequest("a report needs the broker's name, incarnation and address")
        known = self._brokers.get(report.incarnation)
        broker = known or self._register(report)
        if broker.gone is not None:
            raise WrongIncarnation(
                f"incarnation {report.incarnation} of broker {report.broker} was given up ({broker.gone}): "
                "stop this process; a new one may take the name"
            )
        if known is not None and not broker.doubted:
            broker.lives(now)
        broker.heard_at = now
        broker.status = report.status
        broker.node, broker.zone = report.node, report.zone
        broker.draining = broker.draining or report.leaving or report.status.draining
        return broker

    def _register(self, report: lpb.BrokerReport) -> Broker:
        replica = Replica(report.broker, report.incarnation, report.address)
        broker = self._brokers[report.incarnation] = Broker(replica)
        if self._world.claims(report.broker, report.incarnation) is False:
            broker.gone = "another process runs under its name"
            return broker
        for older in self.named(report.broker):
            if older is not broker and older.gone is None:
                older.gone = f"a newer incarnation of {report.broker} registered"
        return broker

    def check_proofs(self, layouts: Iterable[Layout], now: int) -> list[Broker]:
        """Asks the world about everyone who is not known to be gone; returns those who are, since this call.

        Incarnations that only a layout names are remembered too when there is a proof.
        """
        before, self._familiar = self._familiar, {}
        for layout in layouts:
            unknown: list[Replica] = []
            if before.get(layout.uid) is not layout:
                unknown = [r for s in layout.segments for r in s.replicas if r.incarnation not in self._brokers]
            for replica in unknown:
                self._check_unknown(replica, now)
            if not unknown:
                self._familiar[layout.uid] = layout
        found = []
        for broker in self._brokers.values():
            if broker.gone is None:
                broker.gone = self._world.proof_of_death(broker.replica.incarnation)
                if broker.gone is not None:
                    found.append(broker)
        return found

    def _check_unknown(self, replica: Replica, now: int) -> None:
        proof = self._world.proof_of_death(replica.incarnation)
        if proof is not None:
            self._brokers[replica.incarnation] = Broker(replica, gone=proof)
        elif self.outlived(replica, now):
            newer = f"a newer incarnation of {replica.broker} registered"
            self._brokers[replica.incarnation] = Broker(replica, gone=newer)

    def outlived(self, replica: Replica, now: int) -> bool:
        """True when a layout names this one, who never reported, and another incarnation of its broker has reported
        since: then this one is the older, and gone. Until then it may be a newer one, which another leader knows."""
        seen_at = self._strangers.setdefault(replica.incarnation, now)
        others = self.named(replica.broker)
        return any(other.gone is None and other.heard_at - seen_at >= REPORTS_UNDER_WAY for other in others)

    def slept(self, microseconds: int) -> None:
        """This process stood still for so long: that nobody was heard meanwhile says nothing about the brokers."""
        for broker in self._brokers.values():
            broker.heard_at += microseconds
        for incarnation in self._strangers:
            self._strangers[incarnation] += microseconds

    def forget(self, named: Collection[str], now: int) -> list[str]:
        """Drops gone incarnations that no layout names; returns them."""
        done = [
            incarnation
            for incarnation, broker in self._brokers.items()
            if broker.gone is not None and incarnation not in named and now - broker.heard_at > KEPT_FOR
        ]
        for incarnation in done:
            del self._brokers[incarnation]
        self._strangers = {n: at for n, at in self._strangers.items() if n not in self._brokers and now - at < KEPT_FOR}
        if done:
            self._familiar.clear()
        return done

    # ---- questions

    def get(self, incarnation: str) -> Broker | None:
        return self._brokers.get(incarnation)

    def holds(self, incarnation: str, uid: str, segment: str) -> bool:
        """See :meth:`Broker.holds`."""
        broker = self._brokers.get(incarnation)
        return broker is not None and broker.holds(uid, segment)

    def named(self, name: str) -> list[Broker]:
        return [b for b in self._brokers.values() if b.replica.broker == name]

    def all(self) -> list[Broker]:
        return sorted(self._brokers.values(), key=lambda b: (b.replica.broker, b.heard_at))

    def states(self, now: int) -> dict[str, tuple[Liveness, bool]]:
        """Liveness and draining of everyone; when it is the same as before, nothing is to be decided anew."""
        return {name: (broker.liveness(now), broker.draining) for name, broker in self._brokers.items()}

    def well(self, now: int) -> set[str]:
        """The incarnations about which there is nothing to say: they are alive, and stay."""
        states = self.states(now)
        return {name for name, state in states.items() if state == (Liveness.ALIVE, False)}

    def living(self, now: int) -> list[Broker]:
        return [b for b in self._brokers.values() if b.liveness(now) is Liveness.ALIVE]

    def views(self, work: Mapping[str, int], traffic: Mapping[str, float], now: int) -> dict[str, BrokerView]:
        """The brokers as core sees them, by incarnation. ``work``: see :func:`work_of`; ``traffic``: what each carries,
        in targets."""
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


def work_of(layouts: Iterable[Layout]) -> Counter[str]:
    """How much each incarnation has to do: 2 for each segment as primary, 1 as follower (as the placer counts)."""
    held: Counter[str] = Counter()
    for layout in layouts:
        for segment in layout.segments:
            if segment.successors:
                continue
            for rank, replica in enumerate(segment.replicas):
                held[replica.incarnation] += 2 if rank == 0 else 1
    return held
