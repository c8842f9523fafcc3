"""Publishes tables and files by reference: encodes them, uploads them, and hands the uploads to the producer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq.delivery import Delivery, FilesReceipt, TableReceipt
from smq.producing.delivery_state import TableDelivery
from smq.producing.encoding.batch_encoder import BatchEncoder, Table
from smq.producing.encoding.keys import KeylessPartitioner
from smq.producing.uploads import upload_encoder
from smq.producing.uploads.parquet_files import ParquetSource, Source
from smq.producing.uploads.upload_delivery import FilesDelivery, UploadDeliveryState
from smq.producing.uploads.upload_encoder import EncodedUpload, UploadEncoder, split_into_uploads
from smq.producing.uploads.upload_targets import DirectUploads
from smq.producing.uploads.uploaded_rows import UploadedFile
from smq.producing.uploads.uploader import Uploader
from smq.transport.topic_view import TopicView

log = logging.getLogger(__name__)

T = TypeVar("T")
Parts = Iterable[tuple[T, pa.Table, str | None]]
"""Checked parts of tables, each with the caller's tag and the name of its key column."""


class ReferencePublisher:
    """Belongs to one producer. Safe from many threads.

    ``encoder`` returns the encoder for the newest schema version, and ``submit`` puts an upload into the send queues.
    The states of deliveries share ``lock``.
    """

    def __init__(
        self,
        view: TopicView,
        producer: str,
        epoch: int,
        *,
        keyless: KeylessPartitioner,
        batch_bytes: int,
        timeout: float,
        lock: threading.Lock,
        encoder: Callable[[], BatchEncoder],
        submit: Callable[[UploadedFile, UploadDeliveryState], None],
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
        self._uploader_lock = threading.Lock()
        self._uploader: Uploader | None = None

    def publish_table(self, table: Table, key: object) -> Delivery[TableReceipt]:
        """As :meth:`smq.Producer.write`."""

        def parts(encoder: BatchEncoder) -> Parts[None]:
            converted, key_column = encoder.check(table, key)
            return ((None, part, key_column) for part in split_into_uploads(converted, upload_encoder.UPLOAD_BYTES))

        uploads = self._upload(parts)
        states = [UploadDeliveryState(file.index, order, self._lock) for _, order, file in uploads]
        self._submit_all([file for _, _, file in uploads], states)
        return TableDelivery(states)

    def publish_files(self, files: Sequence[Source], key: str | None) -> Delivery[FilesReceipt]:
        """As :meth:`smq.Producer.publish_files`."""
        sources = ParquetSource.of_all(files)

        def parts(encoder: BatchEncoder) -> Parts[int]:
            for source in sources:
                source.check(encoder, key)
            return _read(sources, encoder, key)

        uploads = self._upload(parts, keep_order=False)
        states = [UploadDeliveryState(file.index, None, self._lock) for _, _, file in uploads]
        self._submit_all([file for _, _, file in uploads], states)
        return FilesDelivery([source.name for source in sources], [number for number, _, _ in uploads], states)

    def _upload(
        self, parts: Callable[[BatchEncoder], Parts[T]], *, keep_order: bool = True
    ) -> list[tuple[T, npt.NDArray[np.uint32] | None, UploadedFile]]:
        """Uploads all parts. Begins again if the topic's schema changes meanwhile, because a file keeps its columns."""
        uploader = self._open_uploader()
        while True:
            encoder = self._encoder()
            uploads = [
                (tag, encoded.order if keep_order else None, file)
                for tag, encoded, file in uploader.upload_all(self._encode(parts(encoder), encoder))
            ]
            if encoder is self._encoder():
                return uploads
            log.info("the schema of %s changed, so the rows are uploaded again", self._view.name)

    def _encode(self, parts: Parts[T], encoder: BatchEncoder) -> Iterator[tuple[T, EncodedUpload]]:
        encoding = UploadEncoder(encoder, self._keyless, self._producer, self._epoch, self._batch_bytes)
        for tag, part, key_column in parts:
            yield tag, encoding.encode(part, key_column)

    def _submit_all(self, files: Sequence[UploadedFile], states: Sequence[UploadDeliveryState]) -> None:
        for file, state in zip(files, states, strict=True):
            self._submit(file, state)

    def _open_uploader(self) -> Uploader:
        with self._uploader_lock:
            if self._uploader is None:
                store, uid = self._view.open_upload_store(), self._view.snapshot.topic.uid
                target = DirectUploads(store, uid, self._producer, self._epoch)
                self._uploader = Uploader(target, self._timeout)
            return self._uploader


def _read(sources: Sequence[ParquetSource], encoder: BatchEncoder, key: str | None) -> Parts[int]:
    for number, source in enumerate(sources):
        for part, key_column in source.read(encoder, key, upload_encoder.UPLOAD_BYTES):
            yield number, part, key_column
