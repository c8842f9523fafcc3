"""The settings of ``smq-operator kube``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import CliSuppress

from smq_core.model.entities import SECOND
from smq_operator.runtime.settings import DEFAULT_PORT, Settings
from smq_storage.process.shared_settings import Duration, duration_field

# The controller manager's --node-monitor-grace-period is 50 s.
NODE_GRACE_US = 60 * SECOND
RELEASE_LABEL, COMPONENT_LABEL = "seaweedmq.io/release", "seaweedmq.io/component"
"""What belongs to a release is found by these labels. Deployment tools overwrite those of app.kubernetes.io."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubeSettings(Settings):
    """``home`` is the Namespace of the release, its brokers and this Pod; ``pod`` is empty outside of a Pod."""

    variables: ClassVar[frozenset[str]] = Settings.variables | {"pod", "home"}

    listen: str = Field(f"[::]:{DEFAULT_PORT}", description=Settings.model_fields["listen"].description)
    http: str = Field("[::]:8080", description="host:port of /healthz, /readyz and /metrics")
    release: str = Field("smq", description="the Helm release that this operator belongs to")
    namespace: str = Field("", description="lead the Topics of this Namespace only; default: of all")
    node_grace_us: Duration = duration_field(
        NODE_GRACE_US, "a Node that has failed looks Ready for less", validation_alias="node_grace"
    )
    token_audience: str = Field("", description="the audience of callers' tokens; default: RELEASE.NAMESPACE.smq")
    ca_secret: str = Field(
        "",
        description="a Secret of the release's Namespace with the certificate and key of the authority that signs for "
        "the release, as cert-manager writes it; default: the operator makes its own one",
    )
    pod: CliSuppress[str] = Field("", validation_alias="POD_NAME")
    home: CliSuppress[str] = Field("", validation_alias="POD_NAMESPACE")

    @field_validator("release")
    @classmethod
    def _release(cls, value: str) -> str:
        if not value:
            raise ValueError("must be the name of the Helm release, such as smq")
        return value

    @field_validator("home")
    @classmethod
    def _home(cls, value: str, info: ValidationInfo) -> str:
        """POD_NAMESPACE, else the service account's Namespace, else --namespace."""
        if value:
            return value
        home = NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.is_file() else info.data.get("namespace", "")
        if not home:
            raise ValueError("required: the Namespace of the release")
        return home

    @property
    def name(self) -> str:
        """The prefix of the names of the release's resources, as in the chart."""
        name = self.release.replace(".", "-")
        label = name if name[0].isalpha() else f"smq-{name}"
        return label[:40].rstrip("-")

    @property
    def audience(self) -> str:
        """That of the tokens which count for this release."""
        return self.token_audience or f"{self.release}.{self.home}.smq"

    @property
    def broker_account(self) -> str:
        """The user name of the brokers' ServiceAccount."""
        return f"system:serviceaccount:{self.home}:{self.name}-broker"

    @property
    def security_secret(self) -> str:
        """The Secret with the release's keys."""
        return f"{self.name}-security"

    @property
    def lease(self) -> str:
        return f"{self.name}-operator"

    @property
    def selector(self) -> str:
        """Selects everything that belongs to the release."""
        return f"{RELEASE_LABEL}={self.release}"
