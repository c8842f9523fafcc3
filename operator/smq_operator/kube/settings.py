"""What ``smq-operator kube`` is told at its start."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model import SECOND

NODE_GRACE = 60 * SECOND
"""The controller manager's --node-monitor-grace-period is 50 s."""
NAME, INSTANCE, COMPONENT = (f"app.kubernetes.io/{word}" for word in ("name", "instance", "component"))


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """``home`` is the Namespace of the release, its brokers and this Pod; ``pod`` is empty outside of a Pod.

    ``namespace`` is the one whose Topics are led; empty: those of all. A Node that has failed looks Ready for less than
    ``node_grace`` (microseconds).
    """

    release: str
    home: str
    namespace: str = ""
    pod: str = ""
    node_grace: int = NODE_GRACE

    @property
    def name(self) -> str:
        """What the release's resources begin with, as the chart has it."""
        return self.release[:40].removesuffix("-")

    @property
    def lease(self) -> str:
        return f"{self.name}-operator"

    @property
    def selector(self) -> str:
        """The labels of everything that belongs to the release."""
        return f"{NAME}=seaweedmq,{INSTANCE}={self.release}"
