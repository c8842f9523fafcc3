"""The client: one connection to a leader (or to the files alone), and what is made from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from smq.admin import Admin
from smq.leader import LeaderLink
from smq.names import full_topic
from smq.network import DIRECT, LEADER_BY_RELAY, Network
from smq_core.errors import InvalidRequest

# Arrow, Flight and the store are loaded when they are used: administration needs none of them.
if TYPE_CHECKING:
    from smq.consumer import Consumer
    from smq.producer import Producer
    from smq.view import TopicView
    from smq_storage.store import Store, StoreSettings


def connect(
    leader: str | None = None,
    *,
    namespace: str = "default",
    timeout: float = 10.0,
    via: str | None = None,
    filer_url: str | None = None,
    filer_endpoint: str | None = None,
    filer_region: str | None = None,
    filer_access_key: str | None = None,
    filer_secret_key: str | None = None,
) -> Client:
    """A client of the leader at ``host:port[,host:port...]``; any of them may be the leader, it is found.

    ``leader`` None: the environment's SMQ_LEADER; when that is not set either, the client only reads, straight from
    the files at ``filer_url`` (``s3://bucket/prefix``) or SMQ_FILER_URL. Otherwise url, endpoint and region are told
    by the leader and need not be given; credentials come from here or from the AWS_ variables, none means anonymous.
    ``timeout`` is in seconds, for each call to the leader. Nothing is contacted before it is needed.

    ``via``, or the environment's SMQ_VIA: ``host:port`` of a broker's relay, for a client that is outside of the
    cluster. Everything goes through it, to the leader, the brokers and an ``http://`` filer; the leader's address is
    not needed then.

    Raises InvalidRequest when there is neither a leader nor a filer.
    """
    network = Network(via or os.environ.get("SMQ_VIA") or None)
    told = leader or os.environ.get("SMQ_LEADER", "") or (LEADER_BY_RELAY if network.via else "")
    addresses = [a.strip() for a in told.split(",") if a.strip()]
    for address in [*addresses, *filter(None, [network.via])]:
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdigit():
            whose = "relay" if address == network.via else "leader"
            raise InvalidRequest(f"the {whose}'s address is host:port, not {address!r}")
    settings = None
    url = filer_url or os.environ.get("SMQ_FILER_URL")
    if url:
        from smq_storage.store import StoreSettings

        settings = StoreSettings(
            url,
            endpoint=filer_endpoint or os.environ.get("SMQ_FILER_ENDPOINT") or None,
            region=filer_region or os.environ.get("SMQ_FILER_REGION") or None,
            access_key=filer_access_key,
            secret_key=filer_secret_key,
        )
    if not addresses and settings is None:
        raise InvalidRequest("give the leader's address (host:port, or SMQ_LEADER), or a filer_url to read files only")
    return Client(
        addresses,
        namespace=namespace,
        timeout=timeout,
        store=settings,
        keys=(filer_access_key, filer_secret_key),
        network=network,
    )


class Client:
    """Use :func:`connect`. Safe from many threads; a context manager that closes all that was made from it."""

    def __init__(
        self,
        addresses: list[str],
        *,
        namespace: str,
        timeout: float,
        store: StoreSettings | None,
        keys: tuple[str | None, str | None] = (None, None),
        network: Network = DIRECT,
    ) -> None:
        self.namespace = namespace
        self._leader = LeaderLink(addresses, timeout=timeout, network=network)
        self._network = network
        self._settings = store
        self._keys = keys
        self._lock = threading.Lock()
        self._views: dict[str, TopicView] = {}
        self._store: Store | None = None
        self._made: list[Producer | Consumer] = []
        self._closed = False

    def producer(
        self,
        topic: str,
        *,
        linger: float = 0.002,
        batch_bytes: int = 1 << 20,
        max_in_flight: int = 32 << 20,
        timeout: float = 120.0,
        producer_id: str | None = None,
        epoch: int = 0,
    ) -> Producer:
        """A producer on a topic, ``name`` or ``namespace/name``.

        linger: seconds that a message may wait for others to share a batch; up to 10 ms more while others have no
            outcome yet.
        batch_bytes: a batch goes out when it has this many bytes.
        max_in_flight: bytes handed over and not yet durable; ``send`` and ``write`` block beyond it.
        timeout: seconds; after that a message's Delivery fails with DeliveryTimeout, and a blocked ``send`` raises
            Overloaded.
        producer_id, epoch: a name that lives longer than this process; each start takes a higher epoch, which fences
            what is left of the older ones. Without a name, a new one is made up.

        Raises UnknownTopic, Unavailable, InvalidRequest.
        """
        from smq.producer import Producer

        made = Producer(
            self._view(topic),
            linger=linger,
            batch_bytes=batch_bytes,
            max_in_flight=max_in_flight,
            timeout=timeout,
            producer_id=producer_id,
            epoch=epoch,
        )
        self._made.append(made)
        return made

    def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] | datetime | Mapping[str, int] = "earliest",
        on_loss: Literal["fail", "skip"] = "fail",
        auto_commit: bool = False,
        max_bytes: int = 16 << 20,
        prefetch_bytes: int = 64 << 20,
    ) -> Consumer:
        """A consumer of a topic; with a ``group``, one of the members that share its segments.

        start: where to begin: ``earliest``, ``latest``, a time (messages appended at or after it; naive means UTC), or
            positions ``{segment: next offset}`` as in ``Batch.positions``. In a group it counts only while the group
            has committed nothing, and is ``earliest`` or ``latest``.
        on_loss: ``fail`` raises DataLost(segment, start, stop) once for each range of offsets that is gone, ``skip``
            passes over it.
        auto_commit: commit every second, and when closed, what was handed out and is done with: a batch counts as done
            when the next one is asked for.
        max_bytes: of one Batch, roughly. prefetch_bytes: read ahead, over all segments.

        Raises UnknownTopic, Unavailable, InvalidRequest.
        """
        from smq.consumer import Consumer

        made = Consumer(
            self._view(topic),
            self._leader,
            group=group,
            start=start,
            on_loss=on_loss,
            auto_commit=auto_commit,
            max_bytes=max_bytes,
            prefetch_bytes=prefetch_bytes,
        )
        self._made.append(made)
        return made

    def admin(self) -> Admin:
        """Administration, through the leader."""
        return Admin(self._leader, self.namespace)

    def close(self) -> None:
        """Closes producers (what they hold is delivered first) and consumers, then the connection. Repeatable."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            for made in self._made:
                made.close()
        finally:
            for view in self._views.values():
                view.close()
            self._leader.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _view(self, topic: str) -> TopicView:
        from smq.view import TopicView

        name = full_topic(topic, self.namespace)
        with self._lock:
            if self._closed:
                raise InvalidRequest("the client is closed")
            self._made = [m for m in self._made if not m.closed]
            view = self._views.get(name)
            if view is None:
                view = self._views[name] = TopicView(name, self._leader, self._settings, self._keys, self._network)
        try:
            view.wait_known()
        except BaseException:
            with self._lock:
                self._views.pop(name, None)
            view.close()
            raise
        return view
