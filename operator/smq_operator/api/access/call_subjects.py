"""What a request is about, as far as that decides who may make it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from google.protobuf.message import Message

from smq_core.access.leader_calls import CallSubject
from smq_core.errors import Unavailable
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_proto.v1 import admin_pb2
from smq_storage.topic_manifests.parser import ManifestDocument, parse_document

_manifest: ContextVar[ManifestDocument | None] = ContextVar("manifest", default=None)


async def subject_of(request: Message, topics: TopicDirectory) -> CallSubject:
    """Raises SpecRejected for a manifest that is none, and Unavailable while this leader is loading its topics."""
    if isinstance(request, admin_pb2.ApplyTopicRequest):
        return await _manifest_subject(request, topics)
    return CallSubject(
        topic=getattr(request, "topic", ""),
        group=getattr(request, "group", ""),
        incarnation=getattr(request, "incarnation", ""),
    )


async def parsed_manifest(request: admin_pb2.ApplyTopicRequest) -> ManifestDocument:
    """The manifest of a call, parsed once for its rights and its work. Raises SpecRejected."""
    known = _manifest.get()
    if known is None or known.text != request.manifest:
        # Parsing may take most of a second, in which the leader has to go on.
        known = await asyncio.to_thread(parse_document, request.manifest)
        _manifest.set(known)
    return known


async def _manifest_subject(request: admin_pb2.ApplyTopicRequest, topics: TopicDirectory) -> CallSubject:
    name = (await parsed_manifest(request)).topic.full_name
    if name not in topics and not topics.synced:
        raise Unavailable("the new leader is still loading its topics: try again in a few seconds")
    return CallSubject(topic=name, topic_exists=name in topics)
