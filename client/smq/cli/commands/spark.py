"""`smq spark`: starts the jobs of pyspark_smq by spark-submit. It imports neither, because they are another extra."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from smq.cli.connection.session import leader_address, relay_address, reported, security_options
from smq_core.errors import InvalidRequest, Unavailable
from smq_storage.process.extras import install_command

PACKAGE = "pyspark_smq.jobs"
NO_JOBS = ("arguments", "late_rows")


app = typer.Typer(add_completion=False)


# Options after the job's name are the job's, --help too.
@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
@reported
def spark(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="compact, backfill, verify, flights-hourly, ...")],
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    packages: Annotated[
        str | None, typer.Option(metavar="GROUP:NAME:VERSION,...", help="Jars that Spark fetches, such as S3A's.")
    ] = None,
) -> None:
    """Run a job of the data pipeline on Spark, such as: smq spark compact --topic flights

    What follows JOB are the job's own arguments; `smq spark compact --help` lists them.
    """
    submit, program = find_submit(), find_job(job)
    words = [str(submit), "--master", master]
    for setting in conf or ():
        words += ["--conf", setting]
    if packages:
        words += ["--packages", packages]
    os.execve(submit, [*words, str(program), *context.args], spark_environment(context.args))


def find_submit() -> Path:
    """The spark-submit of the installed PySpark. Raises Unavailable, which says what to install."""
    pyspark, jobs = importlib.util.find_spec("pyspark"), importlib.util.find_spec("pyspark_smq")
    if pyspark is None or pyspark.origin is None or jobs is None:
        raise Unavailable(f"Spark is not installed: {install_command('spark')}")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        raise Unavailable(
            "Spark needs Java 17 or newer: install it (Debian: openjdk-17-jre-headless), or set JAVA_HOME"
        )
    return Path(pyspark.origin).parent / "bin" / "spark-submit"


def find_job(name: str) -> Path:
    """The program of a job. Raises InvalidRequest with the jobs that there are."""
    package = importlib.util.find_spec(PACKAGE)
    assert package is not None and package.submodule_search_locations is not None
    folder = Path(next(iter(package.submodule_search_locations)))
    jobs = {path.stem.replace("_", "-"): path for path in folder.glob("[a-z]*.py") if path.stem not in NO_JOBS}
    if name not in jobs:
        raise InvalidRequest(f"there is no job {name}; the jobs are {', '.join(sorted(jobs))}")
    return jobs[name]


def spark_environment(arguments: Sequence[str]) -> dict[str, str]:
    """This process's, and which Python and which leader the job uses. A job that reads a filer needs no leader."""
    leader = None if "--filer" in arguments else leader_address()
    security = security_options() if leader is not None else {}
    given = {"SMQ_LEADER": leader, "SMQ_VIA": relay_address()}
    given |= {f"SMQ_{name.upper()}": str(Path(str(path)).absolute()) for name, path in security.items()}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **python, **{name: value for name, value in given.items() if value}}
