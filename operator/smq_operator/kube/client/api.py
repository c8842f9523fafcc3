"""Calls to the Kubernetes API. Resources are dicts, errors are those of ``errors``, every call has a timeout.

The official client finds and authenticates the API server, in a Pod or by a kubeconfig, and renews the Pod's token. Its
typed models are not used. Calls run in a thread pool, so that none blocks the event loop.
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

from smq_operator.kube.client.errors import ApiServerUnreachable, KubeError, NotFound, error_from_status
from smq_operator.kube.client.kinds import DEPLOYMENTS, EVENTS, Kind, Resource, key_of, strip_managed_fields

MERGE_PATCH, APPLY_PATCH = "application/merge-patch+json", "application/apply-patch+yaml"
TIMEOUT_SECONDS = 10.0
CONNECT_TIMEOUT_SECONDS = 3.0
MAX_THREADS = 16
# Resources per page of a list: before they are stripped they take many times the memory of the cache.
PAGE_SIZE = 250
# The owner of the fields that this operator applies.
FIELD_MANAGER = "seaweedmq-operator"


class KubeApi:
    """See the module's docstring. Every method raises KubeError; ``timeout_seconds`` is in seconds."""

    def __init__(self, configuration: Configuration, threads: int = MAX_THREADS) -> None:
        configuration.retries = False  # the caller decides whether to retry
        configuration.connection_pool_maxsize = threads
        self._client = ApiClient(configuration)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kube-api")
        self.configuration = configuration
        self.server: str = configuration.host

    @classmethod
    def connect(cls, environment: Mapping[str, str] = os.environ) -> KubeApi:
        """Connects by $KUBECONFIG if set, else as a Pod, else by ~/.kube/config. Raises KubeError."""
        configuration = Configuration()
        try:
            if environment.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" not in environment:
                load_kube_config(environment.get("KUBECONFIG") or None, client_configuration=configuration)
            else:
                load_incluster_config(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise KubeError(
                f"found no configuration for the Kubernetes API ({error}): run this in a Pod with a service account, "
                "or set KUBECONFIG"
            ) from None
        return cls(configuration)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---- reading

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Resource:
        """One resource. Raises NotFound."""
        return await self.call("GET", kind.path(namespace, name), operation=_describe("get", kind, namespace))

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Resource | None:
        """One resource, or None."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(self, kind: Kind, namespace: str = "", labels: str = "") -> tuple[list[Resource], int]:
        """All resources of a kind (in a namespace, with these labels), and the version of the list."""
        query = {"limit": str(PAGE_SIZE)} | ({"labelSelector": labels} if labels else {})
        found: list[Resource] = []
        while True:
            try:
                answer = await self.call(
                    "GET", kind.path(namespace), operation=_describe("list", kind, namespace), query=query
                )
            except NotFound:
                if "continue" not in query:
                    raise
                del query["continue"], query["limit"]  # the continue token has expired: list all at once
                found.clear()
                continue
            for item in answer.get("items") or []:
                item.setdefault("apiVersion", kind.api_version)  # lists leave these out
                item.setdefault("kind", kind.kind)
                found.append(strip_managed_fields(item))
            list_metadata = answer.get("metadata", {})
            if not list_metadata.get("continue"):
                return found, int(list_metadata.get("resourceVersion") or 0)
            query["continue"] = list_metadata["continue"]

    # ---- writing

    async def create(self, kind: Kind, body: Resource) -> Resource:
        """Raises AlreadyExists."""
        namespace = body["metadata"].get("namespace", "")
        return await self.call("POST", kind.path(namespace), body, operation=_describe("create", kind, namespace))

    async def replace(self, kind: Kind, body: Resource) -> Resource:
        """Replaces a resource. Raises ResourceConflict if it has another resourceVersion than ``body``."""
        namespace, name = key_of(body)
        return await self.call("PUT", kind.path(namespace, name), body, operation=_describe("update", kind, namespace))

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, subresource: str = "") -> Resource:
        """A merge patch of a resource, or of its ``subresource``, such as ``status`` or ``scale``.

        With metadata.resourceVersion in ``change`` it raises ResourceConflict if the resource has another version.
        """
        path = kind.path(namespace, name, subresource)
        return await self.call(
            "PATCH", path, change, operation=_describe("patch", kind, namespace, subresource), content_type=MERGE_PATCH
        )

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource:
        """A merge patch of the status alone. None removes a field; a list is replaced."""
        return await self.patch(kind, name, namespace, {"status": status}, "status")

    async def patch_scale(self, name: str, namespace: str, replicas: int) -> Resource:
        """Sets spec.replicas of a Deployment."""
        return await self.patch(DEPLOYMENTS, name, namespace, {"spec": {"replicas": replicas}}, "scale")

    async def apply(self, kind: Kind, body: Resource, *, dry_run: bool = False) -> Resource:
        """Server-side apply, which takes over fields of other owners."""
        namespace, name = key_of(body)
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        path, operation = kind.path(namespace, name), _describe("patch", kind, namespace)
        return await self.call("PATCH", path, body, operation=operation, query=query, content_type=APPLY_PATCH)

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None:
        """Raises NotFound; with ``uid``, ResourceConflict if another resource has the name now."""
        body: Resource | None = {"preconditions": {"uid": uid}} if uid else None
        await self.call("DELETE", kind.path(namespace, name), body, operation=_describe("delete", kind, namespace))

    async def create_event(self, body: Resource) -> Resource:
        """Creates an Event of the core API, in the namespace of its object."""
        return await self.create(EVENTS, body)

    # ---- any call

    async def call(
        self,
        method: str,
        path: str,
        body: Resource | None = None,
        *,
        operation: str,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Resource:
        """Sends one request; returns the body of the response. ``operation`` describes it in messages."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, self._call, method, path, body, operation, query, content_type, timeout_seconds
        )

    def _call(
        self,
        method: str,
        path: str,
        body: Resource | None,
        operation: str,
        query: Mapping[str, str] | None,
        content_type: str,
        timeout_seconds: float,
    ) -> Resource:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": FIELD_MANAGER}
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        sent: Resource | str | None = json.dumps(body) if content_type == APPLY_PATCH else body
        try:
            self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            timeouts = (min(CONNECT_TIMEOUT_SECONDS, timeout_seconds), timeout_seconds)
            answer = self._client.rest_client.request(method, url, headers, sent, _request_timeout=timeouts)
            data: bytes = answer.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError, ConfigException) as error:
            raise ApiServerUnreachable(
                f"{operation}: the API server at {self.server} does not respond ({_truncate(error)})"
            ) from error
        try:
            document = json.loads(data) if data else {}
        except ValueError:
            document = {"message": data[:200].decode(errors="replace")}
        if answer.status >= 400:
            raise error_from_status(answer.status, document, operation)
        found: Resource = document
        return found


def _describe(verb: str, kind: Kind, namespace: str, subresource: str = "") -> str:
    """Describes the call in RBAC terms, so that a message says what a Role lacks."""
    resource = kind.plural + (f"/{subresource}" if subresource else "") + (f".{kind.group}" if kind.group else "")
    if not kind.namespaced:
        return f"{verb} {resource}"
    return f"{verb} {resource} in " + (f"namespace {namespace}" if namespace else "all namespaces")


def _truncate(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text if len(text) <= 200 else text[:197] + "..."
