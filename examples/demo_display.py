"""The output of the demo: a live picture in a terminal, and plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import smq
from examples.demo_timeline import Timeline, accepting, alive
from smq.cli.output import formatting
from smq.cli.output.dashboard import ClusterSnapshot, SegmentRates, render, take_snapshot

POLL_SECONDS = 0.5
LINE_EVERY = 2.0
LONGEST_WAIT = 300.0


class DemoDisplay:
    """Polls the leader twice a second while the demo waits in ``until``."""

    def __init__(self, admin: smq.Admin, console: Console) -> None:
        self._admin = admin
        self._console = console
        self._progress: list[tuple[str, Callable[[], int], Callable[[], int]]] = []
        self._timeline = Timeline()
        self._shown = datetime.fromtimestamp(0, UTC)
        self._rates = SegmentRates()
        self._began = time.monotonic()
        self._said: list[Text] = []
        self._line_at = 0.0
        self._snapshot = ClusterSnapshot(at=0.0, topics=(), brokers=(), decisions=())
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> DemoDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            for line in self._said:
                self._console.print(line)
        self._console.print(self._timeline.render(min(self._console.width, 110)), soft_wrap=True)
        most = self._timeline
        self._console.print(f"at most {most.most_segments} segments, {most.most_brokers} brokers")

    def say(self, text: str) -> None:
        """Shows a line of text with the time."""
        line = Text.assemble((f"{time.monotonic() - self._began:5.1f} s  ", "dim"), text)
        self._said.append(line)
        if self._live is None:
            self._console.print(line)

    def progress(self, name: str, count: Callable[[], int], total: Callable[[], int]) -> None:
        """Shows a count and its total from now on."""
        self._progress.append((name, count, total))

    def wait(self, what: str, condition: Callable[[], bool], within: float = LONGEST_WAIT) -> None:
        """Updates the display until the condition holds. Raises smq.Unavailable after ``within`` seconds."""
        if not self.until(condition, within):
            raise smq.Unavailable(f"waited {within:.0f} s for {what}; the logs were in the demo's folder")

    def during(self, seconds: float, check: Callable[[], object]) -> None:
        """Updates the display for this time. ``check`` may raise."""
        self.until(lambda: not check(), seconds)

    def until(self, condition: Callable[[], bool], within: float = LONGEST_WAIT) -> bool:
        """Updates the display until the condition holds. Returns False after ``within`` seconds."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with contextlib.suppress(smq.Unavailable):  # the leader may be busy
                if condition():
                    return True
            self._poll()
            time.sleep(0.05)
        return False

    def _poll(self) -> None:
        now = time.monotonic()
        if now - self._snapshot.at >= POLL_SECONDS:
            try:
                self._snapshot = take_snapshot(self._admin, now)
                self._rates.update(self._snapshot)
            except smq.Unavailable:
                return
            for topic in self._snapshot.topics:
                self._timeline.note(now, topic, self._snapshot.brokers)
            if self._live is not None:
                self._live.update(self._frame(), refresh=True)
            else:
                self._print_decisions()
        if self._live is None and self._progress and now - self._line_at >= LINE_EVERY:
            self._line_at = now
            done = ", ".join(f"{name} {count():,}" for name, count, _ in self._progress)
            segments = sum(accepting(t) for t in self._snapshot.topics)
            brokers = alive(self._snapshot.brokers)
            there = f"{formatting.plural(segments, 'segment')}, {formatting.plural(brokers, 'broker')}"
            self.say(f"{done}; {formatting.rate(*self._rates.total())}; {there}")

    def _print_decisions(self) -> None:
        """Prints the decisions as lines if there is no live picture, which shows them itself."""
        new = [d for d in self._snapshot.decisions if d.at > self._shown]
        for d in new:
            what = f"{d.segments[0]}{', …' if len(d.segments) > 1 else ''}: " if d.segments else ""
            self.say(f"  {d.action}  {what}{d.reason}")
        self._shown = max([self._shown, *(d.at for d in new)])  # several decisions may have one time

    def _frame(self) -> Group:
        bars = Table.grid(padding=(0, 2, 0, 0))
        for name, count, total in self._progress:
            bars.add_row(name, ProgressBar(max(total(), 1), min(count(), total()), width=50), f"{count():,}")
        width = min(self._console.width - 4, 110)
        story = Group(*self._said[-6:])
        panel = Panel(Group(story, Text(), bars), title="demo")
        return Group(panel, self._timeline.render(width), Text(), render(self._snapshot, self._rates, width=width))
