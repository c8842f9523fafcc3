"""Calls to the Kubernetes API: resources are dicts, errors those of ``errors``, every call has a deadline.

The official client knows how to reach and to trust the API server, in a Pod or by a kubeconfig, and renews the Pod's
token; its typed models are not used. Calls run in a pool of threads, so that none blocks the event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from smq_operator.kube.errors import KubeError, NotFound, Unreachable, error_of
from smq_operator.kube.kinds import DEPLOYMENTS, EVENTS, Kind, Resource, key_of, slim

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
TIMEOUT = 10.0
CONNECT_WITHIN = 3.0
THREADS = 16
PAGE = 250
"""Resources in one answer to a list: as objects they take many times the memory that is kept of them."""
OWNER = "seaweedmq-operator"
"""Who the API server notes as the owner of fields."""


class KubeApi:
    """See the module's docstring. Every method raises KubeError; ``timeout`` is in seconds."""

    def __init__(self, configuration: Configuration, threads: int = THREADS) -> None:
        configuration.retries = False  # who calls knows whether to try again
        configuration.connection_pool_maxsize = threads
        self._client = ApiClient(configuration)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kube-api")
        self.configuration = configuration
        self.server: str = configuration.host

    @classmethod
    def connect(cls, environment: Mapping[str, str] = os.environ) -> KubeApi:
        """By $KUBECONFIG when it is set, else as a Pod does, else by ~/.kube/config. Raises KubeError in words."""
        configuration = Configuration()
        try:
            if environment.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" not in environment:
                load_kube_config(environment.get("KUBECONFIG") or None, client_configuration=configuration)
            else:
                load_incluster_config(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise KubeError(
                f"cannot find out how to reach the Kubernetes API ({error}): run this in a Pod with a service account, "
                "or set KUBECONFIG"
            ) from None
        return cls(configuration)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---- reading

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Resource:
        """One resource. Raises NotFound."""
        return await self.call("GET", kind.path(namespace, name), what=_what("get", kind, namespace))

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Resource | None:
        """The same, or None."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(self, kind: Kind, namespace: str = "", labels: str = "") -> tuple[list[Resource], int]:
        """All of a kind (in a namespace, with these labels), and the version of the whole when it was read."""
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        found: list[Resource] = []
        while True:
            try:
                answer = await self.call("GET", kind.path(namespace), what=_what("list", kind, namespace), query=query)
            except NotFound:
                if "continue" not in query:
                    raise
                del query["continue"], query["limit"]  # the pages took too long: all at once
                found.clear()
                continue
            for item in answer.get("items") or []:
                item.setdefault("apiVersion", kind.api)  # the API leaves these out in lists
                item.setdefault("kind", kind.kind)
                found.append(slim(item))
            about = answer.get("metadata", {})
            if not about.get("continue"):
                return found, int(about.get("resourceVersion") or 0)
            query["continue"] = about["continue"]

    # ---- writing

    async def create(self, kind: Kind, body: Resource) -> Resource:
        """Raises AlreadyExists."""
        namespace = body["metadata"].get("namespace", "")
        return await self.call("POST", kind.path(namespace), body, what=_what("create", kind, namespace))

    async def replace(self, kind: Kind, body: Resource) -> Resource:
        """Writes a resource as a whole. Raises Conflict when its resourceVersion is not the one in ``body``."""
        namespace, name = key_of(body)
        return await self.call("PUT", kind.path(namespace, name), body, what=_what("update", kind, namespace))

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, part: str = "") -> Resource:
        """A merge patch of a resource, or of its ``part``, such as ``status`` or ``scale``.

        With metadata.resourceVersion in ``change`` it raises Conflict when another version is there.
        """
        path = kind.path(namespace, name, part)
        return await self.call("PATCH", path, change, what=_what("patch", kind, namespace, part), content=MERGE)

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource:
        """A merge patch of the status alone: None removes a field, lists are written as a whole."""
        return await self.patch(kind, name, namespace, {"status": status}, "status")

    async def patch_scale(self, name: str, namespace: str, replicas: int) -> Resource:
        """Sets spec.replicas of a Deployment."""
        return await self.patch(DEPLOYMENTS, name, namespace, {"spec": {"replicas": replicas}}, "scale")

    async def apply(self, kind: Kind, body: Resource, *, dry_run: bool = False) -> Resource:
        """Server-side apply; fields that another owns are taken over."""
        namespace, name = key_of(body)
        query = {"fieldManager": OWNER, "force": "true", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        path, what = kind.path(namespace, name), _what("patch", kind, namespace)
        return await self.call("PATCH", path, body, what=what, query=query, content=APPLY)

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None:
        """Raises NotFound; with ``uid``, Conflict when another resource has the name now."""
        body: Resource | None = {"preconditions": {"uid": uid}} if uid else None
        await self.call("DELETE", kind.path(namespace, name), body, what=_what("delete", kind, namespace))

    async def create_event(self, body: Resource) -> Resource:
        """An Event of the core API, in the namespace of what it is about."""
        return await self.create(EVENTS, body)

    # ---- any call

    async def call(
        self,
        method: str,
        path: str,
        body: Resource | None = None,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> Resource:
        """One request; returns the body of its answer. ``what`` is tried, in words, for messages."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._call, method, path, body, what, query, content, timeout)

    def _call(
        self,
        method: str,
        path: str,
        body: Resource | None,
        what: str,
        query: Mapping[str, str] | None,
        content: str,
        timeout: float,
    ) -> Resource:
        headers = {"Accept": "application/json", "Content-Type": content, "User-Agent": OWNER}
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        sent: Resource | str | None = json.dumps(body) if content == APPLY else body
        try:
            self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            within = (min(CONNECT_WITHIN, timeout), timeout)
            answer = self._client.rest_client.request(method, url, headers, sent, _request_timeout=within)
            data: bytes = answer.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError, ConfigException) as error:
            raise Unreachable(f"{what}: the API server at {self.server} does not answer ({_short(error)})") from error
        try:
            document = json.loads(data) if data else {}
        except ValueError:
            document = {"message": data[:200].decode(errors="replace")}
        if answer.status >= 400:
            raise error_of(answer.status, document, what)
        found: Resource = document
        return found


def _what(verb: str, kind: Kind, namespace: str, part: str = "") -> str:
    """In words of RBAC, so that a message says what a Role lacks."""
    resource = kind.plural + (f"/{part}" if part else "") + (f".{kind.group}" if kind.group else "")
    if not kind.namespaced:
        return f"{verb} {resource}"
    return f"{verb} {resource} in " + (f"namespace {namespace}" if namespace else "all namespaces")


def _short(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text if len(text) <= 200 else text[:197] + "..."
