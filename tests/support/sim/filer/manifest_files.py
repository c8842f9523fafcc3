"""Manifests in the simulated store: the entries of simulated chunks, and the manifest that a chain really has."""

from __future__ import annotations

from typing import NamedTuple

from smq_core.manifests.segment_manifest import ManifestFile, SegmentManifest
from smq_core.model.entities import ChunkInfo
from smq_storage.catalog import paths
from smq_storage.tables.manifests import decode_manifest, encode_manifest
from support.sim.filer.chunk_chain import TOPIC, UID, StoredChunk, file_of


class StoredFile(NamedTuple):
    """What ``ChunkChain.stored`` returns, without a Parquet footer."""

    info: ChunkInfo
    path: str


def manifest_file(chunk: StoredFile, key: str | None) -> ManifestFile:
    """Stands in for ``smq_storage.tables.file_statistics.manifest_file``."""
    return file_of(chunk.info)


def name_in_store(name: str) -> str:
    """The simulated store's name of the manifest with this file name."""
    return f"doc/{paths.manifest(TOPIC, UID, name)}"


def encoded(manifest: SegmentManifest) -> bytes:
    return encode_manifest(manifest, paths.segment_folder(TOPIC, UID, manifest.segment))


def decoded(data: bytes, segment: str) -> SegmentManifest:
    """Raises CorruptDocument."""
    return decode_manifest(data, paths.segment_folder(TOPIC, UID, segment))


def manifest_of(segment: str, chain: list[StoredChunk]) -> SegmentManifest:
    """What the manifest of this sealed chain must list."""
    return SegmentManifest(segment, chain[-1].info.first, tuple(file_of(it.info) for it in chain[:-1]))
