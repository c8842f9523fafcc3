"""Topics change by manifests and options: `smq apply`, `smq diff`, `smq topic alter`, `smq topic export`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.broker_shortage import warn_of_manifest
from smq.cli.connection.filer_watch import filer_named
from smq.cli.connection.session import CommandFailed, TopicName, client, command, confirm, out, print_error, print_note
from smq.cli.output import formatting
from smq.cli.output.rendering import Output, OutputOption, print_value
from smq.cli.setting_options import with_settings
from smq_core.errors import InvalidRequest, SmqError

if TYPE_CHECKING:
    from smq import Admin, AlteredTopic, AppliedTopic, TopicChange
    from smq.cli.files.manifest_files import ManifestInFile

# The exit code of `smq diff` if there is an error, because 1 says that something differs.
FAILED = 2

Files = Annotated[
    list[str], typer.Option("-f", "--filename", metavar="FILE|-", help="A topic manifest file; - is stdin.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command
def apply(files: Files, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Create or change topics from manifests, and show what changes.

    A manifest says everything about its topic: a field that it leaves out gets its default. A change that loses
    something, such as a lower retention or fewer replicas, needs a confirmation or --yes.

    Nothing is applied if a file is not YAML. A manifest that is refused does not keep the others from being applied.
    """
    manifests = _read(files)
    refused = False
    with client() as connected:
        for manifest in manifests:
            try:
                with filer_named(connected):
                    _apply(connected.admin(), manifest, dry_run, yes)
            except InvalidRequest as error:
                print_error(manifest.locate(error.message))
                refused = True
            except CommandFailed as error:
                print_error(str(error))
                refused = True
    if refused:
        raise typer.Exit(1)


def _apply(admin: Admin, manifest: ManifestInFile, dry_run: bool, yes: bool) -> None:
    planned = admin.apply(manifest.text, preview=True)
    name = formatting.topic(planned.topic)
    if dry_run:
        out.print(f"topic {name} {planned.result} (dry run)")
        _print_changes(planned.changes)
        return
    _confirm_risks(name, planned.changes, yes, f"`smq topic export {name}` prints a manifest with its present settings")
    applied = admin.apply(manifest.text)
    out.print(f"topic {name} {applied.result}")
    _print_changes(applied.changes)
    if applied.result == "created":
        note_retention(applied)
    if applied.result != "unchanged":
        warn_of_manifest(admin, manifest.text)


def _confirm_risks(name: str, changes: Iterable[TopicChange], yes: bool, advice: str) -> None:
    risky = [change for change in changes if change.risk]
    if not risky or yes:
        return
    lines = "\n".join(f"  {change}" for change in risky)
    try:
        confirmed = confirm(f"Topic {name} would change:\n{lines}\nChange it?")
    except CommandFailed as error:
        raise CommandFailed(
            f"topic {name} is not changed, because this loses something:\n{lines}\n{error}. {advice}"
        ) from None
    if not confirmed:
        raise CommandFailed(f"topic {name} is not changed")


def note_retention(applied: AppliedTopic) -> None:
    """Says how long a new topic keeps messages, because nobody expects them to go who was not told."""
    from smq_storage.topic_manifests.parser import parse_manifest  # imported late: it loads YAML
    from smq_storage.topic_manifests.topic_settings import settings_of

    found = {it.field: it for it in settings_of(parse_manifest(applied.after).spec)}
    age, size = found["retention.age"], found["retention.bytes"]
    name = formatting.topic(applied.topic)
    most = f", and at most {size.value}" if not size.is_default else ""
    kept = "without a limit of age" if age.value == "unlimited" else f"for {age.value}"
    default = f" (the default; `smq topic alter {name} --retention …` changes it)" if age.is_default else ""
    print_note(f"messages are kept {kept}{most}{default}")


@command
def diff(files: Files) -> None:
    """Show what `smq apply` would change, as a diff of whole manifests.

    The exit code is 0 if nothing would change, 1 if something would, and 2 if a manifest is refused.
    """
    with _errors_as(FAILED):
        manifests = _read(files)
        differs = False
        with client() as connected:
            for manifest in manifests:
                try:
                    planned = connected.admin().apply(manifest.text, preview=True)
                except InvalidRequest as error:
                    print_error(manifest.locate(error.message))
                    raise typer.Exit(FAILED) from None
                differs |= planned.before != planned.after
                _print_diff(planned)
    if differs:
        raise typer.Exit(1)


@contextmanager
def _errors_as(code: int) -> Iterator[None]:
    try:
        yield
    except (SmqError, OSError) as error:
        print_error(error.message if isinstance(error, SmqError) else str(error))
        raise typer.Exit(code) from None


def _print_diff(planned: AppliedTopic) -> None:
    name = formatting.topic(planned.topic)
    lines = difflib.unified_diff(
        planned.before.splitlines(), planned.after.splitlines(), f"{name} (now)", f"{name} (applied)", lineterm=""
    )
    for line in lines:
        out.print(line)


@command
def export(topic: TopicName) -> None:
    """Print a topic's manifest with every field, for `smq apply` or `kubectl apply`."""
    with client() as connected:
        print(connected.admin().export(topic), end="")


@command
@with_settings(defaults=False)
def alter(
    topic: TopicName,
    add: Annotated[
        list[str] | None, typer.Option("--add-column", metavar="NAME:TYPE", help="Add a nullable column.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop-column", metavar="NAME", help="Drop a nullable column; its name is never used again."),
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option("--widen-column", metavar="NAME:TYPE", help="To a wider integer, or float32 to float64."),
    ] = None,
    nullable: Annotated[
        list[str] | None, typer.Option("--make-nullable", metavar="NAME", help="Let the column be null.")
    ] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="FIELD", help="Give a field its default, such as retention.age."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
    *,
    settings: dict[str, Any],
) -> None:
    """Change settings or columns of a topic. Everything else stays, and producers and consumers go on.

    A change of columns, or one that loses something, such as a lower retention or fewer replicas, needs a confirmation
    or --yes.

    Options for columns and --reset can be repeated. All columns of one command make one new version of the schema.
    """
    columns: dict[str, Any] = {
        "add_columns": _types_by_name(add, "--add-column"),
        "drop_columns": drop or [],
        "widen_columns": _types_by_name(widen, "--widen-column"),
        "make_nullable": nullable or [],
    }
    fields = settings | {field.removeprefix("spec."): None for field in reset or []}
    if not any(columns.values()) and not fields:
        raise InvalidRequest(
            "nothing to change: add an option such as --retention or --add-column; `smq topic alter --help` lists them"
        )
    with client() as connected:
        admin = connected.admin()
        done = admin.alter_topic(topic, **columns, settings=fields, preview=True)
        name = formatting.topic(done.topic)
        if not dry_run and done.changes:
            if any(columns.values()) and not yes:
                _print_preview(done)
                if not confirm(f"Change topic {name}?"):
                    raise CommandFailed("nothing was changed")
            else:
                _confirm_risks(name, done.changes, yes, f"`smq topic describe {name}` shows its present settings")
            with filer_named(connected, see=f"smq topic describe {name}"):
                done = admin.alter_topic(topic, **columns, settings=fields)
    if print_value(output, done):
        return
    if dry_run:
        _print_preview(done)
        return
    out.print(f"topic {name} {'configured' if done.changes else 'unchanged'}")
    _print_changes(done.changes)
    if done.changes and any(columns.values()):
        out.print(f"topic {name} has schema version {done.schema_version} now")


def _read(files: list[str]) -> list[ManifestInFile]:
    from smq.cli.files.manifest_files import read_manifests  # imported late: it loads YAML

    return [manifest for file in files for manifest in read_manifests(file)]


def _types_by_name(options: list[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in options or []:
        name, colon, type_ = text.partition(":")
        if not (name and colon and type_):
            raise InvalidRequest(f"{option} needs NAME:TYPE, such as gate:uint8, not {text!r}")
        if name in found:
            raise InvalidRequest(f"{option} names column {name} twice")
        found[name] = type_.strip()
    return found


def _print_preview(altered: AlteredTopic) -> None:
    out.print(f"topic {formatting.topic(altered.topic)}, schema version {altered.schema_version}:")
    if altered.changes:
        _print_changes(altered.changes)
    else:
        out.print("  nothing changes")


def _print_changes(changes: Iterable[TopicChange]) -> None:
    for change in changes:
        out.print(f"  {change}")
