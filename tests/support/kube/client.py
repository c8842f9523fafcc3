"""A client of the Kubernetes API for tests: resources are dicts, errors carry the causes that the server names.

The official client reads the kubeconfig, authenticates and connects, as in ``smq_operator.kube.client.api``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config

from support.waiting import HANG_GUARD, eventually

Resource = Mapping[str, Any]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class KubeApiError(Exception):
    """The API server rejected a request. ``causes`` are (field, message), where it names fields."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.code: int = status.get("code", 0)
        self.reason: str = status.get("reason", "")
        self.message: str = status.get("message", "")
        found = (status.get("details") or {}).get("causes") or []
        self.causes = [(cause.get("field", ""), cause.get("message", "")) for cause in found]
        super().__init__(f"{self.code} {self.reason}: {self.message}")


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """Where the resources of a kind are."""

    api: str
    plural: str
    namespaced: bool


class KubeClient:
    """One user of one API server, by kubeconfig. Methods raise KubeApiError. Safe for many threads."""

    def __init__(self, kubeconfig: Path, kubectl: Path | None = None) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = kubectl
        configuration = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=configuration)
        configuration.retries = False
        configuration.connection_pool_maxsize = 16
        self.url: str = configuration.host
        self._connections = ApiClient(configuration).rest_client.pool_manager
        self._kinds: dict[tuple[str, str], ResourceKind] = {}

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> dict[str, Any]:
        """One call; a body that is text is sent as it is."""
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        address = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": content, "Accept": accept}
        answer = self._connections.request(method, address, body=data, headers=headers, timeout=300.0)
        document = json.loads(answer.data) if answer.data.startswith(b"{") else {"message": answer.data.decode()}
        if answer.status >= 400:
            raise KubeApiError({"code": answer.status} | document)
        return document

    def create(self, resource: Resource, *, dry_run: bool = False) -> dict[str, Any]:
        """Unknown fields are refused, as kubectl has it."""
        return self.request("POST", self._collection(resource), resource, **_flags(dry_run))

    def replace(self, resource: Resource, *, dry_run: bool = False) -> dict[str, Any]:
        return self.request("PUT", self.path(resource), resource, **_flags(dry_run))

    def apply(self, resource: Resource, *, dry_run: bool = False, owner: str = "tests") -> dict[str, Any]:
        """Server-side apply."""
        flags = _flags(dry_run) | {"fieldManager": owner, "force": "true"}
        return self.request("PATCH", self.path(resource), resource, content=APPLY, **flags)

    def patch(self, resource: Resource, change: object, *, status: bool = False) -> dict[str, Any]:
        """A merge patch of a resource, or of its status."""
        path = self.path(resource) + ("/status" if status else "")
        return self.request("PATCH", path, change, content=MERGE, **_flags(False))

    def get(self, resource: Resource) -> dict[str, Any]:
        """The one of that kind, name and namespace as it is now."""
        return self.request("GET", self.path(resource))

    def find(self, resource: Resource) -> dict[str, Any] | None:
        """The same, or None."""
        try:
            return self.get(resource)
        except KubeApiError as refused:
            if refused.code == 404:
                return None
            raise

    def list(self, api: str, kind: str, namespace: str | None = None, **query: str) -> list[dict[str, Any]]:
        found = self.request("GET", self._listing(api, kind, namespace), **query)
        return [{"apiVersion": api, "kind": kind} | item for item in found["items"]]

    def table(self, api: str, kind: str, namespace: str | None = None) -> tuple[list[str], list[list[Any]]]:
        """What ``kubectl get`` shows: the headers and the rows, without what only ``-o wide`` has."""
        found = self.request("GET", self._listing(api, kind, namespace), accept=TABLE)
        shown = [i for i, column in enumerate(found["columnDefinitions"]) if not column["priority"]]
        headers = [found["columnDefinitions"][i]["name"].upper() for i in shown]
        return headers, [[row["cells"][i] for i in shown] for row in found["rows"]]

    def delete(self, resource: Resource) -> None:
        """Nothing happens when it is not there."""
        try:
            self.request("DELETE", self.path(resource))
        except KubeApiError as refused:
            if refused.code != 404:
                raise

    def install_crds(self, documents: Sequence[Resource]) -> None:
        """Returns when their kinds can be used."""
        for document in documents:
            self.apply(document)
        eventually(lambda: all(established(self.get(d)) for d in documents), what="the API server serves the kinds")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints. Raises CalledProcessError."""
        # A cache beside the kubeconfig: in the usual place it would speak of whatever cluster had this port before.
        own = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.kubeconfig.parent / "kubectl-cache")]
        command = [str(self._kubectl or "kubectl"), *own, *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True, timeout=HANG_GUARD
        ).stdout

    def path(self, resource: Resource) -> str:
        return f"{self._collection(resource)}/{resource['metadata']['name']}"

    def _collection(self, resource: Resource) -> str:
        namespace = resource["metadata"].get("namespace", "default")
        return self._listing(resource["apiVersion"], resource["kind"], namespace)

    def _listing(self, api: str, kind: str, namespace: str | None) -> str:
        found = self._kind(api, kind)
        inside = f"/namespaces/{namespace}" if namespace and found.namespaced else ""
        return f"{found.api}{inside}/{found.plural}"

    def _kind(self, api: str, kind: str) -> ResourceKind:
        if (api, kind) not in self._kinds:
            root = f"/apis/{api}" if "/" in api else f"/api/{api}"
            for found in self.request("GET", root)["resources"]:
                if "/" not in found["name"]:
                    self._kinds[api, found["kind"]] = ResourceKind(root, found["name"], found["namespaced"])
        return self._kinds[api, kind]


def established(crd: Resource) -> bool:
    """Whether the API server serves this CustomResourceDefinition."""
    conditions = crd.get("status", {}).get("conditions", [])
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Every resource in a folder's YAML files."""
    for path in sorted(folder.glob("*.yaml")):
        yield from (d for d in yaml.safe_load_all(path.read_text()) if d is not None)


def _flags(dry_run: bool) -> dict[str, str]:
    return {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
