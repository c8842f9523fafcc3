"""Values that all APIs of groups have in common."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from smq_core.kafka_groups.group_errors import GroupError
from smq_core.model.entities import Micros


def code(error: GroupError) -> ErrorCode:
    return ErrorCode(int(error))


def micros(time: timedelta) -> Micros:
    return time // timedelta(microseconds=1)


def timedelta_of(time: Micros) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(microseconds=time))
