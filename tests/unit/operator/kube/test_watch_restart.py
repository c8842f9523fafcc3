"""A watch that the API server refuses for a while, as one does that has just started, begins anew."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes.client import Configuration

from smq_operator.kube.client.kinds import TOPICS, Resource
from smq_operator.kube.informer import watcher
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.watcher import ResourceWatcher, WatchScope
from support.waiting import HANG_GUARD

GROUP = {"name": "seaweedmq.io", "versions": [{"version": "v1alpha1"}], "preferredVersion": {"version": "v1alpha1"}}
VERBS = ["list", "watch"]
TOPIC_KIND = {"name": "topics", "singularName": "topic", "kind": "Topic", "namespaced": True, "verbs": VERBS}
NAMESPACE_KIND = TOPIC_KIND | {"name": "namespaces", "singularName": "", "kind": "Namespace", "namespaced": False}
DISCOVERED: dict[str, dict[str, Any]] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": [NAMESPACE_KIND]},
    "/apis": {"groups": [GROUP]},
    "/apis/seaweedmq.io/v1alpha1": {"resources": [TOPIC_KIND]},
}
TOPIC = {"metadata": {"name": "later", "namespace": "default", "uid": "u", "resourceVersion": "2"}, "spec": {}}
REJECTION = {"kind": "Status", "status": "Failure", "code": 503, "message": "not all paths have been installed"}


class StartingApiServer(ThreadingHTTPServer):
    """As much of an API server as a watch of Topics needs. While it starts it refuses each watch, and counts them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StartingApiHandler)
        self.starts = True
        self.refused = 0
        self.topics: list[dict[str, Any]] = []
        self.ends = threading.Event()


class StartingApiHandler(BaseHTTPRequestHandler):
    server: StartingApiServer

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if "watch=true" in query:
            self._watch()
        elif path.endswith("/topics"):
            self._respond(200, {"metadata": {"resourceVersion": "1"}, "items": self.server.topics})
        else:
            self._respond(200, DISCOVERED[path])

    def _watch(self) -> None:
        if self.server.starts:
            self.server.refused += 1
            self._respond(503, REJECTION)
            return
        self.send_response(200)
        self.end_headers()
        for topic in self.server.topics:
            self.wfile.write(json.dumps({"type": "ADDED", "object": topic}).encode() + b"\n")
        self.server.ends.wait(HANG_GUARD)

    def _respond(self, status: int, body: object) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[StartingApiServer]:
    with StartingApiServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.ends.set()
        server.shutdown()


async def test_a_watch_that_is_refused_too_often_begins_anew(
    server: StartingApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    retries = (0.01, 0.01)
    monkeypatch.setattr(watcher, "RETRY_DELAYS_SECONDS", retries)
    monkeypatch.setattr(watcher, "RESTART_DELAY_SECONDS", 0.01)

    seen = asyncio.Event()
    cache = ResourceCache()
    cache.on_change(lambda *_: seen.set())
    parsed: list[tuple[str, threading.Thread]] = []

    def parse(topics: Iterable[Resource]) -> None:
        parsed.extend((topic["metadata"]["name"], threading.current_thread()) for topic in topics)

    configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    watching = ResourceWatcher(
        scope=WatchScope([TOPICS], "default"),
        cache=cache,
        parse_topics=parse,
        configuration=configuration,
        on_listed=lambda _: None,
    )
    watching.start()
    try:
        async with asyncio.timeout(HANG_GUARD):
            while server.refused <= 1 + len(retries):  # more than it stands in a row
                await asyncio.sleep(0.01)
            server.topics.append(TOPIC)
            server.starts = False
            await seen.wait()
    finally:
        watching.stop()
    assert ("default", "later") in cache.topics
    assert parsed == [("later", watching._thread)], "not on the loop of the leader"
    await asyncio.to_thread(watching._thread.join, HANG_GUARD)
    assert not watching._thread.is_alive()
