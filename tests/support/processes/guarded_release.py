"""A secure release over a filer with keys, which also knows callers by client certificates."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.secure_cluster import SecureCluster
from support.processes.short_lives import Lives
from support.secret_search import SecretSearch
from support.user_authority import UserAuthority


@contextmanager
def guarded_release(
    folder: Path, *flags: str, lives: Lives | None = None
) -> Iterator[tuple[SecureCluster, UserAuthority]]:
    """Also the authority of the certificates. ``flags`` are more ones of the leader."""
    names = ("access_key", "secret_key")
    keys = {name: secrets.token_urlsafe(24).replace("-", "x").replace("_", "x") for name in names}
    company, authorities = UserAuthority("company"), folder / "clients.crt"
    authorities.write_bytes(company.pem)
    more = (f"--client-ca-file={authorities}", *flags)
    with (
        SeaweedProcess(folder / "weed", **keys) as weed,
        SecureCluster(folder / "c", weed.settings("guarded"), lives=lives, more=more) as cluster,
    ):
        yield cluster, company


def know_keys(search: SecretSearch, cluster: SecureCluster) -> None:
    """Those of the release now."""
    folder = cluster.security
    search.add_token("the administrator's token", (folder / "admin.token").read_text())
    for name in ("grants.key", "brokers.key"):
        search.add_bytes(name, (folder / name).read_bytes())
    for it in json.loads((folder / "authorities.json").read_bytes())["authorities"]:
        if it["key"]:
            search.add_pem(f"the authority since {it['since']}", it["key"].encode())
    for path in (folder / "brokers").glob("*.token"):
        search.add_token(path.name, path.read_text().rpartition(".")[2])
    for name in ("access_key", "secret_key"):
        search.add_bytes(f"{name} of the filer", (getattr(cluster.store, name) or "").encode())
