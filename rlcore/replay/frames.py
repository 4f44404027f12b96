"""Images of rows, each kept once and compressed.

A row of stacked frames repeats most of what its neighbours hold: four frames now, four after the step, three of them
the same. Here an image is its planes (one channel each, a frame of a gray stack), every distinct plane of a sample is
kept once, and a row holds the numbers of its planes. Planes are told apart by their bytes, so ends of episodes,
autoreset rows and padded first stacks need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym
import lz4.block
import numpy as np

from rlcore.sample_batch import NEXT_OBSERVATIONS, OBSERVATIONS, SampleBatch

PLANES, NEXT_PLANES = "planes", "next_planes"
PLANES_OF = {OBSERVATIONS: PLANES, NEXT_OBSERVATIONS: NEXT_PLANES}
SMALLEST_PLANE_BYTES = 1024


@dataclass(frozen=True)
class FrameBlock:
    """The distinct planes of one sample.

    Attributes:
        data: uint8 [bytes], LZ4 blocks one after the other.
        offsets: int64 [F + 1], where each begins.
        shape: of one plane, (height, width).
    """

    data: np.ndarray
    offsets: np.ndarray
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes as kept."""
        return self.data.nbytes + self.offsets.nbytes

    def plane(self, number: int) -> np.ndarray:
        """One plane, uint8 [height, width]."""
        packed = self.data[self.offsets[number] : self.offsets[number + 1]]
        raw = lz4.block.decompress(packed, uncompressed_size=self.shape[0] * self.shape[1])
        return np.frombuffer(raw, np.uint8).reshape(self.shape)


def worth_splitting(space: gym.spaces.Box) -> bool:
    """Whether observations are 8-bit images large enough to be kept plane by plane."""
    return space.dtype == np.uint8 and len(space.shape) == 3 and int(np.prod(space.shape[1:])) >= SMALLEST_PLANE_BYTES


def split_frames(batch: SampleBatch) -> tuple[SampleBatch, FrameBlock]:
    """Rows with plane numbers int32 [B, C] in place of images uint8 [B, C, height, width], and the planes."""
    numbers: dict[bytes, int] = {}
    columns: dict[str, np.ndarray] = {}
    shape: tuple[int, ...] = ()
    for name in (OBSERVATIONS, NEXT_OBSERVATIONS):
        images = batch[name]
        shape = images.shape[2:]
        planes = np.ascontiguousarray(images).reshape(-1, shape[0] * shape[1])
        found = [numbers.setdefault(plane.tobytes(), len(numbers)) for plane in planes]
        columns[PLANES_OF[name]] = np.array(found, np.int32).reshape(images.shape[:2])
    block = pack_planes(list(numbers), shape)
    return batch.without(OBSERVATIONS, NEXT_OBSERVATIONS).with_columns(**columns), block


def pack_planes(planes: Sequence[bytes], shape: tuple[int, ...]) -> FrameBlock:
    """Planes as a block, in their order."""
    packed = [lz4.block.compress(plane, store_size=False) for plane in planes]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in packed], dtype=np.int64)])
    return FrameBlock(np.frombuffer(b"".join(packed), np.uint8), offsets.astype(np.int64), shape)


def join_frames(batch: SampleBatch, blocks: Sequence[FrameBlock]) -> SampleBatch:
    """`split_frames` undone: rows with images; `blocks` holds each row's block."""
    now, after = batch[PLANES], batch[NEXT_PLANES]
    shape = blocks[0].shape
    images = {name: np.empty((*batch[column].shape, *shape), np.uint8) for name, column in PLANES_OF.items()}
    for row, block in enumerate(blocks):
        seen: dict[int, np.ndarray] = {}
        for name, numbers in ((OBSERVATIONS, now[row]), (NEXT_OBSERVATIONS, after[row])):
            for channel, number in enumerate(numbers.tolist()):
                if number not in seen:
                    seen[number] = block.plane(number)
                images[name][row, channel] = seen[number]
    return batch.without(PLANES, NEXT_PLANES).with_columns(**images)
