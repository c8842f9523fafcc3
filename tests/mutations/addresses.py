"""Broken rules of network addresses: IPv6 works everywhere, and both families are served."""

from __future__ import annotations

from .mutation import Mutation

ADDRESSES = "core/smq_core/model/addresses.py"
TEST_ADDRESSES = "tests/unit/core/model/test_addresses.py"
TEST_CHART = "tests/unit/chart/test_chart.py"

MUTATIONS = (
    Mutation(
        "join_ipv6_hosts_without_brackets",
        "An IPv6 host has brackets before a port.",
        ADDRESSES,
        'return f"[{host}]:{port}" if ":" in host',
        'return f"[{host}]:{port}" if False',
        (
            f"{TEST_ADDRESSES}::test_an_address_is_split_and_joined",
            f"{TEST_CHART}::test_pods_listen_over_both_families_and_advertise_the_address_of_their_pod",
        ),
    ),
    Mutation(
        "accept_any_text_in_brackets",
        "Only an IPv6 address has brackets.",
        ADDRESSES,
        "if match is None or (match[1] and not _is_ipv6(match[1])):",
        "if match is None:",
        (f"{TEST_ADDRESSES}::test_what_is_no_address_is_refused",),
    ),
    Mutation(
        "listen_over_ipv6_alone",
        "A process that listens at all addresses serves IPv4 too.",
        "storage/smq_storage/process/listeners.py",
        "dualstack_ipv6=True",
        "dualstack_ipv6=False",
        ("tests/unit/storage/test_listeners.py::test_a_listener_serves_the_families_of_its_address",),
    ),
)
