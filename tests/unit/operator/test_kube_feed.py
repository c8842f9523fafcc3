"""A watch that the API server refuses for a while, as one does that has just started, begins anew."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes.client import Configuration

from smq_operator.kube import feed
from smq_operator.kube.cache import Cache
from smq_operator.kube.feed import Feed, Scope
from smq_operator.kube.kinds import TOPICS

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
REFUSAL = {"kind": "Status", "status": "Failure", "code": 503, "message": "not all paths have been installed"}
WITHIN = 30.0


class Starting(ThreadingHTTPServer):
    """As much of an API server as a watch of Topics needs. While it starts it refuses each watch, and counts them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.starts = True
        self.refused = 0
        self.topics: list[dict[str, Any]] = []
        self.ends = threading.Event()


class Answers(BaseHTTPRequestHandler):
    server: Starting

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if "watch=true" in query:
            self._watch()
        elif path.endswith("/topics"):
            self._say(200, {"metadata": {"resourceVersion": "1"}, "items": self.server.topics})
        else:
            self._say(200, DISCOVERED[path])

    def _watch(self) -> None:
        if self.server.starts:
            self.server.refused += 1
            self._say(503, REFUSAL)
            return
        self.send_response(200)
        self.end_headers()
        for topic in self.server.topics:
            self.wfile.write(json.dumps({"type": "ADDED", "object": topic}).encode() + b"\n")
        self.server.ends.wait(WITHIN)

    def _say(self, status: int, body: object) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Starting]:
    with Starting() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.ends.set()
        server.shutdown()


def test_a_watch_that_is_refused_too_often_begins_anew(server: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    retries = (0.01, 0.01)
    monkeypatch.setattr(feed, "RETRIES", retries)
    monkeypatch.setattr(feed, "AGAIN_AFTER", 0.01)

    async def watch() -> None:
        seen = asyncio.Event()
        cache = Cache()
        cache.on_change(lambda *_: seen.set())
        configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
        watching = Feed(Scope([TOPICS], "default"), cache, configuration, listed=lambda _: None)
        watching.start()
        try:
            async with asyncio.timeout(WITHIN):
                while server.refused <= 1 + len(retries):  # more than it stands in a row
                    await asyncio.sleep(0.01)
                server.topics.append(TOPIC)
                server.starts = False
                await seen.wait()
        finally:
            watching.stop()
        assert ("default", "later") in cache.topics
        await asyncio.to_thread(watching._thread.join, WITHIN)
        assert not watching._thread.is_alive()

    asyncio.run(watch())
