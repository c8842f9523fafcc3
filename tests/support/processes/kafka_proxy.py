"""A real process of the proxy for Kafka clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from support.waiting import eventually


@contextmanager
def kafka_proxy(folder: Path, leader: str, *flags: str) -> Iterator[str]:
    """Its address, once it is ready. The filer is unknown to it."""
    path = folder / f"kafka-proxy-{len(list(folder.glob('kafka-proxy-*')))}.log"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SMQ_"))}
    command = (
        *(sys.executable, "-m", "smq_broker.main", "--kafka-proxy", "true", "--leader", leader),
        *("--kafka", "127.0.0.1:0", "--log-format", "json", *flags),
    )
    with path.open("wb") as log:
        process = subprocess.Popen(command, env=clean, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:

        def started() -> dict[str, str] | None:
            assert process.poll() is None, f"the proxy ended:\n{path.read_text()[-3000:]}"
            events = [json.loads(it) for it in path.read_text().splitlines() if it.startswith("{")]
            return next((it for it in events if it["event"] == "kafka_proxy.ready"), None)

        ready = eventually(started, what=f"the proxy has started; see {path}")
        eventually(lambda: _is_ready(ready["http"]), what=f"the proxy is ready; see {path}")
        yield ready["kafka"]
    finally:
        process.kill()
        process.wait()


def _is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def ports_in_use() -> set[int]:
    """The remote ports to which this process has connections."""
    return {it.raddr.port for it in psutil.Process().net_connections("tcp") if it.raddr}
