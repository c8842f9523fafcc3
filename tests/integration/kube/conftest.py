from support.api_server import api_server, kube, namespace

__all__ = ["api_server", "kube", "namespace"]
