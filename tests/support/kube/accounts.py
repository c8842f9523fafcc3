"""ServiceAccounts of a real API server, and their tokens."""

from __future__ import annotations

from typing import Any

from support.kube.client import KubeClient


def account(kube: KubeClient, namespace: str, name: str) -> str:
    """A new one; returns its user name."""
    metadata = {"name": name, "namespace": namespace}
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return f"system:serviceaccount:{namespace}:{name}"


def account_token(kube: KubeClient, namespace: str, name: str, audience: str, pod: dict[str, Any] | None = None) -> str:
    """For ten minutes, and bound to ``pod``, if there is one."""
    spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
    if pod is not None:
        named = pod["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": named["name"], "uid": named["uid"]}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(kube.request("POST", path, body)["status"]["token"])
