"""The options of `smq topic create` and `smq topic alter` that set fields of a topic's spec."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer


class SettingOption(NamedTuple):
    """One option: the field that it sets, by its path in the manifest, and the field's default as text."""

    option: str
    field: str
    metavar: str
    default: str
    help: str
    kind: type = str


SETTING_OPTIONS = (
    SettingOption(
        "--retention", "retention.age", "AGE", "7d", "How long messages are kept, such as 30d or 12h; or unlimited."
    ),
    SettingOption(
        "--retention-bytes",
        "retention.bytes",
        "SIZE",
        "unlimited",
        "How much is kept, such as 1Ti: then the oldest messages go first.",
    ),
    SettingOption(
        "--retention-unread",
        "retention.unread",
        "Keep|Expire",
        "Keep",
        "Whether retention waits for consumer groups that have not read a message.",
    ),
    SettingOption(
        "--abandoned-after",
        "retention.abandonedAfter",
        "AGE",
        "7d",
        "Retention does not wait for a group without members for that long; or unlimited.",
    ),
    SettingOption(
        "--durability",
        "durability",
        "Replicated|Stored",
        "Replicated",
        "Acked when all replicas have it, or when it is in the filer.",
    ),
    SettingOption("--replicas", "replicas", "NUMBER", "2", "Brokers that hold the newest messages.", int),
    SettingOption("--segments-min", "segments.min", "NUMBER", "1", "The least number of segments.", int),
    SettingOption(
        "--segments-max", "segments.max", "NUMBER", "64", "The most segments under load, at most one a slot.", int
    ),
    SettingOption(
        "--target-messages",
        "scaling.target.messagesPerSecond",
        "NUMBER",
        "50000",
        "Messages a second above which a segment splits.",
        int,
    ),
    SettingOption(
        "--target-bytes",
        "scaling.target.bytesPerSecond",
        "SIZE",
        "32Mi",
        "Bytes a second above which a segment splits.",
    ),
    SettingOption("--split-after", "scaling.splitAfter", "DURATION", "5s", "How long above the target before a split."),
    SettingOption("--merge-after", "scaling.mergeAfter", "DURATION", "5m", "How long far below it before a merge."),
    SettingOption("--flush-bytes", "flush.bytes", "SIZE", "32Mi", "The size at which messages become a file."),
    SettingOption("--flush-interval", "flush.interval", "DURATION", "10s", "The age at which they do."),
    SettingOption(
        "--flush-max-interval",
        "flush.maxInterval",
        "DURATION",
        "none",
        "The age at which they do in a segment with little traffic.",
    ),
    SettingOption(
        "--roll-bytes", "roll.bytes", "SIZE", "8Gi", "The size at which a segment is continued by a new one."
    ),
    SettingOption("--roll-age", "roll.age", "DURATION", "1d", "The age at which it is."),
    SettingOption(
        "--deletion-policy",
        "deletionPolicy",
        "Retain|Delete",
        "Retain",
        "Whether the files go with the topic when it is deleted.",
    ),
    SettingOption(
        "--kafka-cleanup-policy",
        "kafka.cleanupPolicy",
        "Delete|Compact",
        "Delete",
        "What Kafka's clients are told; nothing is compacted.",
    ),
)


def with_settings(*, defaults: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command all options above. It gets those of the command line as ``settings``: values by field.

    ``defaults``: whether its help shows the defaults.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != "settings"]

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            given = {it.field: kwargs.pop(_name(it)) for it in SETTING_OPTIONS}
            function(*args, **kwargs, settings={field: value for field, value in given.items() if value is not None})

        options = [
            inspect.Parameter(
                _name(it), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(it, defaults)
            )
            for it in SETTING_OPTIONS
        ]
        run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return run

    return decorate


def _name(setting: SettingOption) -> str:
    return setting.option.removeprefix("--").replace("-", "_")


def _annotation(setting: SettingOption, defaults: bool) -> Any:
    shown = setting.default if defaults else False
    option = typer.Option(setting.option, metavar=setting.metavar, help=setting.help, show_default=shown)
    return Annotated[setting.kind | None, option]
