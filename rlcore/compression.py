"""LZ4 for whole columns, with the bytes kept out of band.

A packed column is a flat uint8 array, so that Ray's object store (pickle protocol 5) moves it without a copy and
nothing is turned into text. Whether a column is worth compressing is decided from three small windows of it: random
floats stay raw, images and sparse masks shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import lz4.block
import numpy as np

from rlcore.sample_batch import MultiAgentBatch, SampleBatch

Mode = Literal["auto", "none", "lz4"]

WINDOW_BYTES = 16 * 1024
SMALLEST_BYTES = 4 * 1024
WORTHWHILE_RATIO = 1.3
# One LZ4 block holds less than 2 GiB; large columns become several.
BLOCK_BYTES = 1 << 30


@dataclass(frozen=True)
class PackedColumn:
    """One column as bytes.

    Attributes:
        dtype: numpy's name of the element type, byte order included.
        shape: the column's shape.
        codec: how `blocks` are encoded.
        blocks: uint8 arrays; one for "raw".
    """

    dtype: str
    shape: tuple[int, ...]
    codec: Literal["raw", "lz4"]
    blocks: list[np.ndarray]

    @property
    def size_bytes(self) -> int:
        """Bytes as packed."""
        return sum(block.nbytes for block in self.blocks)


@dataclass(frozen=True)
class PackedBatch:
    """A MultiAgentBatch with packed columns; `unpack` gives the batch back, bit for bit."""

    policies: dict[str, dict[str, PackedColumn]]
    versions: dict[str, int]
    time_major: dict[str, bool]
    count: int

    @property
    def size_bytes(self) -> int:
        """Bytes as packed."""
        return sum(column.size_bytes for columns in self.policies.values() for column in columns.values())


def pack(batch: MultiAgentBatch, mode: Mode = "auto") -> MultiAgentBatch | PackedBatch:
    """Packs every column: "none" returns the batch itself, "auto" decides per column, "lz4" compresses all."""
    if mode == "none":
        return batch
    packed = PackedBatch(
        policies={p: {n: pack_column(c, mode) for n, c in b.items()} for p, b in batch.policy_batches.items()},
        versions={p: b.policy_version for p, b in batch.policy_batches.items()},
        time_major={p: b.time_major for p, b in batch.policy_batches.items()},
        count=batch.count,
    )
    codecs = {column.codec for columns in packed.policies.values() for column in columns.values()}
    return packed if "lz4" in codecs else batch


def unpack(batch: MultiAgentBatch | PackedBatch) -> MultiAgentBatch:
    """The batch that `pack` was given; an unpacked one passes through."""
    if isinstance(batch, MultiAgentBatch):
        return batch
    policies = {
        p: SampleBatch(
            {n: unpack_column(c) for n, c in columns.items()},
            policy_version=batch.versions[p],
            time_major=batch.time_major[p],
        )
        for p, columns in batch.policies.items()
    }
    return MultiAgentBatch(policies, batch.count)


def pack_column(column: np.ndarray, mode: Mode = "auto") -> PackedColumn:
    """One array as a PackedColumn."""
    raw = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
    if mode == "none" or raw.nbytes == 0 or (mode == "auto" and sampled_ratio(raw) < WORTHWHILE_RATIO):
        return PackedColumn(column.dtype.str, column.shape, "raw", [raw])
    blocks = [np.frombuffer(lz4.block.compress(part, store_size=False), np.uint8) for part in _parts(raw)]
    return PackedColumn(column.dtype.str, column.shape, "lz4", blocks)


def unpack_column(packed: PackedColumn) -> np.ndarray:
    """The array that was packed.

    Raises:
        ValueError: the bytes do not decode to the column's size.
    """
    dtype = np.dtype(packed.dtype)
    if packed.codec == "raw":
        return packed.blocks[0].view(dtype).reshape(packed.shape)
    size = int(np.prod(packed.shape)) * dtype.itemsize
    out = np.empty(size, np.uint8)
    for target, block in zip(_parts(out), packed.blocks, strict=True):
        try:
            decoded = lz4.block.decompress(block, uncompressed_size=target.nbytes)
        except lz4.block.LZ4BlockError as error:
            raise ValueError(f"LZ4 block does not decode to {target.nbytes} bytes: {error}") from error
        if len(decoded) != target.nbytes:
            raise ValueError(f"LZ4 block holds {len(decoded)} bytes where {target.nbytes} were packed")
        if target.nbytes == size:
            # The usual case, one block: a read-only view of the decoded bytes spares a copy.
            return np.frombuffer(decoded, dtype).reshape(packed.shape)
        target[:] = np.frombuffer(decoded, np.uint8)
    return out.view(dtype).reshape(packed.shape)


def sampled_ratio(raw: np.ndarray) -> float:
    """Raw bytes / compressed bytes of three windows of a uint8 array; 1.0 for what is too small to matter."""
    if raw.nbytes < SMALLEST_BYTES:
        return 1.0
    starts = {0, max(0, raw.nbytes // 2 - WINDOW_BYTES // 2), max(0, raw.nbytes - WINDOW_BYTES)}
    windows = [raw[start : start + WINDOW_BYTES] for start in starts]
    compressed = sum(len(lz4.block.compress(window, store_size=False)) for window in windows)
    return sum(window.nbytes for window in windows) / compressed


def _parts(raw: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, raw.nbytes, BLOCK_BYTES):
        yield raw[start : start + BLOCK_BYTES]
