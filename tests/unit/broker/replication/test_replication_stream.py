"""What a stream to a follower counts, in two threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from smq_broker.replication import stream
from smq_broker.replication.stream import ReplicationStream


class RepliedStream(ReplicationStream):
    """The reply to the message before comes while a message is being counted."""

    _hello = _schema = _send_loop = _handle = _is_wanted = _wake_sender = lambda self, *_: None  # type: ignore[assignment]
    reply: threading.Thread | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_sent" and value == 6:
            self.reply = threading.Thread(target=self._count_answer)
            self.reply.start()
            self.reply.join(0.1)  # it ends within this time, or it waits for the end of the count
        super().__setattr__(name, value)


def test_a_reply_while_a_message_is_counted_does_not_hide_that_it_is_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "UNRESPONSIVE_AFTER_SECONDS", 0.0)
    nobody: Any = None
    made = RepliedStream(nobody, "follower", nobody, nobody)
    made._sent, made._answered, made._unanswered_since = 5, 4, time.monotonic()
    with made._writing:
        made._count_sent()
    assert made.reply is not None
    made.reply.join()
    assert (made._sent, made._answered) == (6, 5)
    assert made.unresponsive(), "the sixth message has no reply"
