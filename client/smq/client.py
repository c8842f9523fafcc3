"""The client: it makes producers, consumers and the admin API of a leader, or reads the files alone."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal, Unpack

from smq.admin import Admin
from smq.closing import close_all
from smq.consuming.consumer_options import ConsumerKeywords, ConsumerOptions, TopicsConsumerKeywords
from smq.forks import track
from smq.transport.connect_target import ConnectTarget
from smq.transport.filer_health import FilerHealth
from smq.transport.leader_client import LeaderClient
from smq.transport.topic_views import TopicViews
from smq.transport.upload_modes import UploadMode
from smq_core.access.rights import Right
from smq_core.errors import InvalidRequest
from smq_core.model.names import full_topic_name
from smq_storage.process.locks import make_lock

# Arrow, Flight and the store are imported on first use, because administration needs none of them.
if TYPE_CHECKING:
    from smq.consumer import Consumer
    from smq.consuming.consumer_runtime import ConsumerRuntime
    from smq.data_files import DataFiles
    from smq.delivery import AtomicReceipt, StagedFile
    from smq.producer import Producer
    from smq.producing.atomic_publisher import AtomicPublisher
    from smq.producing.encoding.frames import TableLike
    from smq.producing.producer_runtime import ProducerRuntime
    from smq.producing.uploads.reference_publisher import ReferencePublisher
    from smq.producing.uploads.uploaded_rows import UploadedFile
    from smq.topics_consumer import TopicsConsumer
    from smq.transport.topic_view import TopicView
    from smq_storage.compaction.topic_compaction import CompactedSegment
    from smq_storage.verification.topic_files import TopicFiles


class Client:
    """Made by :func:`smq.connect`. Safe from many threads. As a context manager it closes everything made from it."""

    def __init__(
        self,
        target: ConnectTarget,
        *,
        namespace: str,
        timeout: float,
        uploads: UploadMode = "auto",
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self.namespace = namespace
        self._uploads = uploads
        self._leader = LeaderClient(list(target.leaders), timeout=timeout, dialer=target.dialer, on_wait=on_wait)
        target.dialer.attach(self._leader.auth)
        self._target = target
        self._lock = make_lock()
        self._views: TopicViews[TopicView] = TopicViews(self._open_view)
        self._filer_health = FilerHealth()
        self._made: list[Producer | Consumer | TopicsConsumer] = []
        self._publisher: AtomicPublisher | None = None
        self._runtime: ProducerRuntime | None = None
        self._closed = False
        track(self._leader)
        track(self)

    def __repr__(self) -> str:
        filer = self._target.store.url if self._target.store is not None else ""
        where = str(self._leader) if self._leader.is_configured else f"the files at {filer}"
        return f"<Client of {where}{', closed' if self._closed else ''}>"

    def producer(
        self,
        topic: str,
        *,
        linger: float = 0.005,
        batch_bytes: int = 1 << 20,
        max_in_flight: int = 32 << 20,
        timeout: float = 120.0,
        producer_id: str | None = None,
        epoch: int | None = None,
        max_inline_bytes: int | None = None,
    ) -> Producer:
        """Returns a producer for a topic, ``name`` or ``namespace/name``.

        linger: seconds that a message may wait for others to share a batch, on average half of it. If this client has
            sent nothing for that time, a message does not wait at all. A small batch waits up to 20 ms in all while
            other batches have no outcome yet.
        batch_bytes: a batch is sent when it has this many bytes.
        max_in_flight: bytes that are sent and not yet durable; ``send`` and ``write`` block above this.
        timeout: seconds after which a message's Delivery fails with DeliveryTimeout and a blocked ``send`` raises
            Overloaded.
        producer_id: a name that outlives this process. At most one process writes with it at a time: each start
            takes the next epoch, and the process that had the id before gets ProducerFenced. Without a name, the
            producer gets a random one, and fences nobody. docs/producers.md says what an id promises, and for how long.
        epoch: takes this epoch of ``producer_id`` in place of the next one. Refused if another process has taken it
            or a later one. For programs that count their starts themselves.
        max_inline_bytes: on a topic without a schema, ``send`` uploads the value of a larger message to the filer as a
            separate object (docs/large-data.md). None means as much as a broker takes in one batch, about 16 MiB.

        Raises UnknownTopic, Unavailable, InvalidRequest, ProducerFenced. A secure release also raises PermissionDenied
        and Unauthenticated here, and in ``send`` if it takes the right away later.
        """
        from smq.producer import Producer

        with self._view(topic, Right.PRODUCE) as view:
            made = Producer(
                view,
                linger=linger,
                batch_bytes=batch_bytes,
                max_in_flight=max_in_flight,
                timeout=timeout,
                producer_id=producer_id,
                epoch=epoch,
                max_inline_bytes=max_inline_bytes,
                runtime=self._producer_runtime(),
            )
            self._add(made)
        return made

    def consumer(
        self, topic: str, options: ConsumerOptions | None = None, **keywords: Unpack[ConsumerKeywords]
    ) -> Consumer:
        """Returns a consumer of a topic; with a ``group``, a member that shares the topic's segments with others.

        :meth:`topics_consumer` reads several topics. Pass the options as keywords, or as one
        :class:`smq.ConsumerOptions`; keywords replace what it has.

        group: the group's name; None reads the whole topic alone.
        start: where to start: ``earliest``, ``latest``, a time (messages appended at or after it; naive means UTC), or
            positions ``{segment: next offset}`` as in ``Batch.positions``, which are refused if no reader can have had
            them. For a group it says where a new group begins; a group that exists goes on where it is.
        on_loss: ``fail`` raises DataLost(segment, start, stop) once for each range of offsets that is gone; ``skip``
            skips the range. ``stop`` is a lower bound if ``at_least`` is set. ``certain`` is false if nobody knows
            whether any message is gone.
        schema: which columns a Batch has if the topic's schema changed: ``newest`` gives all messages the newest
            columns that are known when the batch is returned (missing ones are null, numbers are widened, dropped ones
            are left out), ``own`` those with which they were written. If the schema changes while a consumer runs,
            ``newest`` means the new one from the next batch on.
        auto_commit: commit finished batches every second, when a segment ends, and on close. A batch is finished when
            the program polls for the next one. With ``segment_end`` a segment is committed when it has ended and all
            of it is finished, and the program commits the rest. See ``on_segment_end``.
        max_bytes: the approximate size limit of one Batch.
        prefetch_bytes: how much to read ahead, over all segments.
        large_values: when to fetch values that were uploaded, because they were too large for a batch. ``eager``
            fetches them ahead like all messages; one that is gone is a loss, as in ``on_loss``. With ``lazy`` the table
            has null in their place, and ``Batch.value(row)`` fetches one. ``Batch.large_values`` says which rows these
            are.
        max_messages: how many messages one Batch has at most. None: as many as ``max_bytes`` allow.
        segments, partitions: without a group, read only these segments, or only the segments of these partitions (slots
            of the ring), and not what comes before or after them elsewhere.
        on_assigned, on_revoked: for a member of a group, called by ``poll`` with the names of the segments that it
            reads from now on, and of those that go to other members. ``on_revoked`` comes first; it may still commit
            what was read of them, for about five seconds. ``close`` calls it, too. Segments that were read to their
            ends leave without a call.
        on_segment_end: for a member of a group that commits by itself, called by ``poll`` with a segment and its end,
            when every message of the segment was returned and its end is not committed. The group reads what follows
            the segment (after a split, merge, roll, move or change of the schema) only when that is committed.

        Raises UnknownTopic, Unavailable, InvalidRequest. A secure release also raises PermissionDenied and
        Unauthenticated here, and in ``poll`` if it takes the right away later.
        """
        if not isinstance(topic, str):
            raise InvalidRequest(f"consumer() reads one topic, not {topic!r}: topics_consumer() reads several")
        from smq.consumer import Consumer

        chosen = replace(options or ConsumerOptions(), **keywords)
        with self._view(topic, Right.CONSUME) as view:
            made = Consumer(view=view, groups=self._leader.groups, options=chosen, runtime=self._consumer_runtime)
            self._add(made)
        return made

    def topics_consumer(
        self,
        topics: Sequence[str] | re.Pattern[str],
        options: ConsumerOptions | None = None,
        *,
        start: Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[str, int]] = "earliest",
        **keywords: Unpack[TopicsConsumerKeywords],
    ) -> TopicsConsumer:
        """Returns a consumer of several topics, whose batches :attr:`smq.Batch.topic` tells apart.

        topics: names, or a compiled pattern. A name matches as a whole, with its namespace or, in the client's own
            namespace, without. Topics that are made later and match are read, too.
        start: as for :meth:`consumer`; positions are ``{topic: {segment: next offset}}``, by full names. A topic that
            is not among them is read from its beginning.
        options, keywords: those of :meth:`consumer` but for ``segments`` and ``partitions``. Limits are those of each
            topic. The members of a ``group`` may read different topics.

        Raises what :meth:`consumer` raises.
        """
        from smq.consumer import Consumer
        from smq.topics_consumer import TopicPattern, TopicsConsumer, check_topics, start_of

        if isinstance(topics, str):
            raise InvalidRequest(
                f"pass names of topics in a list, such as [{topics!r}], or a pattern, such as re.compile({topics!r})"
            )
        shared = replace(options or ConsumerOptions(), **keywords)
        if shared.segments is not None or shared.partitions is not None:
            raise InvalidRequest("segments and partitions are of one topic: read it by consumer()")

        def open_consumer(topic: str, changed: threading.Condition) -> Consumer:
            own = replace(shared, start=start_of(start, topic))
            with self._view(topic, Right.CONSUME) as view:
                return Consumer(
                    view=view, groups=self._leader.groups, options=own, changed=changed, runtime=self._consumer_runtime
                )

        chosen: Collection[str] | TopicPattern
        if isinstance(topics, re.Pattern):
            chosen = TopicPattern(topics, self.namespace, lambda: [it.name for it in self.admin().topics()])
        else:
            chosen = check_topics([full_topic_name(topic, self.namespace) for topic in topics])
        made = TopicsConsumer(chosen, open_consumer)
        self._add(made)
        return made

    def write_upload(
        self, topic: str, table: TableLike, sink: str | os.PathLike[str] | IO[bytes], key: str | None = None
    ) -> None:
        """Writes rows as a Parquet file that :meth:`smq.Producer.publish_files` publishes as it is.

        The bytes of such a file are copied; any other file is decoded, sorted and encoded again. ``table`` and ``key``
        are as in :meth:`smq.Producer.write`, with at most 1 GiB. ``sink`` is a path or a binary file object. Nothing is
        sent. If the topic's schema changes before the file is published, it is encoded again, too.

        Raises SchemaMismatch, InvalidRequest, UnknownTopic, Unavailable.
        """
        from smq.producing.encoding.batch_encoder import BatchEncoder
        from smq.producing.uploads.finished_files import write_finished_file
        from smq.transport.schema_versions import SchemaVersions

        with self._view(topic) as view:
            snapshot = view.snapshot
        write_finished_file(BatchEncoder(snapshot.topic, SchemaVersions(snapshot).newest), table, sink, key)

    def publish_atomically(
        self,
        topic: str,
        *,
        app: str,
        version: int,
        files: Sequence[str | os.PathLike[str] | IO[bytes]] | None = None,
        table: TableLike | None = None,
        staged: Sequence[StagedFile] | None = None,
        key: str | None = None,
        timeout: float = 120.0,
        owner: str | None = None,
        one_off: bool = False,
    ) -> AtomicReceipt:
        """Publishes all rows of files or of a table, or none of them, and returns when they are in the log.

        A version is published once, whatever crashes and however often it is tried: repeat the call with the same
        version after an error. docs/large-data.md says what exactly is promised.

        app: names the program whose versions are counted, up to 128 characters.
        version: 0 or more, and higher than the app's last one; gaps are allowed. For one that is not higher the receipt
            says ``already_published``, and the rows of this call are dropped. The log has a warning then if this client
            has not published that version itself.
        files, table, key: one of the two, as in :meth:`smq.Producer.publish_files` and :meth:`smq.Producer.write`. They
            are uploaded first, as there.
        staged: what :meth:`stage` returned, in this process or in others, in place of or beside these. With an empty
            list alone an empty version is published.
        timeout: seconds for the whole call.
        owner: a token for all clients that publish for the app together, such as those of one run of a program. None
            means a token of this client. One that was replaced does not come back.
        one_off: the app publishes this version only. It may be forgotten after an hour, so that it does not count
            against the 1,000 apps of a topic.

        The first call of a client for an app takes the app over from the client that had it.

        Raises ProducerFenced if another client has taken the app over since (an earlier attempt may have been
        committed; the message says so); InvalidRequest, SchemaMismatch, ReferenceRejected, Overloaded, UnknownTopic,
        StoreDenied (nothing is published); Unavailable (it may have been committed), DeliveryTimeout (it was committed,
        and the leader completes it).
        """
        if (files is not None and table is not None) or (files is None and table is None and staged is None):
            raise InvalidRequest("pass either files= or table=, or staged=")
        if version < 0:
            raise InvalidRequest(f"a version is 0 or more, not {version}")
        with self._view(topic) as view:
            return self._atomic_publisher().publish(
                view,
                app,
                version,
                _upload(table, files, key),
                timeout,
                staged=staged or (),
                owner=owner,
                one_off=one_off,
            )

    def last_version(self, topic: str, *, app: str, timeout: float = 120.0) -> int | None:
        """The last version that an app has published to a topic by :meth:`publish_atomically`; None if there is none.

        Takes the app over, so that no other client publishes for it meanwhile. Raises ProducerFenced if another client
        has taken the app over since; UnknownTopic, Unavailable.
        """
        with self._view(topic) as view:
            return self._atomic_publisher().last_version(view, app, timeout)

    def stage(
        self,
        topic: str,
        *,
        table: TableLike | None = None,
        files: Sequence[str | os.PathLike[str] | IO[bytes]] | None = None,
        key: str | None = None,
        timeout: float = 120.0,
    ) -> list[StagedFile]:
        """Uploads the rows of a table or of files, and publishes nothing.

        Any process may publish what this returns, with :meth:`publish_atomically`, within a day and a half. What nobody
        publishes is deleted after three days. The arguments are as there. Raises SchemaMismatch, InvalidRequest,
        UnknownTopic, StoreDenied, Unavailable.
        """
        if (files is None) == (table is None):
            raise InvalidRequest("pass either files= or table=")
        with self._view(topic) as view:
            return self._atomic_publisher().stage(view, _upload(table, files, key), timeout)

    def _producer_runtime(self) -> ProducerRuntime:
        from smq.producing.producer_runtime import ProducerRuntime

        with self._lock:
            if self._runtime is None:
                self._runtime = ProducerRuntime(self._target.dialer)
            return self._runtime

    def _atomic_publisher(self) -> AtomicPublisher:
        from smq.producing.atomic_publisher import AtomicPublisher

        with self._lock:
            if self._publisher is None:
                self._publisher = AtomicPublisher(self._leader.publishes)
            return self._publisher

    def topic_files(self, topic: str, *, rows: bool = False) -> TopicFiles:
        """Returns the files of a topic, whose ``problems()`` yields each one that is missing, altered or wrong.

        It needs no broker. With ``rows`` it reads all messages, otherwise the files' footers only.

        Raises UnknownTopic, Unavailable, StoreUnavailable.
        """
        from smq_storage.verification.topic_files import TopicFiles

        with self._view(topic) as view:
            return TopicFiles(view.store.open(), view.name, rows=rows)

    def files(self, topic: str, *, since: datetime | None = None) -> DataFiles:
        """Returns the Parquet files in which each message of a topic is once, for tools that read such files.

        Messages that only brokers hold are in no file yet; ``flush.interval`` says how long that takes. It needs no
        broker.

        since: leaves out files all of whose messages were appended before that time (naive means UTC). The others have
            older messages, too.

        Raises UnknownTopic, Unavailable, DataLost if retention removes a segment meanwhile, CorruptChunk,
        CorruptDocument.
        """
        from smq.data_files import DataFile, DataFiles
        from smq_storage.tables.listed_files import list_files

        with self._view(topic) as view:
            store, uid = view.store.open(), view.snapshot.topic.uid
        at = 0 if since is None else int(since.replace(tzinfo=since.tzinfo or UTC).timestamp() * 1_000_000)
        found = [DataFile.of(listed, store.url) for listed in list_files(store, view.name, uid, at)]
        return DataFiles(view.name, uid, found, view.store.settings)

    def compact(self, topic: str, *, target_bytes: int = 32 << 20) -> Iterator[CompactedSegment]:
        """Merges the small files of sealed segments into files of about ``target_bytes``, sorted by key.

        Works while the topic is read and written, and yields each segment that it has compacted. It needs no broker.
        The files that were merged stay until retention removes their segment. Raises StoreDenied without a key of a
        filer that takes signed requests only, UnknownTopic, Unavailable, CorruptChunk, CorruptDocument.
        """
        from smq_storage.compaction.topic_compaction import check_key, compact_topic, merge_here

        with self._view(topic) as view:
            check_key(view.store.settings, view.name)
            store, spec = view.store.open(), view.snapshot.topic.spec
        key = spec.key if spec.schema else "key"
        return compact_topic(store, view.name, view.snapshot.topic.uid, key, merge_here(store), target_bytes)

    def check_filer(self, topic: str, timeout: float = 2.0) -> None:
        """Reads a small file of the topic, to find out whether the filer answers.

        Raises StoreUnavailable, with the cause, after a few times ``timeout`` seconds at most; UnknownTopic,
        Unavailable.
        """
        from smq_storage.catalog.topics import read_current_topic

        with self._view(topic) as view:
            read_current_topic(replace(view.store.settings, timeout=timeout).open(), view.name)

    def admin(self) -> Admin:
        """Returns the admin API, which works through the leader."""
        return Admin(self._leader, self.namespace, self._view)

    def close(self) -> None:
        """Closes producers (which first deliver their messages), consumers and the connections. Repeatable.

        Raises the first error of a message that the program has not got from its delivery. Raises InvalidRequest in a
        delivery callback, and changes nothing.
        """
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        if self._runtime is not None:
            from smq.producing.callbacks import refuse_to_wait

            refuse_to_wait()  # before anything changes, so that a later close delivers the messages
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            close_all(self._made, error)
        finally:
            if self._runtime is not None:
                self._runtime.close()
            self._views.close()
            self._leader.close()
            self._target.dialer.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    @cached_property
    def _consumer_runtime(self) -> ConsumerRuntime:
        from smq.consuming.consumer_runtime import ConsumerRuntime

        return ConsumerRuntime()

    def _view(self, topic: str, right: Right | None = None) -> AbstractContextManager[TopicView]:
        """``right`` is what it is for; PermissionDenied says if the client lacks it."""
        if self._closed:
            raise InvalidRequest("the client is closed")
        name = full_topic_name(topic, self.namespace)
        check = partial(self._target.dialer.require, name, right) if right is not None else None
        return self._views.lease(name, check)

    def _open_view(self, topic: str) -> TopicView:
        from smq.transport.topic_view import TopicView

        return TopicView(
            name=topic,
            leader=self._leader,
            settings=self._target.store,
            key=self._target.key,
            dialer=self._target.dialer,
            uploads=self._uploads,
            filer_health=self._filer_health,
        )

    def _add(self, made: Producer | Consumer | TopicsConsumer) -> None:
        """Keeps it until it is closed, or else closes it with this client."""
        with self._lock:
            self._made = [*(it for it in self._made if not it.closed), made]


def _upload(
    table: TableLike | None, files: Sequence[str | os.PathLike[str] | IO[bytes]] | None, key: str | None
) -> Callable[[ReferencePublisher], list[UploadedFile]]:
    """What uploads these rows, or nothing."""

    def upload(uploads: ReferencePublisher) -> list[UploadedFile]:
        if files is not None:
            return uploads.upload_files(files, key)
        return uploads.upload_table(table, key) if table is not None else []

    return upload
