"""One preallocated train batch that fragments are written straight into; on a GPU machine in pinned memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rlcore.sample_batch import SampleBatch


class BatchBuffer:
    """Joins batches without allocating anew for each update.

    Args:
        pinned: allocate page-locked memory, from which a GPU copies without waiting.
    """

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._columns: dict[str, np.ndarray] = {}

    def fill(self, batches: Sequence[SampleBatch]) -> SampleBatch:
        """The batches joined in order, as views of this buffer: valid until the next `fill`.

        Raises:
            ValueError: batches with different columns.
        """
        first = batches[0]
        if any(set(batch) != set(first) or batch.time_major != first.time_major for batch in batches):
            raise ValueError(f"batches with different columns: {[sorted(batch) for batch in batches]}")
        total = sum(batch.size for batch in batches)
        columns = {name: self._write(name, [batch[name] for batch in batches], first, total) for name in first}
        version = min(batch.policy_version for batch in batches)
        return SampleBatch(columns, policy_version=version, time_major=first.time_major)

    def _write(self, name: str, parts: list[np.ndarray], like: SampleBatch, total: int) -> np.ndarray:
        axis = like.batch_axis(name)
        shape = list(parts[0].shape)
        shape[axis] = total
        target = self._room(name, tuple(shape), parts[0].dtype)
        return np.concatenate(parts, axis=axis, out=target)

    def _room(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size_bytes = int(np.prod(shape)) * dtype.itemsize
        memory = self._columns.get(name)
        if memory is None or memory.nbytes < size_bytes:
            # A quarter more than asked: batches differ a little in size, and must not allocate each time.
            tensor = torch.empty(size_bytes + size_bytes // 4, dtype=torch.uint8, pin_memory=self._pinned)
            memory = self._columns[name] = tensor.numpy()
        return memory[:size_bytes].view(dtype).reshape(shape)
