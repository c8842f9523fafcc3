"""Settings of a leader process: flags, and the variables that it shares with brokers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from smq_core.access.modes import SecurityMode
from smq_core.errors import InvalidRequest
from smq_core.file_lists.small_files import MAX_SMALL_FILE_BYTES
from smq_core.model.addresses import ALL_ADDRESSES, advertised_address, join_address, split_address
from smq_core.model.units import UNLIMITED, parse_duration, size_text
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.external_callers import ClientAuthoritySettings, ExternalCallers, OidcSettings
from smq_operator.runtime.merge_settings import MergeSettings
from smq_storage.object_store.clients import DEFAULT_TIMEOUT_SECONDS
from smq_storage.object_store.store import StoreSettings
from smq_storage.process.shared_settings import (
    Duration,
    Size,
    add_argument,
    duration_field,
    invalid_settings,
    required_filer_url,
    size_field,
    store_settings,
)

DEFAULT_PORT = 7070

_CLEANUP = CleanupSettings()
_MERGE = MergeSettings()


class Settings(BaseSettings):
    """What both modes need. Sizes in bytes, durations in microseconds unless the description says seconds."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, env_prefix="SMQ_", env_ignore_empty=True
    )
    variables: ClassVar[frozenset[str]] = frozenset({"filer_url", "filer_endpoint", "filer_region", "http_hosts"})
    """The fields that are also read from the environment.

    They are not all fields, because the brokers of local mode inherit the environment, where SMQ_LISTEN is theirs.
    """

    listen: str = Field(
        f"127.0.0.1:{DEFAULT_PORT}", description="host:port of the control API; port 0 takes a free one"
    )
    http: str = Field("", description="host:port of the page for people, /healthz, /readyz and /metrics; default: none")
    http_hosts: str = Field(
        "",
        description="public names of the page for people behind a proxy or an Ingress, separated by commas; without "
        "one, --security=required serves it at loopback addresses only",
    )
    advertise: str = Field("", description="host or host:port for brokers and clients; default: where it listens")
    security: SecurityMode = Field(
        SecurityMode.DISABLED,
        description="required: all connections are encrypted, and callers need a token and rights; permissive: so, but "
        "callers in clear text may do everything, too; disabled: everybody may do everything",
    )
    oidc_issuer: str = Field(
        "", description="https:// URL of an OpenID Connect issuer whose tokens are taken, too; default: none"
    )
    oidc_audience: str = Field("", description="the audience of its tokens that are for this release")
    oidc_identity_claim: str = Field("sub", description="the claim that says who the caller is")
    oidc_groups_claim: str = Field("groups", description="the claim that says which groups the caller is in")
    oidc_prefix: str = Field("oidc:", description="comes before these identities and groups, as others may have them")
    client_ca_file: str = Field(
        "",
        description="a file with the authorities, in PEM, whose client certificates are taken, too; default: none",
    )
    client_ca_prefix: str = Field(
        "cert:", description="comes before the identities and groups of client certificates, as others may have them"
    )
    filer_url: str = Field("", description="where the log is kept, such as s3://bucket/prefix; required")
    filer_endpoint: str = Field("", description="the S3 endpoint, such as http://127.0.0.1:8333")
    filer_region: str = Field("", description="the S3 region")
    filer_session_role: str = Field(
        "",
        description="hands out temporary keys for the files of one topic to its readers: the ARN of the role that they "
        "have, or `own` for the operator's own rights, if the filer knows such sessions; default: none",
    )
    filer_timeout: float = Field(
        DEFAULT_TIMEOUT_SECONDS, gt=0, description="seconds that one request to the filer may take"
    )
    cleanup_interval: Duration = duration_field(_CLEANUP.retention_interval_us, "how often retention runs")
    removed_files_grace: Duration = duration_field(
        _CLEANUP.removed_files_grace_us, "how long files stay after retention removed their segment"
    )
    superseded_files_grace: str = Field(
        "",
        description="how long the small files stay after a merged file has replaced them, or unlimited; "
        "default: as --removed-files-grace",
    )
    max_pin_age: Duration = duration_field(
        _CLEANUP.max_pin_age_us,
        "how long after its creation a reader's pin keeps removed files, however often it is renewed",
    )
    deleted_topics_grace: Duration = duration_field(
        _CLEANUP.deleted_topics_grace_us, "how long the data of a deleted topic stays (policy Delete)"
    )
    orphaned_files_grace: Duration = duration_field(
        _CLEANUP.orphan_grace_us, "how old a file must be before it is deleted because nothing refers to it"
    )
    unreferenced_uploads_grace: Duration = duration_field(
        _CLEANUP.uploads_grace_us,
        "how old an upload must be before it is deleted because nothing refers to it; "
        "one that is older than half of it is not published any more",
    )
    orphan_check_interval: Duration = duration_field(
        _CLEANUP.orphan_check_interval_us, "how often orphaned files are searched for"
    )
    merge_files_below: Size = size_field(
        _MERGE.below_bytes, "files of sealed segments that are smaller are merged; at most 1Mi, and 0 merges none"
    )
    merge_files_after: Duration = duration_field(
        _MERGE.after_us, "how long after its seal a segment's files are merged"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="debug, info, warning or error")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Variables(settings_cls)

    @field_validator("listen", "http")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @field_validator("advertise")
    @classmethod
    def _advertises(cls, value: str) -> str:
        if value:
            advertised_address(value, 0)
        return value

    @field_validator("filer_url")
    @classmethod
    def _filer(cls, value: str) -> str:
        return required_filer_url(value)

    @field_validator("superseded_files_grace")
    @classmethod
    def _grace(cls, value: str) -> str:
        if value not in ("", UNLIMITED):
            parse_duration(value)
        return value

    @field_validator("merge_files_below")
    @classmethod
    def _small(cls, value: int) -> int:
        if value > MAX_SMALL_FILE_BYTES:
            raise ValueError(
                f"must be at most {size_text(MAX_SMALL_FILE_BYTES)}, so that the leader needs little memory: larger "
                "files are merged by `smq topic compact`"
            )
        return value

    @model_validator(mode="after")
    def _callers(self) -> Self:
        if self.external_callers != ExternalCallers() and not self.security.knows_callers:
            raise ValueError("--oidc-issuer and --client-ca-file need --security: an open release knows nobody")
        return self

    @property
    def public_hosts(self) -> list[str]:
        return self.http_hosts.lower().replace(",", " ").split()

    @property
    def page_at_loopback_only(self) -> bool:
        """The page knows no callers. Who names a proxy leaves it to that proxy who sees it."""
        return self.security is SecurityMode.REQUIRED and not self.public_hosts

    @property
    def external_callers(self) -> ExternalCallers:
        """Raises ValueError."""
        oidc, authority = None, None
        if self.oidc_issuer:
            oidc = OidcSettings(
                issuer=self.oidc_issuer,
                audience=self.oidc_audience,
                identity_claim=self.oidc_identity_claim,
                groups_claim=self.oidc_groups_claim,
                prefix=self.oidc_prefix,
            )
        if self.client_ca_file:
            authority = ClientAuthoritySettings(ca_file=Path(self.client_ca_file), prefix=self.client_ca_prefix)
        return ExternalCallers(oidc=oidc, client_authority=authority)

    @property
    def store(self) -> StoreSettings:
        """How to reach the filer. The credentials come from the AWS_ variables."""
        return store_settings(self.filer_url, self.filer_endpoint, self.filer_region, self.filer_timeout)

    @property
    def cleanup(self) -> CleanupSettings:
        return CleanupSettings(
            retention_interval_us=self.cleanup_interval,
            removed_files_grace_us=self.removed_files_grace,
            max_pin_age_us=self.max_pin_age,
            deleted_topics_grace_us=self.deleted_topics_grace,
            orphan_grace_us=self.orphaned_files_grace,
            orphan_check_interval_us=self.orphan_check_interval,
            uploads_grace_us=self.unreferenced_uploads_grace,
            superseded_files_grace_us=self._superseded_files_grace_us,
        )

    @property
    def _superseded_files_grace_us(self) -> int | None:
        given = self.superseded_files_grace
        if given == UNLIMITED:
            return None
        return parse_duration(given) if given else self.removed_files_grace

    @property
    def merge(self) -> MergeSettings:
        return MergeSettings(self.merge_files_below, self.merge_files_after)


class _Variables(EnvSettingsSource):
    """Reads only the fields in ``Settings.variables``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        if field_name not in getattr(self.settings_cls, "variables", ()):
            return None, field_name, False
        return super().get_field_value(field, field_name)


AnySettings = TypeVar("AnySettings", bound=Settings)


def add_flags(parser: argparse.ArgumentParser, settings: type[Settings]) -> None:
    """A flag for each field."""
    CliSettingsSource[argparse.ArgumentParser](
        settings, root_parser=parser, add_argument_method=add_argument, cli_kebab_case=True, cli_implicit_flags="toggle"
    )


def settings_from(settings: type[AnySettings], given: Mapping[str, Any]) -> AnySettings:
    """Flags as argparse parsed them take precedence over variables. Raises InvalidRequest with a line per mistake.

    The values bypass the decoding of CliSettingsSource, which splits ``--broker-arg=--leader=a,b`` at the comma and
    ignores an empty ``--http=``.
    """
    try:
        return settings(**given)
    except ValidationError as error:
        raise invalid_settings(settings, error) from None


def host_port(text: str) -> tuple[str, int]:
    """Host and port to listen at. Raises InvalidRequest."""
    try:
        host, port = split_address(text)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    return host or ALL_ADDRESSES, port


def advertised(settings: Settings, port: int) -> str:
    """The address that brokers and clients connect to, given the bound port."""
    if settings.advertise:
        return advertised_address(settings.advertise, port)
    return join_address(host_port(settings.listen)[0], port)
