"""Rows whose images are kept once, plane by plane; stacks are put together when they are drawn."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rlcore.replay.frames import FrameBlock, join_frames
from rlcore.replay.rows import ReplayRows, RowRing
from rlcore.replay.saved import load_columns, save_columns
from rlcore.sample_batch import SampleBatch

BLOCK = "frame_block"


class FrameRing(RowRing):
    """A `RowRing` of `split_frames`' rows; a sample's planes go when the last of its rows does."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._blocks: dict[int, FrameBlock] = {}
        self._last_rows: deque[tuple[int, int]] = deque()
        self._next_block = 0
        self._block_bytes = 0

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self._block_bytes

    def add(self, rows: ReplayRows) -> np.ndarray:
        if rows.frames is None:
            raise ValueError("rows that hold their images, for a replay buffer whose rows refer to theirs")
        block, self._next_block = self._next_block, self._next_block + 1
        owner = np.full(rows.batch.size, block, np.int64)
        numbers = super().add(ReplayRows(rows.batch.with_columns(**{BLOCK: owner})))
        if len(numbers):
            self._keep(block, rows.frames, int(numbers[-1]))
        self._forget()
        return numbers

    def take(self, numbers: np.ndarray) -> SampleBatch:
        batch = super().take(numbers)
        return join_frames(batch.without(BLOCK), [self._blocks[block] for block in batch[BLOCK].tolist()])

    def get_state(self, numbers: np.ndarray) -> dict[str, Any]:
        state = super().get_state(numbers)
        oldest = numbers[0] if len(numbers) else self.end
        kept = [(block, last) for block, last in self._last_rows if last >= oldest]
        blocks = [self._blocks[block] for block, _ in kept]
        columns = {
            "block": np.array([block for block, _ in kept], np.int64),
            "last_row": np.array([last for _, last in kept], np.int64),
            "planes": np.array([len(block.offsets) - 1 for block in blocks], np.int64),
        }
        sizes = [np.diff(block.offsets) for block in blocks]
        return {
            **state,
            "blocks": save_columns(columns),
            # Compressed already.
            "data": np.concatenate([block.data for block in blocks] or [np.empty(0, np.uint8)]),
            "sizes": np.concatenate(sizes or [np.empty(0, np.int64)]),
            "shape": list(blocks[0].shape) if blocks else [],
        }

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        numbers = super().set_state(state)
        columns = load_columns(state["blocks"])
        data, sizes = np.asarray(state["data"]), np.asarray(state["sizes"])
        plane = byte = 0
        for block, last, planes in zip(columns["block"], columns["last_row"], columns["planes"], strict=True):
            offsets = np.concatenate([[0], np.cumsum(sizes[plane : plane + planes])]).astype(np.int64)
            part = data[byte : byte + offsets[-1]].copy()
            self._keep(int(block), FrameBlock(part, offsets, tuple(state["shape"])), int(last))
            plane, byte = plane + planes, byte + int(offsets[-1])
            self._next_block = int(block) + 1
        self._forget()
        return numbers

    def _keep(self, block: int, frames: FrameBlock, last_row: int) -> None:
        self._blocks[block] = frames
        self._last_rows.append((block, last_row))
        self._block_bytes += frames.size_bytes

    def _forget(self) -> None:
        while self._last_rows and self._last_rows[0][1] < self.first:
            gone = self._blocks.pop(self._last_rows.popleft()[0])
            self._block_bytes -= gone.size_bytes
