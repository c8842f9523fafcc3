"""The same API for asyncio. Blocking work runs in threads, so the event loop never waits for it.

::

    async with smq.aio.connect("localhost:7070") as client:
        async with client.producer("travel/flights") as producer:
            delivery = await producer.send(b"payload", key=b"N14228")    # waits only while max_in_flight is used up
            receipt = await delivery
        async with client.consumer("travel/flights", group="report") as consumer:
            async for batch in consumer:
                await consumer.commit()

Arguments, results and errors are those of :mod:`smq`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from smq import client as _sync
from smq import connecting
from smq.admin import Admin
from smq.batch import Batch
from smq.consumer import Consumer
from smq.consuming.consumer_options import ConsumerKeywords, ConsumerOptions, TopicsConsumerKeywords
from smq.delivery import Delivery, FilesReceipt, Receipt, TableReceipt
from smq.producer import Headers, Producer
from smq.producing.encoding.frames import ArrowArray, ArrowStream, TableLike, is_table_like
from smq.topics_consumer import TopicsConsumer
from smq_core.errors import PartlySent, StoreUnavailable

if TYPE_CHECKING:
    from smq_storage.compaction.topic_compaction import CompactedSegment

__all__ = [
    "AsyncAdmin",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncTopicsConsumer",
    "connect",
]

R = TypeVar("R")
P = TypeVar("P")
ARGUMENTS = ParamSpec("ARGUMENTS")

# A poll without a limit runs as short polls, so that its thread becomes free when the consumer is closed.
POLL_INTERVAL_SECONDS = 0.5


class _Closable(Protocol):
    async def __aexit__(self, *raised: Any) -> None: ...


C = TypeVar("C", bound=_Closable)
CONSUMER = TypeVar("CONSUMER", Consumer, TopicsConsumer)


def connect(leader: str | None = None, **options: Any) -> AsyncClient:
    """As :func:`smq.connect`. Opens no connection before it needs one."""
    return AsyncClient(connecting.connect(leader, **options))


def _async_repr(inner: object) -> str:
    return f"<Async{repr(inner).removeprefix('<')}"


class Opening(Generic[C]):
    """A producer or consumer that is being opened: ``await`` it, or enter it with ``async with``."""

    def __init__(self, make: Callable[[], Awaitable[C]]) -> None:
        self._make = make
        self._made: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        return self._make().__await__()

    async def __aenter__(self) -> C:
        self._made = await self._make()
        return self._made

    async def __aexit__(self, *raised: Any) -> None:
        assert self._made is not None
        await self._made.__aexit__(*raised)


def _in_thread(
    method: Callable[Concatenate[_sync.Client, ARGUMENTS], R],
) -> Callable[Concatenate[AsyncClient, ARGUMENTS], Coroutine[Any, Any, R]]:
    """The same method of an AsyncClient, which runs in a thread."""

    @functools.wraps(method)
    async def run(client: AsyncClient, *arguments: ARGUMENTS.args, **keywords: ARGUMENTS.kwargs) -> R:
        return await asyncio.to_thread(method, client._client, *arguments, **keywords)

    return run


class AsyncClient:
    """Made by :func:`connect`."""

    def __init__(self, client: _sync.Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return _async_repr(self._client)

    def producer(self, topic: str, **options: Any) -> Opening[AsyncProducer]:
        """As :meth:`smq.Client.producer`."""

        async def make() -> AsyncProducer:
            return AsyncProducer(await asyncio.to_thread(self._client.producer, topic, **options))

        return Opening(make)

    def consumer(
        self, topic: str, options: ConsumerOptions | None = None, **keywords: Unpack[ConsumerKeywords]
    ) -> Opening[AsyncConsumer]:
        """As :meth:`smq.Client.consumer`. ``on_assigned`` and ``on_revoked`` may be coroutine functions.

        They run on the event loop while ``poll`` waits for them.
        """

        async def make() -> AsyncConsumer:
            chosen = _with_callbacks(replace(options or ConsumerOptions(), **keywords))
            return AsyncConsumer(await asyncio.to_thread(self._client.consumer, topic, chosen))

        return Opening(make)

    def topics_consumer(
        self,
        topics: Sequence[str] | re.Pattern[str],
        options: ConsumerOptions | None = None,
        *,
        start: Literal["earliest", "latest"] | datetime | Mapping[str, Mapping[str, int]] = "earliest",
        **keywords: Unpack[TopicsConsumerKeywords],
    ) -> Opening[AsyncTopicsConsumer]:
        """As :meth:`smq.Client.topics_consumer`. ``on_assigned`` and ``on_revoked`` are as for :meth:`consumer`."""

        async def make() -> AsyncTopicsConsumer:
            shared = _with_callbacks(replace(options or ConsumerOptions(), **keywords))
            open_all = functools.partial(self._client.topics_consumer, topics, shared, start=start)
            return AsyncTopicsConsumer(await asyncio.to_thread(open_all))

        return Opening(make)

    write_upload = _in_thread(_sync.Client.write_upload)
    publish_atomically = _in_thread(_sync.Client.publish_atomically)
    last_version = _in_thread(_sync.Client.last_version)
    stage = _in_thread(_sync.Client.stage)
    topic_files = _in_thread(_sync.Client.topic_files)
    files = _in_thread(_sync.Client.files)
    check_filer = _in_thread(_sync.Client.check_filer)

    async def compact(self, topic: str, *, target_bytes: int = 32 << 20) -> AsyncIterator[CompactedSegment]:
        """As :meth:`smq.Client.compact`."""
        compacted = await asyncio.to_thread(self._client.compact, topic, target_bytes=target_bytes)
        while (segment := await asyncio.to_thread(next, compacted, None)) is not None:
            yield segment

    def admin(self) -> AsyncAdmin:
        """The methods of :class:`smq.Admin`, each to be awaited."""
        return AsyncAdmin(self._client.admin())

    async def close(self) -> None:
        """As :meth:`smq.Client.close`."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await asyncio.to_thread(self._client.__exit__, *raised)


class AsyncAdmin:
    """The methods of :class:`smq.Admin`, each to be awaited: ``await admin.topics()``."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __repr__(self) -> str:
        return _async_repr(self._admin)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._admin, name)
        return functools.partial(asyncio.to_thread, method)


class AsyncDelivery(Generic[R]):
    """A future for the receipt: ``await`` it. Cancelling the wait does not withdraw the message."""

    def __init__(self, delivery: Delivery[R]) -> None:
        self._delivery = delivery

    def __repr__(self) -> str:
        return _async_repr(self._delivery)

    def done(self) -> bool:
        """As :meth:`smq.Delivery.done`."""
        return self._delivery.done()

    def __await__(self) -> Generator[Any, None, R]:
        if not self._delivery.done():
            yield from self._wait_until_done().__await__()
        return self._delivery.result(0)

    async def _wait_until_done(self) -> None:
        loop = asyncio.get_running_loop()
        done_future = loop.create_future()

        def resolve_on_loop() -> None:
            if not done_future.done():
                done_future.set_result(None)

        self._delivery.add_done_callback(lambda _: loop.call_soon_threadsafe(resolve_on_loop))
        await done_future


class AsyncProducer:
    """As :class:`smq.Producer`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __repr__(self) -> str:
        return _async_repr(self._producer)

    @overload
    async def send(
        self,
        value: bytes | Mapping[str, object] | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: Any = None,
    ) -> AsyncDelivery[Receipt]: ...

    @overload
    async def send(self, value: ArrowStream | ArrowArray, key: str | None = None) -> AsyncDelivery[TableReceipt]: ...

    async def send(
        self, value: Any, key: Any = None, headers: Headers | None = None, timestamp: Any = None
    ) -> AsyncDelivery[Any]:
        """As :meth:`smq.Producer.send`. Waits only while ``max_in_flight`` bytes have no outcome yet."""
        send = self._producer.send
        if is_table_like(value) or self._producer.would_block(value, key, headers):
            return await _delivery_of(send, value, key, headers, timestamp)
        return AsyncDelivery(send(value, key, headers, timestamp))

    async def send_many(
        self, values: Sequence[Any], keys: Sequence[bytes | None] | None = None
    ) -> AsyncDelivery[TableReceipt]:
        """As :meth:`smq.Producer.send_many`."""
        return await _delivery_of(self._producer.send_many, values, keys)

    async def write(
        self, table: TableLike, key: Any = None, *, by_reference: bool | Literal["auto"] = False
    ) -> AsyncDelivery[TableReceipt]:
        """As :meth:`smq.Producer.write`."""
        return await _delivery_of(self._producer.write, table, key, by_reference=by_reference)

    async def publish_files(self, files: Sequence[Any], key: str | None = None) -> AsyncDelivery[FilesReceipt]:
        """As :meth:`smq.Producer.publish_files`."""
        return await _delivery_of(self._producer.publish_files, files, key)

    @property
    def closed(self) -> bool:
        """As :attr:`smq.Producer.closed`."""
        return self._producer.closed

    async def flush(self, timeout: float | None = None) -> None:
        """As :meth:`smq.Producer.flush`."""
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self) -> None:
        """As :meth:`smq.Producer.close`."""
        await asyncio.to_thread(self._producer.close)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await asyncio.to_thread(self._producer.__exit__, *raised)


async def _delivery_of(call: Callable[..., Delivery[R]], *arguments: Any, **options: Any) -> AsyncDelivery[R]:
    """Runs the call in a thread. The delivery in PartlySent can be awaited, too."""
    try:
        return AsyncDelivery(await asyncio.to_thread(call, *arguments, **options))
    except PartlySent as error:
        error.delivery = AsyncDelivery(error.delivery)
        raise


class _AsyncPolling(Generic[CONSUMER]):
    """What consumers of one and of several topics have in common."""

    def __init__(self, consumer: CONSUMER) -> None:
        self._consumer: CONSUMER = consumer
        self._thread = ThreadPoolExecutor(1, "smq-aio-consumer")
        self._polling: asyncio.Future[Batch | None] | None = None

    def __repr__(self) -> str:
        return _async_repr(self._consumer)

    async def poll(self, timeout: float | None = None, max_messages: int | None = None) -> Batch | None:
        """As :meth:`smq.Consumer.poll`."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            if self._polling is None:
                left = (
                    POLL_INTERVAL_SECONDS
                    if deadline is None
                    else min(POLL_INTERVAL_SECONDS, max(0.0, deadline - loop.time()))
                )
                self._polling = loop.run_in_executor(self._thread, self._consumer.poll, left, max_messages)
            polling = self._polling
            try:
                batch = await asyncio.shield(polling)
            except asyncio.CancelledError:
                # The thread cannot be cancelled. Its result is kept for the next poll.
                raise
            except BaseException:
                self._polling = None
                raise
            self._polling = None
            if batch is not None or (deadline is not None and loop.time() >= deadline):
                return batch

    @property
    def filer_error(self) -> StoreUnavailable | None:
        """As :attr:`smq.Consumer.filer_error`."""
        return self._consumer.filer_error

    @property
    def closed(self) -> bool:
        """As :attr:`smq.Consumer.closed`."""
        return self._consumer.closed

    def at_end(self) -> bool:
        """As :meth:`smq.Consumer.at_end`."""
        return self._consumer.at_end()

    async def close(self) -> None:
        """As :meth:`smq.Consumer.close`."""
        if self._polling is not None:  # a cancelled poll, whose thread learns that the consumer is closed
            self._polling.add_done_callback(lambda polled: polled.cancelled() or polled.exception())
        await asyncio.to_thread(self._consumer.close)
        self._thread.shutdown(wait=False)

    async def _seek(self, topic: str, call: Callable[[P], None], argument: P) -> None:
        """Runs the call in the thread that polls. A batch of the topic that a cancelled poll left is from before."""
        await asyncio.get_running_loop().run_in_executor(self._thread, call, argument)
        left = self._polling
        if left is not None and left.done() and left.exception() is None:
            batch = left.result()
            if batch is None or batch.topic == topic:
                self._polling = None

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self._batches()

    async def _batches(self) -> AsyncIterator[Batch]:
        while not self._consumer.closed:
            batch = await self.poll()
            if batch is not None:
                yield batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncConsumer(_AsyncPolling[Consumer]):
    """As :class:`smq.Consumer`. A cancelled poll loses no batch, because the next poll returns it."""

    def __init__(self, consumer: Consumer, among: AsyncTopicsConsumer | None = None) -> None:
        super().__init__(consumer)
        self._polled_by: _AsyncPolling[Any] = among if among is not None else self

    async def commit(self, positions: Mapping[str, int] | None = None) -> dict[str, int]:
        """As :meth:`smq.Consumer.commit`."""
        return await asyncio.to_thread(self._consumer.commit, positions)

    async def seek(self, positions: Mapping[str, int]) -> None:
        """As :meth:`smq.Consumer.seek`."""
        await self._polled_by._seek(self._consumer.topic, self._consumer.seek, positions)

    async def seek_to_time(self, at: datetime) -> None:
        """As :meth:`smq.Consumer.seek_to_time`."""
        await self._polled_by._seek(self._consumer.topic, self._consumer.seek_to_time, at)

    def pause(self, segments: Collection[str] | None = None) -> None:
        """As :meth:`smq.Consumer.pause`."""
        self._consumer.pause(segments)

    def resume(self, segments: Collection[str] | None = None) -> None:
        """As :meth:`smq.Consumer.resume`."""
        self._consumer.resume(segments)

    @property
    def topic(self) -> str:
        """As :attr:`smq.Consumer.topic`."""
        return self._consumer.topic

    @property
    def paused(self) -> frozenset[str]:
        """As :attr:`smq.Consumer.paused`."""
        return self._consumer.paused

    @property
    def positions(self) -> dict[str, int]:
        """As :attr:`smq.Consumer.positions`."""
        return self._consumer.positions

    @property
    def assignment(self) -> frozenset[str]:
        """As :attr:`smq.Consumer.assignment`."""
        return self._consumer.assignment


class AsyncTopicsConsumer(_AsyncPolling[TopicsConsumer]):
    """As :class:`smq.TopicsConsumer`. A cancelled poll loses no batch, because the next poll returns it."""

    def __getitem__(self, topic: str) -> AsyncConsumer:
        """As ``smq.TopicsConsumer[topic]``, for example to seek."""
        return AsyncConsumer(self._consumer[topic], among=self)

    async def commit(self) -> dict[str, dict[str, int]]:
        """As :meth:`smq.TopicsConsumer.commit`."""
        return await asyncio.to_thread(self._consumer.commit)

    @property
    def topics(self) -> frozenset[str]:
        """As :attr:`smq.TopicsConsumer.topics`."""
        return self._consumer.topics

    @property
    def positions(self) -> dict[str, dict[str, int]]:
        """As :attr:`smq.TopicsConsumer.positions`."""
        return self._consumer.positions


def _with_callbacks(options: ConsumerOptions) -> ConsumerOptions:
    """The same options, whose callbacks run on this event loop."""
    loop = asyncio.get_running_loop()
    return replace(
        options,
        on_assigned=_on_loop(loop, options.on_assigned),
        on_revoked=_on_loop(loop, options.on_revoked),
        on_segment_end=_on_loop(loop, options.on_segment_end),
    )


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., Any] | None) -> Callable[..., None] | None:
    """Calls it on the event loop, and waits for it in the calling thread."""
    if call is None:
        return None

    async def run(*arguments: object) -> None:
        result = call(*arguments)
        if inspect.isawaitable(result):
            await result

    return lambda *arguments: asyncio.run_coroutine_threadsafe(run(*arguments), loop).result()
