"""What the chart's trial filer and the one of `smq dev` have on their disks when they acknowledge a PUT.

A power failure cannot be had here. So the system calls of SeaweedFS are recorded, and a file counts as being on the
disk only after it was synced.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from smq_storage.object_store.store import Store
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.system_calls import SystemCall, read_recording, synced_files, tracer, unavailable_reason
from support.processes.trial_filer import TrialFiler

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
]
MIB = 1 << 20
# Bytes of an entry in a volume's index.
INDEX_ENTRY = 17

# SeaweedFS stores the large one in several parts.
SIZES = [60, 3_000, 200_000, 9 * MIB, 3_000, 60]


def content(number: int, size: int) -> bytes:
    """Random, and named at each MiB, so that every write of a part begins with the name."""
    name = b"content-%04d:" % number
    parts = [name + random.Random(number).randbytes(min(MIB, size - at) - len(name)) for at in range(0, size, MIB)]
    return b"".join(parts)


def put_all(store: Store) -> None:
    """One after the other; the last one replaces the first one."""
    etags = [store.put_new(f"object-{n:04}", content(n, size)) for n, size in enumerate(SIZES)]
    store.put_if("object-0000", content(len(SIZES), SIZES[0]), etags[0])


def names() -> list[str]:
    return [f"object-{n:04}" for n in range(len(SIZES))] + ["object-0000"]


def unsynced(calls: Sequence[SystemCall], s3: str) -> list[str]:
    """What was not on the disk when its PUT was acknowledged, in words."""
    missing = []
    for number, name in enumerate(names()):
        data = [c for c in calls if c.is_write and c.target.endswith(".dat") and f"content-{number:04}:" in c.text]
        written = max(c.ended for c in data)
        answered = next(
            c.started for c in calls if c.started > written and f"[{s3}->" in c.target and '"HTTP/1.1 200' in c.text
        )
        metadata = next(
            c for c in calls if c.started > written and c.is_write and "/filer" in c.target and name in c.text
        )
        for call in (*data, metadata):
            synced = (c for c in calls if c.is_sync and c.target == call.target)
            if not any(call.ended < c.started and c.ended < answered for c in synced):
                missing.append(f"{name} in {Path(call.target).name}")
    return missing


@pytest.mark.slow
def test_an_acknowledged_put_of_the_trial_is_on_the_disk(tmp_path: Path) -> None:
    with TrialFiler(tmp_path / "data", wrapper=tracer(tmp_path / "recording")) as filer:
        put_all(filer.store())
    assert unsynced(read_recording(tmp_path / "recording", filer.pid), filer.address) == []


@pytest.mark.slow
def test_what_was_synced_is_enough_for_the_trial_to_serve_every_acknowledged_put(tmp_path: Path) -> None:
    """The worst power failure: of the files that were not synced, nothing is left but half of the volumes' indexes."""
    with TrialFiler(tmp_path / "before", wrapper=tracer(tmp_path / "recording")) as filer:
        put_all(filer.store())
    synced = synced_files(read_recording(tmp_path / "recording", filer.pid), filer.folder)
    indexes = {*filer.folder.glob("*.idx")}
    assert indexes and not indexes & synced
    assert {path.suffix for path in synced} >= {".dat", ".db-wal"}
    for path in synced | indexes:
        copy = tmp_path / "after" / path.relative_to(filer.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        if path in indexes:
            os.truncate(copy, path.stat().st_size // 2 // INDEX_ENTRY * INDEX_ENTRY)
    with TrialFiler(tmp_path / "after") as again:
        store = again.store()
        for number, size in [*enumerate(SIZES)][1:]:
            assert store.get(f"object-{number:04}").data == content(number, size)
        assert store.get("object-0000").data == content(len(SIZES), SIZES[0])


def test_smq_dev_acknowledges_a_put_before_it_is_on_the_disk(tmp_path: Path) -> None:
    """As the documentation says. It also shows that the recording tells the two filers apart."""
    with SeaweedProcess(tmp_path, wrapper=tracer(tmp_path / "recording")) as filer:
        put_all(filer.store())
        pid = filer.pid
        filer.kill()
    assert pid is not None
    missing = unsynced(read_recording(tmp_path / "recording", pid), filer.endpoint.removeprefix("http://"))
    assert any(".dat" in what for what in missing) and any(".log" in what for what in missing)


@pytest.mark.slow
def test_the_trial_continues_on_the_metadata_of_an_earlier_release(tmp_path: Path) -> None:
    """Which kept it in LevelDB. With another store of metadata its files would be gone."""
    with SeaweedProcess(tmp_path) as earlier:
        earlier.store().put_new("kept", b"by an earlier release")
    # It names a folder of sockets that is gone by now; the trial's own has none.
    (tmp_path / "data" / "mini.options").unlink()
    with TrialFiler(tmp_path / "data") as filer:
        assert filer.store().get("kept").data == b"by an earlier release"
    assert "metadata stays in LevelDB" in filer.log.read_text()
