"""The commands of the pages about Spark that need a cluster or a registry are valid, and name what is there."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from support.doc_blocks import REPOSITORY, console_blocks, fenced

PAGES = ("docs/spark.md", "docs/spark-pipeline.md", "docs/maintenance.md")
NO_OPTION = "--no-option-of-any-job"
SUBMITS = [(page, block) for page in PAGES[:2] for block in fenced(page, "bash") if block.startswith("spark-submit")]
COMMANDS = [command for page in PAGES for block in console_blocks(page) for command, _ in block]


def jobs_of(text: str) -> set[str]:
    """Each job of a text with its arguments, as one line: in blocks, in sentences, and in comments of blocks."""
    text = text.replace("\\\n", " ")
    typed = re.findall(r"smq (?:--leader \S+ )?spark ((?:--conf \S+ )*[a-z-]+ --[^`#\n]+)", text)
    submitted = re.findall(r"local:///app/jobs/(\w+)\.py ([^`\n]+)", text)
    return {re.sub(r"^(--conf \S+ )*", "", line).strip() for line in typed} | {
        f"{name.replace('_', '-')} {arguments.strip()}" for name, arguments in submitted
    }


JOBS = sorted({job for page in PAGES for job in jobs_of((REPOSITORY / page).read_text())})


def test_the_jobs_are_found() -> None:
    assert {job.split()[0] for job in JOBS} == {"backfill", "compact", "flights-hourly", "verify"}


@pytest.mark.parametrize("line", JOBS)
def test_a_job_takes_its_arguments(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The parser ends before Spark starts, because of one more option: it is the only one that is unknown."""
    name, *arguments = shlex.split(line)
    job = importlib.import_module(f"pyspark_smq.jobs.{name.replace('-', '_')}")
    if arguments == ["--help"]:
        arguments, ends = ["--help"], "show this help message"
    else:
        arguments, ends = [*arguments, NO_OPTION], f"error: unrecognized arguments: {NO_OPTION}\n"
    with pytest.raises(SystemExit):
        job.main(arguments)
    captured = capsys.readouterr()
    assert ends in captured.out + captured.err


@pytest.mark.parametrize(("page", "block"), SUBMITS, ids=[page for page, _ in SUBMITS])
def test_a_submission_is_a_script_whose_files_are_there(page: str, block: str) -> None:
    subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    for named in re.findall(r"=(examples/\S+)", block):
        assert (REPOSITORY / named).is_file(), named
    for job in re.findall(r"local:///app/jobs/(\S+)", block):
        assert (REPOSITORY / "spark" / "pyspark_smq" / "jobs" / job).is_file(), job
    name = re.findall(r"spark\.kubernetes\.driver\.pod\.name=(\S+)", block)
    assert re.findall(r"--name (\S+)", block) == name == re.findall(r"^kubectl logs .* (\S+)$", block, re.MULTILINE)


def test_both_submissions_have_the_same_settings_of_kubernetes() -> None:
    """Those of spark.md are what the tests on nodes submit with."""
    first, second = (
        dict(re.findall(r"--conf (spark\.(?:kubernetes|executor|driver)\.\S+?)=(\S+)", block)) for _, block in SUBMITS
    )
    assert first.items() - second.items() == {("spark.kubernetes.driver.pod.name", "verify-flights")}


def test_the_image_is_built_from_a_file_of_this_version() -> None:
    (build,) = [command for command in COMMANDS if command.startswith("docker build")]
    built, _, pushed = build.partition(" && docker push ")
    words = shlex.split(built)
    assert (REPOSITORY / words[words.index("-f") + 1]).is_file() and words[-1] == "."
    tag = words[words.index("-t") + 1]
    chart = yaml.safe_load((REPOSITORY / "charts" / "seaweedmq" / "Chart.yaml").read_text())
    assert tag == pushed and tag.endswith(f":{chart['appVersion']}")


def test_the_extra_that_is_installed_exists() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    installs = [command for command in COMMANDS if command.startswith("pip install")]
    assert [re.findall(r"'\.\[(\w+)\]'", command) for command in installs] == [["spark"]]
    assert "spark" in project["optional-dependencies"]


def test_the_pipeline_of_the_overview_is_that_of_its_page() -> None:
    """So the commands there are run by the tests of the page."""
    (overview,) = [block for block in fenced("docs/spark.md", "bash") if block.startswith("smq apply")]
    page = {line for block in console_blocks("docs/spark-pipeline.md") for line, _ in block}
    assert set(overview.splitlines()) <= page


def test_every_named_example_exists() -> None:
    named = {
        path for page in PAGES for path in re.findall(r"\bexamples/[\w/.-]+\.yaml", (REPOSITORY / page).read_text())
    }
    assert named and [path for path in named if not (REPOSITORY / Path(path)).is_file()] == []
