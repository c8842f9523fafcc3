"""The service that clients call to find a topic, and the brokers and files that have its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import structlog
from google.protobuf.empty_pb2 import Empty

from smq_core.errors import NoBrokers, StoreUnavailable, Unavailable, UnknownTopic
from smq_core.model.entities import Topic
from smq_operator.api.pages import page_of
from smq_operator.api.reads import check_folder, check_lifetime, check_paths, list_files, session_keys, sign_reads
from smq_operator.api.rpc_errors import stream_handler, unary_handler
from smq_operator.api.uploads import URL_LIFETIME, check_files, sign_files
from smq_operator.brokers.liveness import LivenessProbes
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import topics_pb2
from smq_proto.wire import layout_to_pb, removed_to_pb, sealed_to_pb, topic_to_pb
from smq_storage.object_store.store import StoreSettings

log = structlog.get_logger(__name__)

LOCATE_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicService:
    """Locate, Watch, History, ReportUnreachable, SignUploads, SignReads, ListFiles, GetFilerKeys."""

    readiness: Readiness
    topics: TopicDirectory
    sync: TopicSync
    liveness_probes: LivenessProbes
    store: StorePool
    store_settings: StoreSettings
    session_role: str = ""
    """Of the temporary keys for readers; see ``filer_session_role``."""
    _locate_cache: dict[str, tuple[object, pb.LocateReply]] = field(default_factory=dict)
    """By topic: the last reply to Locate, and the version of the layout in it."""

    @unary_handler
    async def Locate(self, request: pb.LocateRequest) -> pb.LocateReply:
        managed = self.topics.topic(request.topic)
        try:
            async with asyncio.timeout(LOCATE_TIMEOUT_SECONDS):
                while managed.layout is None:
                    await managed.wait_for_change()
                    managed = self.topics.topic(request.topic)
        except TimeoutError:
            raise NoBrokers(
                f"topic {managed.name} has no segments yet: {managed.problem or 'no broker is available'}"
            ) from None
        return self._located(managed)

    @stream_handler
    async def Watch(self, request: topics_pb2.WatchRequest) -> AsyncIterator[pb.LocateReply]:
        managed = self.topics.topic(request.topic)
        sent_version: object = None
        while True:
            if managed.deleted:
                raise UnknownTopic(f"topic {managed.name} was deleted")
            reconciler = managed.reconciler
            if (
                reconciler is not None
                and reconciler.layout is not None
                and sent_version != (reconciler.etag, reconciler.topic, managed.index.loss_version())
            ):
                sent_version = (reconciler.etag, reconciler.topic, managed.index.loss_version())
                yield self._located(managed)
                continue
            await managed.wait_for_change()

    def _located(self, managed: ManagedTopic) -> pb.LocateReply:
        """One message per version of the layout, for any number of requests."""
        assert managed.reconciler is not None and managed.reconciler.layout is not None
        key = (managed.reconciler.etag, managed.reconciler.topic, managed.index.loss_version())
        cached = self._locate_cache.get(managed.name)
        if cached is None or cached[0] != key:
            reply = pb.LocateReply(
                topic=topic_to_pb(managed.reconciler.topic, managed.newest_schema),
                layout=layout_to_pb(managed.reconciler.layout),
                store_url=self.store_settings.url,
                store_options=self.store_settings.to_public_options(),
                losses=managed.index.loss_version(),
            )
            cached = self._locate_cache[managed.name] = (key, reply)
        return cached[1]

    @unary_handler
    async def History(self, request: topics_pb2.HistoryRequest) -> topics_pb2.HistoryReply:
        managed = await self.sync.adopted(self.topics.topic(request.topic).name)
        try:
            async with asyncio.timeout(LOCATE_TIMEOUT_SECONDS):
                while not managed.index.is_read:
                    await managed.wait_for_change()
        except TimeoutError:
            raise StoreUnavailable(
                f"the index of {managed.name} is not loaded yet; check that the filer is reachable"
            ) from None
        index, after = managed.index, request.page_token
        # By number, which is padded because tokens are compared as texts.
        entries = ((f"{it.number:020}", it) for it in sorted(index.sealed.values(), key=lambda it: it.number))
        segments, next_page = page_of((key, sealed_to_pb(it)) for key, it in entries if key > after)
        reply = topics_pb2.HistoryReply(segments=segments, next_page_token=next_page)
        if not next_page:
            reply.removed.CopyFrom(removed_to_pb(index.removed_intervals, index.removed_segments.values()))
        return reply

    @unary_handler
    async def ReportUnreachable(self, hint: topics_pb2.ReportUnreachableRequest) -> Empty:
        self.liveness_probes.report_unresponsive(hint.incarnation, by="a client")
        return Empty()

    @unary_handler
    async def SignUploads(self, request: topics_pb2.SignUploadsRequest) -> topics_pb2.SignUploadsReply:
        topic = self._living(request.topic, request.uid)
        check_files(request)
        uploads = await self.store.run(sign_files, topic.uid, request)
        log.debug("uploads.signed", topic=topic.name, producer=request.producer, files=len(uploads))
        return topics_pb2.SignUploadsReply(uploads=uploads)

    @unary_handler
    async def SignReads(self, request: topics_pb2.SignReadsRequest) -> topics_pb2.SignReadsReply:
        topic = self._living(request.topic, request.uid)
        check_paths(topic, request.paths)
        urls = await self.store.run(sign_reads, list(request.paths))
        log.debug("reads.signed", topic=topic.name, files=len(urls))
        return topics_pb2.SignReadsReply(urls=urls, lifetime_seconds=round(URL_LIFETIME.total_seconds()))

    @unary_handler
    async def ListFiles(self, request: topics_pb2.ListFilesRequest) -> topics_pb2.ListFilesReply:
        topic = self._living(request.topic, request.uid)
        check_folder(topic, request.folder)
        return topics_pb2.ListFilesReply(files=await self.store.run(list_files, request.folder, request.after))

    @unary_handler
    async def GetFilerKeys(self, request: topics_pb2.GetFilerKeysRequest) -> topics_pb2.FilerKeys:
        managed = self.topics.topic(request.topic)
        topic = self._living(managed.name, managed.topic.uid if managed.topic is not None else "")
        check_lifetime(request.lifetime_seconds)
        keys = await self.store.run(session_keys, topic, self.session_role, request.lifetime_seconds)
        keys.store_url = self.store_settings.url
        keys.store_options.update(self.store_settings.to_public_options())
        return keys

    def _living(self, name: str, uid: str) -> Topic:
        """The topic of that name, if it has that uid and is not deleted. Raises UnknownTopic, Unavailable."""
        managed = self.topics.topic(name)
        topic = managed.topic
        if topic is None:
            raise Unavailable(f"the leader has not read {managed.name} yet: try again")
        if managed.deleted or topic.uid != uid:
            raise UnknownTopic(f"the topic {managed.name} with the uid {uid!r} was deleted", topic=managed.name)
        return topic
