"""``python -m tests.mutations``: does each broken rule of the shells make its tests fail?

Exit code 0 if every mutation is caught, 1 if one is not, 2 if the tests fail without a mutation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import (
    addresses,
    concurrency,
    input_bounds,
    kafka_consumer_groups,
    kafka_groups,
    kafka_offsets,
    kafka_topics,
    spark,
    storage,
    store_settings,
)
from .broker import (
    callers,
    file_lists,
    kafka,
    kafka_input,
    kafka_proxy,
    kafka_security,
    producer_lanes,
    quiet_segments,
    quotas,
    replication,
    requests,
    segments,
)
from .client import (
    cli,
    groups,
    large_values,
    library,
    producing,
    publishes,
    reads_without_keys,
    references,
    security,
    typed_rows,
    upload_credentials,
)
from .leader import (
    access,
    authorities,
    certificate_tokens,
    dashboard,
    kafka_retention,
    oidc,
    reconciliation,
    releases,
    reports,
    schemas,
    small_files,
    superseded_chunks,
)
from .mutation import Mutation
from .runner import Outcome, PackagesCopy, Result, failing_without_mutation, run_all

SHELLS: dict[str, Sequence[Mutation]] = {
    "storage": storage.MUTATIONS,
    "store_settings": store_settings.MUTATIONS,
    "input_bounds": input_bounds.MUTATIONS,
    "addresses": addresses.MUTATIONS,
    "concurrency": concurrency.MUTATIONS,
    "kafka_offsets": kafka_offsets.MUTATIONS,
    "kafka": kafka.MUTATIONS,
    "kafka_input": kafka_input.MUTATIONS,
    "kafka_proxy": kafka_proxy.MUTATIONS,
    "kafka_security": kafka_security.MUTATIONS,
    "kafka_groups": kafka_groups.MUTATIONS,
    "kafka_consumer_groups": kafka_consumer_groups.MUTATIONS,
    "kafka_retention": kafka_retention.MUTATIONS,
    "kafka_topics": kafka_topics.MUTATIONS,
    "broker": segments.MUTATIONS,
    "requests": requests.MUTATIONS,
    "callers": callers.MUTATIONS,
    "quotas": quotas.MUTATIONS,
    "reports": reports.MUTATIONS,
    "quiet_segments": quiet_segments.MUTATIONS,
    "operator": reconciliation.MUTATIONS,
    "releases": releases.MUTATIONS,
    "file_lists": file_lists.MUTATIONS,
    "small_files": small_files.MUTATIONS,
    "superseded_chunks": superseded_chunks.MUTATIONS,
    "references": references.MUTATIONS,
    "large_values": large_values.MUTATIONS,
    "schemas": schemas.MUTATIONS,
    "replication": replication.MUTATIONS,
    "producer_lanes": producer_lanes.MUTATIONS,
    "reads_without_keys": reads_without_keys.MUTATIONS,
    "upload_credentials": upload_credentials.MUTATIONS,
    "publishes": publishes.MUTATIONS,
    "spark": spark.MUTATIONS,
    "client": library.MUTATIONS,
    "producing": producing.MUTATIONS,
    "dashboard": dashboard.MUTATIONS,
    "authorities": authorities.MUTATIONS,
    "oidc": oidc.MUTATIONS,
    "certificate_tokens": certificate_tokens.MUTATIONS,
    "groups": groups.MUTATIONS,
    "leader_access": access.MUTATIONS,
    "cli": cli.MUTATIONS,
    "typed_rows": typed_rows.MUTATIONS,
    "client_security": security.MUTATIONS,
}


def main() -> int:
    given = _parser().parse_args()
    chosen = {m.name: shell for shell, table in SHELLS.items() for m in table if given.k in f"{shell}/{m.name}"}
    mutations = [m for table in SHELLS.values() for m in table if m.name in chosen]
    if not mutations:
        print(f"no mutation's name contains {given.k!r}", file=sys.stderr)
        return 2
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="smq-mutations-") as folder:
        copies = [PackagesCopy(Path(folder) / str(n)) for n in range(given.workers)]
        if failures := failing_without_mutation(copies[0], mutations, given.workers):
            print(f"these tests fail without a mutation, so they show nothing:\n{failures}", file=sys.stderr)
            return 2
        print(f"the tests of {len(mutations)} mutations pass without them", flush=True)
        results = []
        for result in run_all(copies, mutations, given.timeout):
            results.append(result)
            print(_line(result, chosen[result.mutation.name]), flush=True)
    bad = [it for it in results if it.outcome is not Outcome.CAUGHT]
    print(_summary(results, chosen, time.monotonic() - started))
    for it in bad:
        print(f"\n{it.outcome.value}: {it.mutation.name}\n  rule: {it.mutation.rule}", *it.details, sep="\n  ")
    return 1 if bad else 0


def _line(result: Result, shell: str) -> str:
    tests = ", ".join(dict.fromkeys(it.partition("[")[0].rpartition("::")[2] for it in result.details))
    by = f"  by {tests}" if result.outcome is Outcome.CAUGHT else ""
    return f"{result.outcome.value:10} {result.seconds:5.1f} s  {shell}/{result.mutation.name}{by}"


def _summary(results: Sequence[Result], chosen: dict[str, str], seconds: float) -> str:
    caught = [chosen[it.mutation.name] for it in results if it.outcome is Outcome.CAUGHT]
    names = [chosen[it.mutation.name] for it in results]
    shells = ", ".join(f"{shell} {caught.count(shell)}/{names.count(shell)}" for shell in SHELLS if shell in names)
    return f"{len(caught)} of {len(results)} mutations caught in {seconds:.0f} s ({shells})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("-k", default="", metavar="NAME", help="only mutations whose shell/name contains this")
    parser.add_argument("--workers", type=int, default=2, help="how many run at once (default 2)")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one mutation's tests (default 180)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
