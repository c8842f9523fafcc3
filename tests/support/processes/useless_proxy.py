"""An environment that names a proxy, as in many companies, behind which nothing of a cluster is."""

from __future__ import annotations

import pytest


def set_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """All variables name a proxy that refuses connections."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
