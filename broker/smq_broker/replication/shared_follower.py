"""A follower's end of a shared stream: small messages of all segments that one broker leads and this one follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import structlog

from smq_broker.replication.follower import FollowedSegment
from smq_broker.rows.ipc_messages import read_rows
from smq_broker.segments.journaling import trim_journal
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import InvalidRequest, SmqError
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb

# How often idle segments are checked: busy ones get the credit that they do not need, and the primary learns which
# were fenced here.
CHECK_SECONDS = 1.0

log = structlog.get_logger(__name__)


class SharedFollower:
    """Serves one stream. One thread reads messages, appends and replies."""

    def __init__(self, registry: SegmentRegistry, hello: pb.PutOpen, reader: Any, writer: Any) -> None:
        self._registry = registry
        self._incarnation = hello.incarnation
        self._primary_incarnation = hello.shared_replica.primary_incarnation
        self._reader = reader
        self._writer = writer
        self._followed: dict[int, FollowedSegment] = {}
        self._check_due_at = 0.0

    def serve(self) -> None:
        """Returns when the primary ends the stream. Raises InvalidRequest, which was sent to the primary."""
        try:
            if self._reader.schema.names:  # before any batch is read, which Arrow would decompress to any size
                raise InvalidRequest("a shared stream of a replica has no columns: send the rows in its messages")
            self._writer.write(pb.SharedReplicationReply().SerializeToString())
            while True:
                try:
                    chunk = self._reader.read_chunk()
                except StopIteration:
                    return
                self._receive(parse(pb.SharedReplicationBatch, chunk.app_metadata or b""))
        except SmqError as error:
            with suppress(OSError, pa.ArrowException):  # the primary may be gone already
                self._writer.write(pb.SharedReplicationReply(error=error_to_pb(error)).SerializeToString())
            raise
        except OSError as error:
            log.info("primary.disconnected", primary=self._primary_incarnation, error=str(error))
        finally:
            for followed in self._followed.values():
                followed.close()

    def _receive(self, message: pb.SharedReplicationBatch) -> None:
        reply = pb.SharedReplicationReply()
        grown: list[FollowedSegment] = []
        for part in message.parts:
            self._reply(reply, part.link, partial(self._handle, part, grown))
        if time.monotonic() >= self._check_due_at:
            self._check_due_at = time.monotonic() + CHECK_SECONDS
            for link, followed in list(self._followed.items()):
                self._reply(reply, link, followed.periodic_reply)
        self._writer.write(reply.SerializeToString())
        for followed in grown:
            trim_journal(followed.hosted)  # after the reply, which the primary waits for

    def _reply(
        self, reply: pb.SharedReplicationReply, link: int, handle: Callable[[], pb.ReplicationReply | None]
    ) -> None:
        """Adds what ``handle`` returns, if anything, or its error, which ends the link."""
        try:
            answer = handle()
        except Exception as error:
            if not isinstance(error, SmqError):
                log.exception("replication.failed", primary=self._primary_incarnation)
                error = SmqError(f"the follower failed: {type(error).__name__}: {error}")
            self._close(link)
            answer = pb.ReplicationReply(end=0, error=error_to_pb(error))
        if answer is not None:
            reply.parts.add(link=link, reply=answer)

    def _handle(self, part: pb.SharedReplicationBatch.Part, grown: list[FollowedSegment]) -> pb.ReplicationReply | None:
        """The answer to one part, if it needs one."""
        if part.HasField("open"):
            return self._open(part.link, part.open)
        if part.close:
            self._close(part.link)
            return None
        followed = self._followed.get(part.link)
        if followed is None:
            return None  # the link has failed, and the primary does not know it yet
        rows, encoded = None, part.rows
        if encoded:
            rows = read_rows(encoded, followed.hosted.wire.message)
        grown.append(followed)
        return followed.replicate(part.header, rows, same_schema=True, encoded=encoded)

    def _open(self, link: int, request: pb.SharedReplicationBatch.Open) -> pb.ReplicationReply:
        """Raises NotHosted if the leader's request to open the segment has not come yet, and WrongIncarnation."""
        if link in self._followed:
            raise InvalidRequest(f"link {link} is open already: give each link a number of its own")
        hosted = self._registry.find(request.segment, request.uid, self._incarnation, wait_seconds=0.0)
        followed = self._followed[link] = FollowedSegment(hosted, self._primary_incarnation)
        return followed.opened_reply()

    def _close(self, link: int) -> None:
        followed = self._followed.pop(link, None)
        if followed is not None:
            followed.close()
