"""`smq example`: topic manifests that come with the package."""

from __future__ import annotations

from typing import Annotated

import typer

from smq.cli.connection.session import out, reported
from smq_core.errors import InvalidRequest

PACKAGE = "smq.cli.examples"


@reported
def example(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An example. Without a name they are listed.")
    ] = None,
) -> None:
    """Print a topic manifest to start from, such as: smq example events | smq apply -f -"""
    manifests = example_manifests()
    if name is None:
        for known, text in manifests.items():
            out.print(f"{known:<12}{text.splitlines()[0].lstrip('# ').partition(' `')[0]}")
        return
    if name not in manifests:
        raise InvalidRequest(f"there is no example {name}; there are {', '.join(manifests)}")
    print(manifests[name], end="")


def example_manifests() -> dict[str, str]:
    """The text of each example, by name."""
    from importlib.resources import files  # imported late, like all that most commands do not need

    found = sorted(files(PACKAGE).iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file.read_text() for file in found if file.name.endswith(".yaml")}
