"""Writes a consumer's batches to a sink, and commits for a group what the sink has completely."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from smq.cli.connection.session import defer_signals, print_note
from smq.cli.files.sinks import Offsets, Sink
from smq.cli.output import formatting
from smq.topics_consumer import TopicsConsumer
from smq_core.errors import SmqError
from smq_storage.json_lines.fields import TOPIC_FIELD

if TYPE_CHECKING:
    from smq import Batch, Consumer


class MessageWriter:
    """``commits``: for a group. ``partition``: only messages of that slot of the ring are written.

    ``names_topic``: each row says its topic. Of several topics, each write has to be flushed.
    """

    def __init__(self, sink: Sink, *, commits: bool, partition: int | None = None, names_topic: bool = False) -> None:
        self._sink = sink
        self._commits = commits
        self._partition = partition
        self._names_topic = names_topic
        self._positions: dict[str, int] = {}
        """Written, and not committed; of several topics, those of ``_topic``."""
        self._topic = ""
        """The topic of the last batch."""
        self._writes = False
        self.count = 0
        """The number of messages that were written."""

    def write_all(
        self,
        consumer: Consumer | TopicsConsumer,
        max_messages: int | None,
        poll: Callable[[Consumer | TopicsConsumer], Batch | None],
    ) -> None:
        """Writes until ``poll`` returns None or the most messages are written, and closes the sink.

        What was written is committed however it ends (Ctrl-C, messages that are gone), because the closed file has it.
        """
        try:
            while max_messages is None or self.count < max_messages:
                batch = poll(consumer)
                if batch is None:
                    break
                self._write(batch, None if max_messages is None else max_messages - self.count)
                if self._sink.flushed:
                    self._commit(consumer)
        except BaseException:
            self._sink.close()
            if not self._writes:
                self._commit_if_possible(consumer)
            elif self._commits:  # nobody knows what of it is there
                print_note("the output may have messages that are not committed, so the group gets them again")
            raise
        self._sink.close()
        self._commit(consumer)

    def segment_ended(self, consumer: Consumer | TopicsConsumer, segment: str, end: int) -> None:
        """The group reads what follows the segment only when its end is committed."""
        self._positions[segment] = end
        self.complete(consumer)

    def complete(self, consumer: Consumer | TopicsConsumer) -> None:
        """Completes what was written, so that it can be committed before the end."""
        self._sink.complete()
        self._commit(consumer)

    def _write(self, batch: Batch, left: int | None) -> None:
        rows, offsets, next_offset = _chosen(batch, left, self._partition)
        # What a file has must be known, so that it is committed. A pipe may block, and can then be interrupted.
        with defer_signals() if self._commits and not self._sink.flushed else contextlib.nullcontext():
            self._writes = True
            self._topic = batch.topic
            if rows.num_rows and self._names_topic:
                names = pa.repeat(formatting.topic(batch.topic), rows.num_rows)
                rows = rows.add_column(0, TOPIC_FIELD, names)
            if rows.num_rows:
                self._sink.write(rows, batch.segment, offsets)
            self._writes = False
            self.count += rows.num_rows
            self._positions |= dict(batch.positions) | {batch.segment: next_offset}

    def _commit(self, consumer: Consumer | TopicsConsumer) -> None:
        if self._commits and self._positions:
            reader = consumer[self._topic] if isinstance(consumer, TopicsConsumer) else consumer
            reader.commit(self._positions)
            self._positions = {}

    def _commit_if_possible(self, consumer: Consumer | TopicsConsumer) -> None:
        """For an output that ends with another error, which is to be seen."""
        try:
            self._commit(consumer)
        except SmqError as error:
            print_note(f"what was written last could not be committed, so the group gets it again: {error.message}")


def _chosen(batch: Batch, left: int | None, partition: int | None) -> tuple[pa.Table, Offsets, int]:
    """The rows to write, at most ``left``, their offsets, and the offset up to which the batch is done then."""
    if partition is None:
        rows = batch.table.slice(0, left)
        return rows, batch.first_offset, batch.first_offset + rows.num_rows
    found = pc.indices_nonzero(pc.equal(batch.table["partition"], partition)).cast(pa.int64())
    chosen = found.slice(0, left)
    done = batch.first_offset + chosen[-1].as_py() + 1 if len(chosen) < len(found) else batch.next_offset
    return batch.table.take(chosen), pc.add(chosen, batch.first_offset), done
