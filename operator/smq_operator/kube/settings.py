"""What ``smq-operator kube`` is told at its start."""

from __future__ import annotations

from dataclasses import dataclass

NAME, INSTANCE, COMPONENT = (f"app.kubernetes.io/{word}" for word in ("name", "instance", "component"))


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """``home`` is the Namespace of the release, its brokers and this Pod; ``pod`` is empty outside of a Pod.

    ``namespace`` is the one whose Topics are led; empty: those of all.
    """

    release: str
    home: str
    namespace: str = ""
    pod: str = ""

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
