"""Imports the module of a command when the command is used, so that no command waits for what others need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar, cast

import typer
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """A group whose commands are those of ``targets``, see :class:`CommandTable`."""

    targets: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *, commands: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(MutableMapping[str, Any], CommandTable(self.targets))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


class CommandTable(Mapping[str, Any]):
    """Commands by name. Each is imported at its first use.

    A target is ``module:attribute``. A function there becomes a command. A ``typer.Typer`` becomes a group, or a
    command if it has one command only.
    """

    def __init__(self, targets: Mapping[str, str]) -> None:
        self._targets = targets
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._targets[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


def _load(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    app = getattr(import_module(module), attribute)
    if not isinstance(app, typer.Typer):
        function, app = app, typer.Typer(add_completion=False)
        app.command()(function)
    command = typer.main.get_command(app)
    command.name = name
    _reflow_help(command)
    return command


def _reflow_help(command: Any) -> None:
    """Joins the lines of each paragraph, so that every terminal breaks them at its own width."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs) or None
    children = getattr(command, "commands", {})
    if not isinstance(children, CommandTable):
        for child in children.values():
            _reflow_help(child)
