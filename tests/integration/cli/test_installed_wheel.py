"""The wheel alone, in a clean environment and outside of the clone, runs a local cluster, a publish and a consume."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tools import dist

WITHOUT_CLONE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SMQ_LEADER")}


def succeed(*command: str | Path, folder: Path, stdin: str = "") -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=WITHOUT_CLONE, input=stdin, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)  # installs 40 packages, which a busy machine does in ten minutes
@pytest.mark.integration
def test_the_wheel_alone_runs_a_cluster_and_carries_a_message(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    dist.export_tracked(source)
    dist.run(
        *(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(source)), time=0
    )
    (wheel,) = tmp_path.glob("*.whl")

    # The versions that all other tests run with. The environment has only what the wheel says that it needs.
    versions = tmp_path / "constraints.txt"
    versions.write_text("".join(f"{d.name}=={d.version}\n" for d in distributions() if d.name != "seaweedmq"))
    venv.create(tmp_path / "clean", with_pip=False, symlinks=True)
    python, smq = (tmp_path / "clean" / "bin" / name for name in ("python", "smq"))
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    succeed(*install, "--constraint", versions, f"{wheel}[local]", folder=elsewhere)
    imported = succeed(python, "-c", "import smq, smq_broker; print(smq.__file__)", folder=elsewhere)
    assert Path(imported.strip()).is_relative_to(tmp_path / "clean")

    started = succeed(smq, "dev", "--detach", "--brokers", "2", "--listen", "127.0.0.1:0", folder=elsewhere)
    try:
        leader = next(line.split("--leader ")[1].split()[0] for line in started.splitlines() if "--leader " in line)
        succeed(smq, "--leader", leader, "topic", "create", "events", folder=elsewhere)
        succeed(smq, "--leader", leader, "publish", "events", folder=elsewhere, stdin="hello\n")
        consumed = succeed(
            *(smq, "--leader", leader, "consume", "events", "--from", "earliest", "--max", "1"), folder=elsewhere
        )
        assert consumed == "hello\n"
    finally:
        succeed(smq, "dev", "stop", folder=elsewhere)
