"""The reference that is generated is that of the code, and the pages about it name the same things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import smq
from tools.reference import ROOT, TARGET, declared_metrics, manifest_page, pages
from tools.site_links import DOCS, without_outside_links

PAGES = pages()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (TARGET / name).read_text() == PAGES[name], "run `make reference`"


def test_every_metric_is_explained_and_every_explained_one_exists() -> None:
    declared = {
        re.sub(r"_total$", "", row[0].strip("`"))
        for folder in ("broker/smq_broker", "operator/smq_operator")
        for row in declared_metrics(ROOT / folder)
    }
    explained = {
        re.sub(r"_total$", "", name)
        for line in (DOCS / "metrics.md").read_text().splitlines()
        if line.startswith("| `smq_")
        for name in re.findall(r"`(smq_\w+)`", line.split("|")[1])
    }
    assert declared == explained


def test_a_field_of_the_manifest_has_its_default_and_limits() -> None:
    crd = yaml.safe_load((ROOT / "crds" / "topics.yaml").read_text())
    page = manifest_page(crd)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert all(f"| `{name}` |" in page for name in spec["properties"])
    assert "| `partitions` | integer | `1024` | at least 1; at most 65536 |" in page
    assert "- `spec.replicas`" in page or "replicas must be at least 2" in page


def test_links_to_files_outside_of_the_site_become_text(caplog: pytest.LogCaptureFixture) -> None:
    page = DOCS / "spark.md"
    text = "See [the jars](../spark/jars/pom.xml), [here](files.md) and [there](../docs/faq.md)."
    assert without_outside_links(text, page) == "See the jars, [here](files.md) and [there](../docs/faq.md)."
    assert caplog.records == []
    without_outside_links("[gone](../no/such/file)", page)
    assert "../no/such/file" in caplog.text


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    found = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in found if not page.startswith("decisions/0")} == named


def test_the_readme_links_to_what_is_there() -> None:
    for target in re.findall(r"\]\(((?!http)[^)#]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


def test_the_first_page_shows_what_the_readme_runs() -> None:
    def commands(path: Path) -> list[str]:
        return [line.partition(" #")[0].rstrip() for line in path.read_text().splitlines() if line.startswith("$ ")]

    shown = [command for command in commands(DOCS / "index.md") if "pip install" not in command]
    run = commands(ROOT / "README.md")
    assert shown and [command for command in run if command in shown] == shown


def test_every_public_name_is_in_the_reference_of_python() -> None:
    page = (TARGET / "python.md").read_text()
    for module, names in smq._MODULES_OF_NAMES.items():
        for name in names:
            assert f"::: {module}\n" in page or f"::: {module}.{name}\n" in page, f"{module}.{name}"
    assert "::: smq.aio\n" in page and "::: smq_core.errors\n" in page


def test_the_troubleshooting_quotes_messages_of_the_code() -> None:
    """The beginning of each message, up to what varies, is in the sources."""
    sources = "".join(
        path.read_text() for top in ("client", "proto", "operator", "storage") for path in (ROOT / top).rglob("*.py")
    )
    for words in (
        "is the address of a broker, not of the leader",
        "what listens there speaks another protocol, such as HTTP",
        "waiting for the filer: ",
        "no broker is available for it",
        "the filer does not answer",
        "no such host",
        "no answer in time",
        "already (process",
    ):
        assert words in sources, words
        assert words.removesuffix(" (process") in (DOCS / "faq.md").read_text(), words


def test_the_site_is_configured_to_fail_on_broken_links() -> None:
    text = Path(ROOT / "mkdocs.yml").read_text()
    assert "strict: true" in text and "not_found: warn" in text and "anchors: warn" in text
