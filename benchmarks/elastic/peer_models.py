"""Small models of other systems' published scaling policies: Pravega's streams and Pulsar's bundles.

Both models get the offered load itself (their brokers have no limits here), and their changes take effect at once,
which favours them. The target per segment or bundle is the same for all systems; all else has its default.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from benchmarks.elastic.record import Event, Record, Sample
from benchmarks.elastic.shapes import Rates, Shape
from smq_core.model.keyspace import KeyRange

# The steps of the ring on which ranges are drawn: peers cut anywhere, not between partitions.
RING = 65_536
ROUNDING = 1e-9


@dataclass(slots=True)
class _Stream:
    """A Pravega segment: a range of the key space as shares of it, and its decaying rates."""

    start: float
    stop: float
    born: int
    rates: list[float] = field(default_factory=lambda: [0.0] * 4)
    count: float = 0.0
    reported: int = 0
    scale_up_requested_at: int = 0
    scale_down_requested_at: int = 0
    cold_until: int = 0

    @property
    def name(self) -> str:
        return f"{self.start:.6f}-{self.stop:.6f}-{self.born}"


class Pravega:
    """Stream auto-scaling by event rate.

    Rates: exponentially weighted over 2, 5, 10 and 20 minutes, in ticks of 5 seconds, beginning with the first rate
    (``SegmentAggregates.java``). Each segment reports them every 2 minutes (``SegmentStatsRecorderImpl.java``). Nothing
    is asked for in a segment's first 10 minutes (``autoScale.cooldown.time.seconds``), nor the same thing again within
    10 minutes (``autoScale.mute.time.seconds``; ``AutoScalerConfig.java``). A split is asked for when the 2-minute rate
    exceeds 5 times the target, the 5-minute rate twice, or the 10-minute rate once. It makes rate / target parts, at
    least 2 (``AutoScaleProcessor.java``), at most the policy's ``scaleFactor``, all equally wide
    (``AutoScaleTask.java``). A segment is cold for 10 minutes when all rates are below the target and the 20-minute
    rate is below half of it. It is merged with those of its two neighbours that are cold too. The same rules in words:
    the Javadoc of ``io.pravega.client.stream.ScalingPolicy.byEventRate``. All files: github.com/pravega/pravega.
    """

    TICK = 5
    REPORT = 120
    WAIT = 600
    WINDOWS = (120, 300, 600, 1_200)

    def __init__(self, target: float, factor: int, minimum: int = 1) -> None:
        self.target, self.factor, self.minimum = target, factor, minimum
        self.segments = [_Stream(0.0, 1.0, 0)]

    def second(self, now: int, load: Rates) -> list[Event]:
        """One second at this load; what changed."""
        total = np.concatenate(([0.0], np.cumsum(load)))
        requested: list[tuple[str, _Stream, int]] = []
        for segment in self.segments:
            segment.count += _between(total, segment.start, segment.stop)
            if (now - segment.born) % self.TICK == 0:
                self._tick(segment)
            if now - segment.reported > self.REPORT:
                segment.reported = now
                requested += self._scaling_requests(segment, now)
        return [event for what, segment, parts in requested for event in self._carry_out(what, segment, parts, now)]

    def _tick(self, segment: _Stream) -> None:
        rate = segment.count / self.TICK
        segment.count = 0.0
        for i, window in enumerate(self.WINDOWS):
            alpha = 1 - math.exp(-self.TICK / window)
            before = segment.rates[i]
            segment.rates[i] = rate if before == 0.0 else before + alpha * (rate - before)

    def _scaling_requests(self, segment: _Stream, now: int) -> list[tuple[str, _Stream, int]]:
        age, target = now - segment.born, self.target
        two, five, ten, twenty = segment.rates
        found = []
        if age <= self.WAIT:
            return []
        if two > 5 * target or five > 2 * target or (ten > target and age > 600):
            parts = max(2, int(max(two, five, ten) / target))
            if now - segment.scale_up_requested_at > self.WAIT:
                segment.scale_up_requested_at = segment.scale_down_requested_at = now
                found.append(("split", segment, min(parts, max(2, self.factor))))
        if (
            max(two, five, ten) < target
            and twenty < target / 2
            and age > 1_200
            and now - segment.scale_down_requested_at > self.WAIT
        ):
            segment.scale_down_requested_at = now
            found.append(("merge", segment, 0))
        return found

    def _carry_out(self, what: str, segment: _Stream, parts: int, now: int) -> list[Event]:
        if segment not in self.segments:
            return []
        if what == "split":
            width = (segment.stop - segment.start) / parts
            edges = [segment.start + i * width for i in range(parts)] + [segment.stop]
            made = [
                _Stream(a, b, now, reported=now, scale_up_requested_at=now, scale_down_requested_at=now)
                for a, b in pairwise(edges)
            ]
            self._replace([segment], made)
            return [_event(now, "split", segment.start, segment.stop, parts)]
        segment.cold_until = now + self.WAIT
        surplus = len(self.segments) - self.minimum
        near = [s for s in self.segments if s is segment or s.stop == segment.start or s.start == segment.stop]
        cold = [s for s in near if s.cold_until > now]
        if surplus == 1:
            cold = cold[:2]
        if surplus < 1 or len(cold) < 2:
            return []
        made = [
            _Stream(
                cold[0].start, cold[-1].stop, now, reported=now, scale_up_requested_at=now, scale_down_requested_at=now
            )
        ]
        self._replace(cold, made)
        return [_event(now, "merge", made[0].start, made[0].stop, len(cold))]

    def _replace(self, olds: list[_Stream], made: list[_Stream]) -> None:
        self.segments = sorted([s for s in self.segments if s not in olds] + made, key=lambda s: s.start)

    def ranges(self, load: Rates) -> list[tuple[str, float, float, float, bool]]:
        """Each segment: name, start, stop, its load, and whether more than one key range is in it."""
        total = np.concatenate(([0.0], np.cumsum(load)))
        least = (1 + ROUNDING) / len(load)
        return [
            (s.name, s.start, s.stop, _between(total, s.start, s.stop), s.stop - s.start > least) for s in self.segments
        ]


class Pulsar:
    """Bundle splitting of the extensible load manager (since 3.0), for a topic of as many partitions as the shape has.

    A partition is a separate topic, whose name's CRC-32 falls into a bundle of the namespace's ring; 4 bundles at
    first (``defaultNumberOfNamespaceBundles``). Rates are refreshed every minute (``statsUpdateFrequencyInSecs=60``),
    and bundles are looked at every minute (``loadBalancerSplitIntervalMinutes=1``). A bundle of 2 or more topics whose
    message rate, in and out, was above ``loadBalancerNamespaceBundleMaxMsgRate`` in more than 3 looks in a row
    (``loadBalancerNamespaceBundleSplitConditionHitCountThreshold=3``) is split in the middle
    (``defaultNamespaceBundleSplitAlgorithm=range_equally_divide``). At most 10 are split a minute
    (``loadBalancerMaxNumberOfBundlesToSplitPerCycle``), until there are 128 (``loadBalancerNamespaceMaximumBundles``).
    With one reader the limit is set to twice the target. Bundles are never merged. (``conf/broker.conf``,
    ``DefaultNamespaceBundleSplitStrategyImpl.java``, github.com/apache/pulsar; pulsar.apache.org/docs, "Load balance
    across brokers".) The older, still default manager decides by an average over up to 1,000 samples: later than this.

    Bundles move between brokers (``TransferShedder.java``) when the deviation of the brokers' loads (with 0.9 of the
    history) is above 0.25 in more than 3 looks in a row. Up to 3 times half the difference between the fullest and the
    emptiest broker is moved, then 3 minutes nothing (``loadBalanceSheddingDelayInSeconds=180``).
    """

    LOOK = 60
    HITS = 3
    PER_LOOK = 10
    MOST = 128
    FIRST = 4
    SPREAD = 0.25
    AGAIN = 180

    def __init__(self, target: float, partitions: int, brokers: int, broker_rate: float) -> None:
        self.target, self.broker_rate = target, broker_rate
        names = (f"persistent://public/default/t-partition-{i}" for i in range(partitions))
        self.places = np.array([zlib.crc32(name.encode()) for name in names]) / 2**32
        self.bundles = {(i / self.FIRST, (i + 1) / self.FIRST): i % brokers for i in range(self.FIRST)}
        self.hits: dict[tuple[float, float], int] = {}
        self.usage = np.zeros(brokers)
        self.uneven = 0
        self.moved_at = -self.AGAIN

    def second(self, now: int, load: Rates) -> list[Event]:
        """One second at this load; what changed."""
        if now % self.LOOK:
            return []
        rates = self._rates(load)
        self.hits = {b: self.hits.get(b, 0) + 1 for b, r in rates.items() if r > self.target and self._topics(b) >= 2}
        due = [b for b, hits in self.hits.items() if hits > self.HITS]
        events = []
        for start, stop in due[: min(self.PER_LOOK, self.MOST - len(self.bundles))]:
            middle = (start + stop) / 2
            home = self.bundles.pop((start, stop))
            self.hits.pop((start, stop))
            # Both halves are unloaded; whoever asks for a topic next gets the least loaded broker.
            self.bundles[(start, middle)] = home
            self.bundles[(middle, stop)] = int(self.usage.argmin())
            events.append(_event(now, "split", start, stop, 2))
        return events + self._shed(now, self._rates(load))

    def _topics(self, bundle: tuple[float, float]) -> int:
        return int(((self.places >= bundle[0]) & (self.places < bundle[1])).sum())

    def _rates(self, load: Rates) -> dict[tuple[float, float], float]:
        edges = sorted(self.bundles)
        which = np.searchsorted([e[0] for e in edges], self.places, side="right") - 1
        sums = np.bincount(which, load, minlength=len(edges))
        return dict(zip(edges, sums.tolist(), strict=True))

    def _shed(self, now: int, rates: dict[tuple[float, float], float]) -> list[Event]:
        current = np.zeros(len(self.usage))
        for bundle, home in self.bundles.items():
            current[home] += rates[bundle] / self.broker_rate
        # Broker loads are reported every few seconds: after a minute little of the history is left.
        self.usage = 0.9**12 * self.usage + (1 - 0.9**12) * current
        self.uneven = self.uneven + 1 if self.usage.std() > self.SPREAD else 0
        if self.uneven <= self.HITS or now - self.moved_at < self.AGAIN:
            return []
        events = []
        order = np.argsort(self.usage)
        for emptiest, fullest in list(zip(order, order[::-1], strict=True))[: min(3, len(order) // 2)]:
            offload = (self.usage[fullest] - self.usage[emptiest]) / 2 * self.broker_rate
            here = sorted((b for b, home in self.bundles.items() if home == fullest), key=lambda b: -rates[b])
            moved = 0.0
            for bundle in here[:-1]:
                if moved >= offload:
                    break
                moved += rates[bundle]
                self.bundles[bundle] = int(emptiest)
                events.append(_event(now, "rebalance", *bundle, 1))
        if events:
            self.moved_at, self.uneven = now, 0
        return events

    def ranges(self, load: Rates) -> list[tuple[str, float, float, float, bool]]:
        """Each bundle: name, start, stop, its load, and whether more than one topic is in it."""
        rates = self._rates(load)
        return [(f"{a}-{b}", a, b, rates[(a, b)], self._topics((a, b)) > 1) for a, b in sorted(self.bundles)]


def run(name: str, peer: Pravega | Pulsar, shape: Shape) -> Record:
    """The whole shape, second by second."""
    record = Record(name, RING, shape.target)
    for now in range(1, shape.seconds + 1):
        load = shape.at(now - 1)
        record.events += peer.second(now, load)
        there = peer.ranges(load)
        pressures = [r[3] / shape.target for r in there]
        offered = float(load.sum())
        record.samples.append(
            Sample(
                second=now,
                offered=offered,
                accepted=offered,
                behind=0.0,
                segments=len(there),
                brokers=0,
                overload=sum(max(0.0, p - 1.0) for p in pressures),
                pressures=tuple(pressures),
                wide=tuple(r[4] for r in there),
            )
        )
        record.see(now, [(r[0], _range(r[1], r[2]), p) for r, p in zip(there, pressures, strict=True)])
    return record


def _range(start: float, stop: float) -> KeyRange:
    first = min(RING - 1, round(start * RING))
    return KeyRange(first, max(first + 1, round(stop * RING)))


def _event(now: int, action: str, start: float, stop: float, parts: int) -> Event:
    return Event(now, action, _range(start, stop), parts, "")


def _between(total: Rates, start: float, stop: float) -> float:
    """The load between two shares of the key space; within a partition it is even."""
    at = np.arange(len(total)) / (len(total) - 1)
    return float(np.interp(stop, at, total) - np.interp(start, at, total))
