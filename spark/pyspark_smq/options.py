"""The options of the data source: parsed once, at planning time, into one frozen value for each use.

Names are those of Spark's Kafka source where the meaning is the same. Names of secrets are such that Spark redacts
them (``secret|password|token|access[.]?key``). Spark hands all values over as text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pyspark_smq.errors import InvalidOption, nearest
from smq_core.errors import InvalidRequest
from smq_core.model.entities import SECOND, Micros
from smq_core.model.names import check_name
from smq_core.model.units import parse_duration
from smq_core.reading.pins import DEFAULT_LIFETIME, MIN_LIFETIME

if TYPE_CHECKING:
    import smq

MIB = 1024 * 1024
# As Spark's own ``spark.sql.files.maxPartitionBytes``.
DEFAULT_PARTITION_BYTES = 128 * MIB
DEFAULT_PUBLISH_TIMEOUT_SECONDS = 120.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Messages appended at or after this time, in microseconds since the Unix epoch."""

    micros: int


# Where to start or to end: positions are ``{segment: next offset}``.
Start: TypeAlias = "Literal['earliest', 'latest'] | Mapping[str, int] | Timestamp"


def micros_of(bound: Start) -> int | None:
    """A bound that is a time, in microseconds since the Unix epoch; None for any other."""
    return bound.micros if isinstance(bound, Timestamp) else None


# ``{segment: ((start, stop), ...)}``: the offsets ``start .. stop - 1`` of each pair, in order, without an overlap.
Ranges: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class Connection:
    """Which topic, and how to reach it. Can be sent to another process, with the filer's keys that a user gave.

    ``ca_file``, ``token_file``, ``cert_file`` and ``key_file`` are paths, because each process logs in to a secure
    release by itself.
    """

    topic: str
    leader: str | None = None
    namespace: str = "default"
    via: str | None = None
    filer: str | None = None
    filer_endpoint: str | None = None
    filer_region: str | None = None
    filer_access_key: str | None = field(default=None, repr=False)
    filer_secret_key: str | None = field(default=None, repr=False)
    filer_session_token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    token_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def arguments(self) -> dict[str, Any]:
        """All but the topic, as keyword arguments of ``smq.connect``."""
        return {
            "leader": self.leader,
            "namespace": self.namespace,
            "via": self.via,
            "filer_url": self.filer,
            "filer_endpoint": self.filer_endpoint,
            "filer_region": self.filer_region,
            "filer_access_key": self.filer_access_key,
            "filer_secret_key": self.filer_secret_key,
            "filer_session_token": self.filer_session_token,
            "ca_file": self.ca_file,
            "token_file": self.token_file,
            "cert_file": self.cert_file,
            "key_file": self.key_file,
        }

    def read_arguments(self) -> dict[str, Any]:
        """What is given, but the topic, as keyword arguments of ``pyspark_smq.read`` and ``pyspark_smq.by_segment``."""
        return {name: value for name, value in asdict(self).items() if name != "topic" and value is not None}

    def spark_options(self) -> dict[str, str]:
        """As options of ``format("smq")``."""
        return {"topic": self.topic} | {_camel_case(name): value for name, value in self.read_arguments().items()}

    def connect(self) -> smq.Client:
        """A client. Raises InvalidRequest if neither a leader nor a filer is given."""
        import smq

        return smq.connect(**self.arguments())


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A batch read. With ``ranges`` it is exactly these offsets; otherwise all from ``start`` to ``end``."""

    connection: Connection
    columns: tuple[str, ...] | None = None
    start: Start = "earliest"
    end: Start = "latest"
    ranges: Ranges | None = None
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = DEFAULT_PARTITION_BYTES
    files_only: bool = False
    push_filters: bool = False
    pin_lifetime: Micros = DEFAULT_LIFETIME
    """How long the read's own pin lives without a running task."""
    pin: str | None = None
    """The id of the pin that keeps the files, if whoever planned the read has one."""

    @staticmethod
    def parse(options: Mapping[str, str]) -> ReadOptions:
        """Raises InvalidOption."""
        given = _Given(options, (*_CONNECTION, *_SHARED, *_BATCH_ONLY), "a batch read", _STREAM_ONLY | _WRITE_ONLY)
        given.refuse_together("ranges", "startingPosition", "startingTimestamp", "endingPosition", "endingTimestamp")
        given.refuse_together("pin", "pinLifetime")
        return ReadOptions(
            _connection(given),
            **_shared(given),
            end=_bound(given, "ending", "latest"),
            ranges=given.take("ranges", _ranges, None),
            push_filters=given.take("pushFilters", _boolean, False),
            pin_lifetime=given.take("pinLifetime", _lifetime, DEFAULT_LIFETIME),
            pin=given.text("pin"),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """A streaming read. The limits are for one micro-batch; None is unlimited."""

    connection: Connection
    columns: tuple[str, ...] | None = None
    start: Start = "latest"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = DEFAULT_PARTITION_BYTES
    files_only: bool = False
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamOptions:
        """Raises InvalidOption."""
        given = _Given(
            options, (*_CONNECTION, *_SHARED, *_STREAM_ONLY), "a streaming read", set(_BATCH_ONLY) | _WRITE_ONLY
        )
        given.refuse_together("maxRowsPerTrigger", "maxOffsetsPerTrigger")
        rows = given.take("maxRowsPerTrigger", _positive, None)
        return StreamOptions(
            _connection(given),
            **_shared(given, default="latest"),
            max_rows_per_trigger=rows if rows is not None else given.take("maxOffsetsPerTrigger", _positive, None),
            max_bytes_per_trigger=given.take("maxBytesPerTrigger", _size, None),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write, batch or stream. ``txn_app_id`` and ``txn_version`` make a batch write idempotent."""

    connection: Connection
    txn_app_id: str | None = None
    txn_version: int | None = None
    timeout: float = DEFAULT_PUBLISH_TIMEOUT_SECONDS

    @staticmethod
    def parse(options: Mapping[str, str], *, stream: bool = False) -> WriteOptions:
        """Raises InvalidOption."""
        # Spark adds the options of a stream's writer itself: where its checkpoint is, and its name.
        ignored = {"checkpointlocation", "queryname", "path"}
        kept = {name: value for name, value in options.items() if name.lower() not in ignored}
        given = _Given(kept, (*_CONNECTION, *_WRITE_ONLY), "a write", {*_SHARED, *_BATCH_ONLY, *_STREAM_ONLY})
        if stream and (given.text("txnAppId") or given.text("txnVersion")):
            raise InvalidOption(
                "the options txnAppId and txnVersion are for batch writes. A stream publishes each micro-batch once by "
                "the id in its checkpoint. With a new checkpoint its ids begin at 0 again, so under the app of another "
                "query its rows would count as published",
                option="txnAppId",
            )
        given.need_together("txnAppId", "txnVersion")
        return WriteOptions(
            _connection(given, writes=True),
            txn_app_id=given.app(),
            txn_version=given.take("txnVersion", _natural, None),
            timeout=given.take("timeout", _seconds, DEFAULT_PUBLISH_TIMEOUT_SECONDS),
        )


_CONNECTION = (
    "topic",
    "leader",
    "namespace",
    "via",
    "filer",
    "filerEndpoint",
    "filerRegion",
    "filerAccessKey",
    "filerSecretKey",
    "filerSessionToken",
    "caFile",
    "tokenFile",
    "certFile",
    "keyFile",
)
_SHARED = (
    "columns",
    "startingPosition",
    "startingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxPartitionBytes",
    "filesOnly",
)
_BATCH_ONLY = ("endingPosition", "endingTimestamp", "ranges", "pushFilters", "pin", "pinLifetime")
_STREAM_ONLY = {"maxRowsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger"}
_WRITE_ONLY = {"txnAppId", "txnVersion", "timeout"}

_KAFKA_NAMES = {
    "subscribe": "topic",
    "kafka.bootstrap.servers": "leader",
    "startingoffsets": "startingPosition",
    "endingoffsets": "endingPosition",
}


class _Given:
    """The options of one use. Unknown ones are refused."""

    def __init__(
        self, options: Mapping[str, str], allowed: tuple[str, ...], use: str, elsewhere: set[str] | frozenset[str]
    ) -> None:
        names = {name.lower(): name for name in allowed}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            known = names.get(name.lower())
            if known is None:
                raise InvalidOption(_unknown(name, use, allowed, elsewhere), option=name)
            self._values[known] = value

    def text(self, name: str) -> str | None:
        """An empty text is no text."""
        return self._values.get(name) or None

    def app(self) -> str | None:
        """Checked before a task uploads a row."""
        name = self._values.get("txnAppId")
        if name is not None:
            try:
                check_name("an app's name", name)
            except InvalidRequest as error:
                raise InvalidOption(f"the option txnAppId: {error.message}", option="txnAppId") from None
        return name

    def take(self, name: str, parse: Callable[[str], T], default: Any) -> Any:
        value = self._values.get(name)
        if value is None:
            return default
        try:
            return parse(value.strip())
        except (ValueError, OverflowError) as error:
            raise InvalidOption(f"the option {name} is {value!r}, but {error}", option=name) from None

    def refuse_together(self, name: str, *others: str) -> None:
        clashing = [other for other in others if other in self._values]
        if name in self._values and clashing:
            raise InvalidOption(
                f"the options {name} and {clashing[0]} exclude each other: give one of them", option=name
            )

    def need_together(self, *names: str) -> None:
        missing = [name for name in names if name not in self._values]
        if missing and len(missing) < len(names):
            raise InvalidOption(f"the options {' and '.join(names)} belong together: {missing[0]} is missing")


def _unknown(name: str, use: str, allowed: tuple[str, ...], elsewhere: set[str] | frozenset[str]) -> str:
    if name.lower() == "token":
        return (
            "there is no option 'token', because plans and logs of Spark would show it: give tokenFile, the path of a "
            "file that driver and executors can read"
        )
    if name.lower() in _KAFKA_NAMES:
        return f"there is no option {name!r}: what Kafka's source calls so is {_KAFKA_NAMES[name.lower()]!r} here"
    if any(name.lower() == other.lower() for other in elsewhere):
        return f"the option {name!r} has no meaning for {use}"
    return f"there is no option {name!r} for {use}{nearest(name, allowed)}"


def _connection(given: _Given, writes: bool = False) -> Connection:
    topic = given.text("topic")
    if topic is None:
        raise InvalidOption(
            "the option topic is missing: name the topic, as 'name' or 'namespace/name'", option="topic"
        )
    if writes and not any((given.text("leader"), given.text("via"), os.environ.get("SMQ_LEADER"))):
        raise InvalidOption("the option leader is missing: a write needs the leader (host:port)", option="leader")
    given.need_together("filerAccessKey", "filerSecretKey")
    if given.text("filerSessionToken") is not None and given.text("filerAccessKey") is None:
        raise InvalidOption("the option filerSessionToken belongs to filerAccessKey and filerSecretKey: give all three")
    return Connection(
        topic,
        leader=given.text("leader"),
        namespace=given.text("namespace") or "default",
        via=given.text("via"),
        filer=given.text("filer"),
        filer_endpoint=given.text("filerEndpoint"),
        filer_region=given.text("filerRegion"),
        filer_access_key=given.text("filerAccessKey"),
        filer_secret_key=given.text("filerSecretKey"),
        filer_session_token=given.text("filerSessionToken"),
        ca_file=given.text("caFile"),
        token_file=given.text("tokenFile"),
        cert_file=given.text("certFile"),
        key_file=given.text("keyFile"),
    )


def _shared(given: _Given, default: Literal["earliest", "latest"] = "earliest") -> dict[str, Any]:
    return {
        "columns": given.take("columns", _names, None),
        "start": _bound(given, "starting", default),
        "fail_on_data_loss": given.take("failOnDataLoss", _boolean, True),
        "min_partitions": given.take("minPartitions", _positive, None),
        "max_partition_bytes": given.take("maxPartitionBytes", _size, DEFAULT_PARTITION_BYTES),
        "files_only": given.take("filesOnly", _boolean, False),
    }


def _bound(given: _Given, which: Literal["starting", "ending"], default: Literal["earliest", "latest"]) -> Start:
    given.refuse_together(f"{which}Position", f"{which}Timestamp")
    time: Timestamp | None = given.take(f"{which}Timestamp", parse_timestamp, None)
    found: Start = given.take(f"{which}Position", _position, default)
    if which == "ending" and found == "earliest":
        raise InvalidOption("the option endingPosition cannot be 'earliest': nothing would be read")
    return time if time is not None else found


def parse_timestamp(text: str) -> Timestamp:
    """ISO 8601, in UTC if it has no zone, or milliseconds since the Unix epoch, as Kafka's source has them.

    Raises ValueError.
    """
    if text.lstrip("-").isdigit():
        return Timestamp(int(text) * 1000)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a time is like 2026-01-31T12:00:00Z, or milliseconds since 1970") from None
    return timestamp_of(time)


def timestamp_of(time: datetime) -> Timestamp:
    """Without a zone it is in UTC."""
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return Timestamp((time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))


def _position(text: str) -> Start:
    if text.lower() in ("earliest", "latest"):
        return "earliest" if text.lower() == "earliest" else "latest"
    found = _json_object(text, 'it must be earliest, latest or JSON like {"flights-0-64-0": 17}')
    for segment, offset in found.items():
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"the offset of {segment} must be 0 or more, not {offset!r}")
    return found


def _ranges(text: str) -> Ranges:
    found = _json_object(text, 'it must be JSON like {"flights-0-64-0": [[0, 17]]}')
    return {segment: _ranges_of(segment, pairs) for segment, pairs in found.items()}


def _ranges_of(segment: str, pairs: Any) -> tuple[tuple[int, int], ...]:
    problem = ValueError(f"the ranges of {segment} must be pairs of offsets in order, like [[0, 17]], not {pairs!r}")
    if not isinstance(pairs, list):
        raise problem
    at, checked = 0, []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(offset) is int for offset in pair)):
            raise problem
        start, stop = pair
        if not at <= start <= stop:
            raise problem
        at = stop
        checked.append((start, stop))
    return tuple(checked)


def _json_object(text: str, advice: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError(advice) from None
    if not isinstance(found, dict):
        raise ValueError(advice)
    return found


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("it must be names of columns with a comma between them")
    if len(set(names)) != len(names):
        raise ValueError("it names a column twice")
    return names


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _natural(text: str) -> int:
    if not text.isdigit():
        raise ValueError("it must be a whole number, 0 or more")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise ValueError("it must be a whole number, 1 or more")
    return int(text)


def _lifetime(text: str) -> Micros:
    found = parse_duration(text)
    if found < MIN_LIFETIME:
        raise ValueError(f"it must be {MIN_LIFETIME // SECOND} seconds or longer")
    return found


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise ValueError("it must be a number of seconds above 0")
    return found


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _size(text: str) -> int:
    """As Spark's own sizes: ``128m``, ``134217728``."""
    number = text.rstrip("bBkKmMgGtTiI")
    unit = text[len(number) :].lower()
    unit = unit.removesuffix("b").removesuffix("i") or unit[:1]
    if not number.isdigit() or not int(number) or unit not in _UNITS:
        raise ValueError("it must be a size like 134217728, 128m or 1g")
    return int(number) * _UNITS[unit]
