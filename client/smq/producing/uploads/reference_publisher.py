"""Publishes tables and files by reference: encodes them, uploads them, and hands the uploads to the producer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from smq.delivery import Delivery, FilesReceipt, TableReceipt
from smq.lock_order import ClientLock
from smq.producing.delivery_state import TableDelivery
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.frames import Table, TableLike
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.uploads import upload_encoder
from smq.producing.uploads.parquet_files import ParquetSource, Source
from smq.producing.uploads.upload_delivery import FilesDelivery, UploadDeliveryState
from smq.producing.uploads.upload_encoder import EncodedUpload, UploadEncoder, split_into_uploads
from smq.producing.uploads.upload_targets import open_upload_target
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq.producing.uploads.uploader import Uploader, UploadTask
from smq.transport.topic_view import TopicView
from smq_core.errors import InvalidRequest
from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)

T = TypeVar("T")
Tasks = Iterable[UploadTask[T]]


# ``by_reference="auto"`` uploads a table of this size or more.
AUTO_BYTES = 64 << 20


def goes_by_reference(table: Table, by_reference: bool | str) -> bool:
    """What ``by_reference`` of :meth:`smq.Producer.write` means for this table. Raises InvalidRequest."""
    if by_reference == "auto":
        return getattr(table, "nbytes", 0) >= AUTO_BYTES
    if not isinstance(by_reference, bool):
        raise InvalidRequest(f"by_reference must be True, False or 'auto', not {by_reference!r}")
    return by_reference


class ReferencePublisher:
    """Belongs to one producer, or to the atomic publishes of one client. Safe from many threads.

    ``encoder`` returns the encoder for the newest schema version, and ``submit`` puts uploads into the send queues:
    all of them, or none if it raises Overloaded.
    The states of deliveries share ``lock``.
    """

    def __init__(
        self,
        *,
        view: TopicView,
        producer: str,
        epoch: int,
        keyless: KeylessPartitioner,
        batch_bytes: int,
        timeout: float,
        lock: threading.Lock,
        encoder: Callable[[], BatchEncoder],
        submit: Callable[[Sequence[UploadedFile], Sequence[UploadDeliveryState]], None],
    ) -> None:
        self._view = view
        self._producer = producer
        self._epoch = epoch
        self._keyless = keyless
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self._lock = lock
        self._encoder = encoder
        self._submit = submit
        self._uploader_lock = make_lock(ClientLock.UPLOADS)
        self._uploader: Uploader | None = None

    def publish_table(self, table: Table, key: object) -> Delivery[TableReceipt]:
        """As :meth:`smq.Producer.write`."""
        uploads = self._upload(self._tasks_of_table(table, key))
        states = [UploadDeliveryState(file.index, order, self._lock) for _, order, file in uploads]
        self._submit([file for _, _, file in uploads], states)
        return TableDelivery(states)

    def publish_files(self, files: Sequence[Source], key: str | None) -> Delivery[FilesReceipt]:
        """As :meth:`smq.Producer.publish_files`."""
        sources = ParquetSource.of_all(files, self._view.store.open_url)
        uploads = self._upload(self._tasks_of_files(sources, key))
        states = [UploadDeliveryState(file.index, None, self._lock) for _, _, file in uploads]
        self._submit([file for _, _, file in uploads], states)
        return FilesDelivery([source.name for source in sources], [number for number, _, _ in uploads], states)

    def upload_table(self, table: TableLike, key: object) -> list[UploadedFile]:
        """Uploads the rows, and publishes nothing. Raises what :meth:`publish_table` raises."""
        return [file for _, _, file in self._upload(self._tasks_of_table(self._encoder().to_table(table), key))]

    def upload_files(self, files: Sequence[Source], key: str | None) -> list[UploadedFile]:
        """Uploads the files' rows, and publishes nothing. Raises what :meth:`publish_files` raises."""
        sources = ParquetSource.of_all(files, self._view.store.open_url)
        return [file for _, _, file in self._upload(self._tasks_of_files(sources, key))]

    def _tasks_of_table(self, table: Table, key: object) -> Callable[[BatchEncoder], Tasks[None]]:
        def tasks(encoder: BatchEncoder) -> Tasks[None]:
            converted, key_column = encoder.check(table, key)
            encoding = self._upload_encoder(encoder)
            parts = split_into_uploads(converted, upload_encoder.UPLOAD_BYTES)
            return (UploadTask(None, part.nbytes, partial(encoding.encode, part, key_column)) for part in parts)

        return tasks

    def _tasks_of_files(
        self, sources: Sequence[ParquetSource], key: str | None
    ) -> Callable[[BatchEncoder], Tasks[int]]:
        def tasks(encoder: BatchEncoder) -> Tasks[int]:
            for source in sources:
                source.check(encoder, key)
            return self._tasks_of(sources, encoder, key)

        return tasks

    def _upload(
        self, tasks: Callable[[BatchEncoder], Tasks[T]]
    ) -> list[tuple[T, npt.NDArray[np.uint32] | None, UploadedFile]]:
        """Uploads all files. Begins again if the topic's schema changes meanwhile, because a file keeps its columns."""
        uploader = self._open_uploader()
        while True:
            encoder = self._encoder()
            uploads = list(uploader.upload_all(tasks(encoder)))
            if encoder is self._encoder():
                return uploads
            log.info("the schema of %s changed, so the rows are uploaded again", self._view.name)

    def _tasks_of(self, sources: Sequence[ParquetSource], encoder: BatchEncoder, key: str | None) -> Tasks[int]:
        encoding = self._upload_encoder(encoder)
        for number, source in enumerate(sources):
            finished = source.read_finished(encoder, key)
            if finished is not None:
                yield UploadTask(number, finished.data.size, partial(_identity, finished))
                continue
            for part, key_column in source.read(encoder, key, upload_encoder.UPLOAD_BYTES):
                yield UploadTask(number, part.nbytes, partial(encoding.encode, part, key_column, keep_order=False))

    def _upload_encoder(self, encoder: BatchEncoder) -> UploadEncoder:
        return UploadEncoder(
            encoder=encoder,
            keyless=self._keyless,
            producer=self._producer,
            epoch=self._epoch,
            batch_bytes=self._batch_bytes,
        )

    def _open_uploader(self) -> Uploader:
        with self._uploader_lock:
            if self._uploader is None:
                target = open_upload_target(self._view, self._producer, self._epoch)
                self._uploader = Uploader(target, self._timeout)
            return self._uploader


def _identity(finished: EncodedUpload) -> EncodedUpload:
    return finished
