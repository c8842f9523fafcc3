"""Which parts of the network are cut, by seed: two nodes, one way or both, or one node from all others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from support.fault_injection.network_namespaces import NamespaceNetwork

BROKERS = ("broker-1", "broker-2", "broker-3", "broker-4")
LEADER, FILER, CLIENTS = "leader", "filer", "clients"
NODES = (*BROKERS, LEADER, FILER, CLIENTS)

ENTER_BROKER = """#!/bin/sh
# Runs a broker's command in the broker's own network namespace, with its own address.
case $SMQ_NAME in
{cases}
*) exit 64 ;;
esac
"""


def enter_broker(network: NamespaceNetwork | None, wrapper: Sequence[str]) -> str:
    """A shell script for ``--broker-wrapper``; ``wrapper`` is a further command that runs a command."""
    cases = []
    for name in BROKERS:
        words = [*wrapper] if network is None else [*network.inside(name), *wrapper]
        address = "" if network is None else f"env SMQ_ADVERTISE={network.address(name)} "
        cases.append(f'{name}) exec {" ".join(words)} {address}"$@" ;;')
    return ENTER_BROKER.format(cases="\n".join(cases))


class NetworkPartitions:
    """``choose`` says what would be cut and gives a context in which it is."""

    def __init__(self, network: NamespaceNetwork, draw: random.Random) -> None:
        self._network = network
        self._random = draw
        self._kinds: list[tuple[int, Callable[[], tuple[str, str]]]] = [
            (4, lambda: self._pair(*draw.sample(BROKERS, 2))),
            (3, lambda: self._pair(draw.choice(BROKERS), LEADER)),
            (3, lambda: self._pair(draw.choice(BROKERS), FILER)),
            (3, lambda: self._pair(CLIENTS, draw.choice(BROKERS))),
            (1, lambda: self._pair(CLIENTS, LEADER)),
            (1, lambda: self._pair(CLIENTS, FILER)),
            (1, lambda: self._pair(LEADER, FILER)),
        ]

    def choose(self) -> tuple[str, list[tuple[str, str]]]:
        """In words, and (source, target) of what will not arrive."""
        if self._random.random() < 0.2:
            alone = self._random.choice(BROKERS)
            others = [node for node in NODES if node != alone]
            return f"{alone} alone", [pair for other in others for pair in ((alone, other), (other, alone))]
        kinds = [kind for weight, kind in self._kinds for _ in range(weight)]
        a, b = self._random.choice(kinds)()
        if self._random.random() < 0.5:
            return f"{a} | {b}", [(a, b), (b, a)]
        return f"{a} -/-> {b}", [(a, b)]

    def _pair(self, a: str, b: str) -> tuple[str, str]:
        return (a, b) if self._random.random() < 0.5 else (b, a)

    @contextmanager
    def cut(self, pairs: list[tuple[str, str]]) -> Iterator[None]:
        try:
            for source, target in pairs:
                self._network.cut(source, target)
            yield
        finally:
            self._network.heal()
