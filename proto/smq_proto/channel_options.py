"""Options that all gRPC and Flight channels between processes have."""

from __future__ import annotations

# Brokers and leaders are not behind the proxy that ``https_proxy`` and its relatives name for the way out.
NO_PROXY = ("grpc.enable_http_proxy", 0)
