"""What a hosted segment writes to its journal, and what happens to it when the disk fails.

The journal's lock is taken around the segment's; see docs/threads.md.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from smq_broker.rows.batches import MAX_MESSAGE_BYTES
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import move, payload_spans
from smq_broker.rows.replication_messages import encode_message
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.replica.log_entries import ReplicationMessage
from smq_storage.process.locks import requires_lock


def create_journal(hosted: HostedSegment) -> None:
    """Records that this process hosts the segment, before the leader learns that it is open."""
    if hosted.journal is not None:
        _guard(hosted, hosted.journal.create)


@requires_lock("lock")
def is_journal_behind(hosted: HostedSegment) -> bool:
    """Whether there are entries that are not in the journal yet."""
    return hosted.machine.durable_end < hosted.machine.end


def write_message(
    hosted: HostedSegment, message: ReplicationMessage, header: bytes, rows: pa.RecordBatch | bytes
) -> None:
    """Writes a message that was sent or received. The journal gets the same bytes, unless it has some of them.

    ``rows`` as in :meth:`SegmentJournal.append`.
    """
    journal = hosted.journal
    if journal is None or journal.ended:
        return
    with journal.lock:
        if message.base_offset == hosted.machine.journal_end:
            _append(hosted, message, header, rows)
            return
    write_missing(hosted)


def write_missing(hosted: HostedSegment) -> None:
    """Writes all entries that are not in the journal, such as those that were sent before a stream broke."""
    journal = hosted.journal
    if journal is None or journal.ended:
        return
    with journal.lock:
        while not journal.ended:
            with hosted.lock:
                message = hosted.machine.unjournaled(MAX_MESSAGE_BYTES)
            if message is None:
                return
            header, rows = encode_message(message, hosted.wire.empty)
            _append(hosted, message, header, b"" if rows is None else rows)


def trim_journal(hosted: HostedSegment) -> None:
    """Deletes what the chunk chain has."""
    journal, chain_end = hosted.journal, hosted.machine.chain_end
    if journal is not None and chain_end > journal.trimmed_to:
        _guard(hosted, lambda: journal.trim(chain_end))


def remove_journal(hosted: HostedSegment) -> None:
    """Deletes the journal of a sealed segment."""
    if hosted.journal is None:
        return
    try:
        hosted.journal.remove()
    except OSError as error:
        # The next process finds that the segment is sealed.
        hosted.log.warning("journal.remove_failed", folder=str(hosted.journal.folder), error=str(error))


def _append(hosted: HostedSegment, message: ReplicationMessage, header: bytes, rows: pa.RecordBatch | bytes) -> None:
    assert hosted.journal is not None
    journal, first, end = hosted.journal, message.entries[0].first, message.entries[-1].end
    written: list[pa.Buffer | None] = []
    if not _guard(hosted, lambda: written.append(journal.append(first, end, header, rows))):
        return
    if written[0] is None:
        hosted.journal_written(end)
        return
    # From now on the file has the only copy, and the memory that received the rows is free for others.
    batch = pa.ipc.read_record_batch(written[0], hosted.wire.message)
    move(payload_spans(message.entries), ArrowBlock(batch))
    hosted.journal_written(end, message.entries)


def _guard(hosted: HostedSegment, write: Callable[[], None]) -> bool:
    """Calls ``write``. If that fails, the segment continues without a journal, as the other replicas have its tail."""
    journal = hosted.journal
    assert journal is not None
    try:
        write()
        return True
    except (OSError, pa.ArrowException) as error:
        if journal.ended:
            return False
        problem = str(error)
    hosted.log.error(
        "journal.failed",
        folder=str(journal.folder),
        error=problem,
        advice="this segment goes on without a journal: its tail is safe only as long as one of its replicas runs",
    )
    hosted.journal_problem = problem
    try:
        journal.give_up()
    except OSError as error:
        # A later process would take the journal for complete, so nothing more may be acked here.
        hosted.log.error("journal.not_marked", folder=str(journal.folder), error=str(error))
        with hosted as machine:
            machine.fence()
        return False
    with hosted as machine:
        machine.journal_failed()
    return False
