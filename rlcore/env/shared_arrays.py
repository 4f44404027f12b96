"""Arrays that the evaluator and its worker processes both see, in memory without a name.

An anonymous memory file is handed down by its descriptor. Nothing has to be unlinked, so nothing can be left behind:
the kernel frees it with the last process that maps it, also after a kill. And it does not count against /dev/shm,
which is 64 MB in a Kubernetes pod.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass

import numpy as np

from rlcore.env.sync import StepBuffers

_ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape `[N, ...]` and dtype of one shared array."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes that the array takes, up to the next alignment boundary."""
        size = int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize
        return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """What one block holds for N sub-environments; plain data, sent to the workers."""

    observations: ArraySpec
    actions: ArraySpec
    mask_size: int

    @property
    def arrays(self) -> list[ArraySpec]:
        """All arrays in order: actions, then the fields of StepBuffers."""
        rows = self.observations.shape[0]
        flags = [ArraySpec((rows,), "bool")] * 3
        mask = ArraySpec((rows, self.mask_size), "bool")
        return [self.actions, self.observations, ArraySpec((rows,), "float32"), *flags, mask]

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole block."""
        return max(sum(array.size_bytes for array in self.arrays), mmap.PAGESIZE)


def create_memory_file() -> int:
    """Descriptor of an empty anonymous file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rlcore-env")
    with tempfile.TemporaryFile() as file:  # unlinked already, elsewhere than on Linux
        return os.dup(file.fileno())


def map_block(descriptor: int, spec: BlockSpec) -> tuple[np.ndarray, StepBuffers]:
    """Actions and step buffers over the file's memory, for all N rows; the memory lives as long as the arrays."""
    memory = mmap.mmap(descriptor, spec.size_bytes)
    views, offset = [], 0
    for array in spec.arrays:
        count = int(np.prod(array.shape, dtype=np.int64))
        views.append(np.frombuffer(memory, array.dtype, count, offset).reshape(array.shape))
        offset += array.size_bytes
    return views[0], StepBuffers(*views[1:])


def rows_of(buffers: StepBuffers, begin: int, end: int) -> StepBuffers:
    """Views of rows begin .. end-1."""
    return StepBuffers(
        buffers.observations[begin:end],
        buffers.rewards[begin:end],
        buffers.terminated[begin:end],
        buffers.truncated[begin:end],
        buffers.valid[begin:end],
        buffers.mask[begin:end],
    )
