"""The settings of ``smq-operator local``."""

from __future__ import annotations

import shlex
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from smq_core.model.addresses import join_address, split_address
from smq_core.scaling.broker_fleet import SCALE_IN_AFTER, FleetPolicy
from smq_operator.runtime.settings import Settings
from smq_storage.process.shared_settings import Duration, Size, duration_field, size_field


class LocalSettings(Settings):
    """Brokers are child processes: ``brokers`` of them, or up to ``max_brokers`` if the load requires it."""

    folder: Path = Field(
        validation_alias="dir", description="the folder with topics, brokers, logs and the leader's lock"
    )
    brokers: int = Field(3, ge=0, description="how many brokers run")
    max_brokers: int | None = Field(None, description="the most brokers that load may start; default: --brokers")
    broker_capacity: Size = size_field(100 * 2**20, "bytes per second that one broker can carry")
    scale_in_after: Duration = duration_field(SCALE_IN_AFTER, "how long one broker fewer must have been enough")
    broker_memory: str = Field("1Gi", description="memory of each broker")
    kafka: str = Field(
        "",
        description="host:port of the first broker's listener for Kafka clients; the others take the following ports",
    )
    broker_args: tuple[str, ...] = Field(
        (), validation_alias="broker_arg", description="a flag for every broker, such as --broker-arg=--zone=a"
    )
    wrapper: str = Field(
        "",
        validation_alias="broker_wrapper",
        description="a command that runs each broker's command by exec, such as 'nice -n 5'; SMQ_NAME is the broker",
    )
    journal: bool = Field(
        True, description="do not write the tails of segments to DIR too, so that they outlive killed processes"
    )
    keep_brokers: bool = Field(False, description="leave brokers running when the leader stops")

    @field_validator("kafka")
    @classmethod
    def _listens(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @field_validator("folder")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.resolve()

    @field_validator("max_brokers")
    @classmethod
    def _at_least_brokers(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("brokers", 0):
            raise ValueError(f"{value} is below --brokers {info.data['brokers']}: raise it")
        return value

    @field_validator("scale_in_after", mode="before")
    @classmethod
    def _default_if_empty(cls, value: object) -> object:
        return SCALE_IN_AFTER if value == "" else value

    @field_validator("wrapper")
    @classmethod
    def _command(cls, value: str) -> str:
        try:
            shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is no command: {error}") from None
        return value

    def arguments_of(self, number: int) -> list[str]:
        """The flags of one broker; the first one has number 1."""
        if not self.kafka:
            return []
        host, port = split_address(self.kafka)
        return ["--kafka", join_address(host, port + number - 1)]

    @property
    def broker_wrapper(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.wrapper))

    @property
    def fleet_policy(self) -> FleetPolicy | None:
        """None if the number of brokers is fixed."""
        if self.max_brokers is None:
            return None
        minimum = max(self.brokers, 1)
        return FleetPolicy(
            minimum=minimum,
            maximum=max(self.max_brokers, minimum),
            bytes_per_second=self.broker_capacity,
            scale_in_after=self.scale_in_after,
        )
