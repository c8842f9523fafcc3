"""What all consumers of a client share, so that neither streams nor waking threads grow with their number."""

from __future__ import annotations

from smq.consuming.consumer_monitor import MonitorThread
from smq.consuming.fetching.shared_tails import SharedTails


class ConsumerRuntime:
    """Its thread ends when the last consumer is closed."""

    def __init__(self) -> None:
        self.shared_tails = SharedTails()
        self.monitor_thread = MonitorThread()
