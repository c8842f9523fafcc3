"""Finds a topic: by its leader, or by its files if no leader is given."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa

from smq.reading.topic_location import TopicLocation
from smq.transport.connect_target import ConnectTarget, resolve_target
from smq.transport.leader_client import LeaderClient
from smq.transport.topic_view import TopicView
from smq_core.errors import UnknownTopic
from smq_core.model.entities import Layout, Topic, TopicSchema
from smq_core.model.names import full_topic_name
from smq_core.model.schema_evolution import newest_schema
from smq_storage.catalog import layouts, topics
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import StoreSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTopic:
    """A topic as it is now. ``chunk_schema`` has the columns of its newest ``schema``.

    ``key`` names the key column; None if the topic has a schema and no key.
    """

    location: TopicLocation
    topic: Topic
    chunk_schema: pa.Schema
    key: str | None
    schema: TopicSchema


def open_topic(
    topic: str,
    *,
    leader: str | None = None,
    namespace: str = "default",
    via: str | None = None,
    filer_url: str | None = None,
    filer_endpoint: str | None = None,
    filer_region: str | None = None,
    filer_access_key: str | None = None,
    filer_secret_key: str | None = None,
    filer_session_token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
) -> OpenedTopic:
    """Finds a topic. The arguments are those of ``smq.connect``; ``timeout`` is in seconds, for a call to the leader.

    Raises InvalidRequest, UnknownTopic, Unavailable, StoreDenied, PermissionDenied, Unauthenticated.
    """
    name = full_topic_name(topic, namespace)
    target = resolve_target(
        leader,
        via=via,
        filer_url=filer_url,
        filer_endpoint=filer_endpoint,
        filer_region=filer_region,
        filer_access_key=filer_access_key,
        filer_secret_key=filer_secret_key,
        filer_session_token=filer_session_token,
        ca_file=ca_file,
        token_file=token_file,
        cert_file=cert_file,
        key_file=key_file,
    )
    return _from_leader(name, target, timeout) if target.leaders else _from_files(name, target)


def _from_leader(name: str, target: ConnectTarget, timeout: float) -> OpenedTopic:
    leader = LeaderClient(list(target.leaders), timeout=timeout, dialer=target.dialer)
    target.dialer.attach(leader.auth)
    try:
        view = TopicView(name=name, leader=leader, settings=target.store, key=target.key, dialer=target.dialer)
        try:
            snapshot = view.wait_for_snapshot(timeout)
            location = _location(name, snapshot.topic.uid, view.store.settings, target)
            return _opened(location, snapshot.topic, snapshot.layout)
        finally:
            view.close()
    finally:
        leader.close()
        target.dialer.close()


def _from_files(name: str, target: ConnectTarget) -> OpenedTopic:
    assert target.store is not None  # there is no leader
    store = target.store.open()
    current = topics.read_current_topic(store, name)
    if current is None:
        raise UnknownTopic(f"there is no topic {name} in {store!r}", topic=name)
    topic = topics.read_topic(store, name, current.uid)
    layout = layouts.read_layout(store, name, current.uid)
    if topic is None or layout is None:
        raise UnknownTopic(f"the topic {name} in {store!r} has no segments yet: its leader has to run", topic=name)
    return _opened(_location(name, current.uid, target.store, target), topic, layout[0])


def _location(name: str, uid: str, store: StoreSettings, target: ConnectTarget) -> TopicLocation:
    via, security = target.dialer.via, target.dialer.security
    return TopicLocation(topic=name, uid=uid, store=store, via=via, security=security, leaders=target.leaders)


def _opened(location: TopicLocation, topic: Topic, layout: Layout) -> OpenedTopic:
    newest = newest_schema(layout, topic.spec.schema)
    key = topic.spec.key if newest.columns else "key"
    return OpenedTopic(
        location=location, topic=topic, chunk_schema=chunk_schema(newest.columns), key=key, schema=newest
    )
