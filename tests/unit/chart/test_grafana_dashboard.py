"""The Grafana dashboard of the chart: whole, and about metrics and labels that exist, as docs/metrics.md lists them."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.kube.chart import VALUES, of_kind, render

METRICS = Path(__file__).parents[3] / "docs" / "metrics.md"
# What Prometheus adds, and the label of a histogram's buckets.
SCRAPED_LABELS = {"namespace", "pod", "le"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found = of_kind(render(VALUES["watched"]), "ConfigMap")["smq-dashboard"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = found["data"].values()
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def documented() -> dict[str, set[str]]:
    """The labels of each metric."""
    found: dict[str, set[str]] = {}
    for line in METRICS.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 5 and cells[1].startswith("`smq_"):
            for name in re.findall(r"`(smq_\w+)`", cells[1]):
                found[name] = set(re.findall(r"`(\w+)`", cells[3]))
    return found


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_there_is_no_dashboard_unless_the_values_say_so() -> None:
    assert "smq-dashboard" not in of_kind(render({}), "ConfigMap")


def test_every_metric_and_label_exists(dashboard: dict[str, Any]) -> None:
    known = documented()
    queries = [*expressions(dashboard), *(v["query"] for v in dashboard["templating"]["list"] if v["type"] == "query")]
    assert len(queries) > 15
    for expression in queries:
        names = {re.sub(r"_bucket$", "", name) for name in re.findall(r"smq_\w+", expression)}
        assert names and names <= known.keys(), expression
        labels = set(re.findall(r"(\w+)=~?\"", expression))
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            labels |= {label.strip() for label in grouped.split(",")}
        allowed = SCRAPED_LABELS.union(*(known[name] for name in names))
        assert labels <= allowed, f"{expression}: {labels - allowed}"


def test_counters_are_shown_as_rates(dashboard: dict[str, Any]) -> None:
    for expression in expressions(dashboard):
        for counter in re.findall(r"(\w*\(?)smq_\w+_total", expression):
            assert counter in ("rate(", "increase("), expression


def test_panels_have_places_of_their_own_and_what_a_reader_needs(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        apart = (one["x"] + one["w"] <= other["x"], other["x"] + other["w"] <= one["x"])
        assert any(apart) or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels:
        assert panel["title"] and panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            assert panel["description"] and panel["datasource"]["uid"] == "${datasource}"
            assert all(
                set(re.findall(r"\$\{?(\w+)", t["expr"])) <= variables | {"__rate_interval"} for t in panel["targets"]
            )
