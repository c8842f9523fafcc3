"""The chart as a later version could have it: one more field in the definition of Topic."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from support.kube.chart import CHART

VERSION = "99.0.0"
TIER: dict[str, Any] = {"description": "Where old messages are kept.", "type": "string", "enum": ["Hot", "Cold"]}


def newer_chart(folder: Path, field: str = "tier", schema: dict[str, Any] = TIER) -> Path:
    """A copy of the chart in ``folder``, of version VERSION; a Topic's spec has ``field`` too. Returns its folder."""
    chart = folder / CHART.name
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": VERSION}))
    path = chart / "files" / "topics.yaml"
    definition = yaml.safe_load(path.read_text())
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][field] = schema
    path.write_text(yaml.safe_dump(definition, sort_keys=False))
    return chart
