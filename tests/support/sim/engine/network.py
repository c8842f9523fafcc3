"""Links between hosts: delays, one-way cuts, calls with timeouts and repeats, ordered streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smq_core.errors import SmqError, Unavailable
from support.sim.engine.world import MS, SECOND, Future, Process, World


class SimulatedNetwork:
    """The listening nodes, and the directions that are cut.

    Probabilities per message: ``slow``; ``repeat`` (a call arrives twice); ``hole`` (a stream's server fails to read a
    message, and the stream breaks a little later).
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.listening: dict[str, Process] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.slow = 0.0
        self.slow_hosts: dict[str, float] = {}
        """How often messages on streams from these hosts are slow."""
        self.repeat = 0.0
        self.hole = 0.0

    def delay(self, host: str = "") -> int:
        world = self.world
        if world.chance(self.slow_hosts.get(host, self.slow)):
            return world.between(20 * MS, 3 * SECOND)
        return world.between(200, 2 * MS)

    def at(self, address: str) -> Process | None:
        process = self.listening.get(address)
        return process if process is not None and process.alive else None

    def post(self, source: str, target: str, action: Callable[[], None]) -> bool:
        """Runs ``action`` on arrival. False if that direction is cut, so that it never arrives."""
        if (source, target) in self.cuts:
            return False
        self.world.after(self.delay(), action)
        return True

    def call(self, caller: Process, address: str, method: str, *args: Any, timeout: int = 2 * SECOND) -> Future:
        """Calls ``on_<method>(*args)`` of the node that listens at ``address``. A call may arrive twice."""
        answer = Future()

        def reply(result: Future) -> None:
            self.post(address, caller.host, lambda: _copy(result, answer))

        def arrive() -> None:
            process = self.at(address)
            if process is None:
                refused = Future()
                refused.fail(Unavailable(f"nobody listens at {address}"))
                reply(refused)
                return
            node = process.node
            process.run(lambda: process.start(getattr(node, "on_" + method)(*args)).then(reply))

        self.post(caller.host, address, arrive)
        if self.world.chance(self.repeat):
            self.world.after(
                self.world.between(0, 5 * SECOND), lambda: self.post(caller.host, address, arrive) and None
            )
        self.world.after(timeout, lambda: answer.fail(Unavailable(f"{address} did not answer {method} in time")))
        return answer


def _copy(result: Future, answer: Future) -> None:
    if result.error is not None:
        answer.fail(result.error)
    else:
        answer.set(result.value)


class SimulatedStream:
    """A two-way stream from a client to the process that listens at an address. Each direction is ordered and
    loses messages only at its end: a cut breaks it for good, but messages in transit still arrive.

    The server's node is called ``on_<kind>(stream, *args)`` at the start, then ``stream.on_server_message`` and
    ``stream.on_client_message`` get the messages. ``None`` means that the other end is closed.
    """

    def __init__(self, network: SimulatedNetwork, client: Process, address: str, kind: str, *args: Any) -> None:
        self.network = network
        self.client = client
        self.address = address
        self.server: Process | None = None
        self.on_server_message: Callable[[Any], None] | None = None
        self.on_client_message: Callable[[Any], None] | None = None
        self.has_holes = True
        """Whether single messages from the client may be missing, as on a lane that drops those of one session."""
        self._up_broken = self._down_broken = False
        self._up_at = self._down_at = 0
        self._send_up(lambda: self._arrive(kind, args))

    def up(self, message: Any) -> None:
        """From the client."""
        if self.has_holes and self.network.world.chance(self.network.hole):
            self._break()
            return
        self._send_up(lambda: self._to_server(message))

    def down(self, message: Any) -> None:
        """From the server."""
        world = self.network.world
        if self._down_broken or (self.address, self.client.host) in self.network.cuts:
            self._down_broken = True
            self._break()
            return
        self._down_at = max(self._down_at, world.now + self.network.delay())
        world.after(
            self._down_at - world.now,
            lambda: self.client.run(lambda: self.on_client_message(message) if self.on_client_message else None),
        )

    def end(self) -> None:
        """The server closes the stream. ``None`` is the last message to the client."""
        self.down(None)
        self.on_server_message = None
        self._down_broken = True

    def leave(self) -> None:
        """The client closes the stream and gets no more messages. What it has sent is in transit."""
        self.on_client_message = None
        self.up(None)
        self._up_broken = True

    def _break(self) -> None:
        """A connection with one broken direction ends soon, because TCP gets no acknowledgements."""
        if not (self._up_broken and self._down_broken):
            world = self.network.world
            world.after(world.between(0, 2 * SECOND), self._broken)

    def _broken(self) -> None:
        self._up_broken = self._down_broken = True

    def _send_up(self, action: Callable[[], None]) -> None:
        world = self.network.world
        if self._up_broken or (self.client.host, self.address) in self.network.cuts:
            self._up_broken = True
            self._break()
            return
        self._up_at = max(self._up_at, world.now + self.network.delay(self.client.host))
        world.after(self._up_at - world.now, action)

    def _arrive(self, kind: str, args: tuple[Any, ...]) -> None:
        server = self.network.at(self.address)
        self.server = server
        if server is None:
            self.end()
            return
        server.run(lambda: self._open(server, kind, args))

    def _open(self, server: Process, kind: str, args: tuple[Any, ...]) -> None:
        try:
            getattr(server.node, "on_" + kind)(self, *args)
        except SmqError as error:
            self.down(error)
            self.end()

    def _to_server(self, message: Any) -> None:
        server = self.server
        if server is None or not server.alive:
            self.end()
            return
        server.run(lambda: self.on_server_message(message) if self.on_server_message else None)
