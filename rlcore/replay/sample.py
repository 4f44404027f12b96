"""What an evaluator sends to replay: rows of each policy, and their images apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlcore.compression import Mode, PackedBatch, pack, unpack
from rlcore.replay.frames import FrameBlock, split_frames
from rlcore.replay.rows import ReplayRows
from rlcore.sample_batch import MultiAgentBatch


@dataclass(frozen=True)
class ReplaySample:
    """One sample on its way to replay.

    Attributes:
        batch: rows of each policy, possibly packed.
        frames: policy id -> the images of its rows, where they are kept apart.
    """

    batch: MultiAgentBatch | PackedBatch
    frames: dict[str, FrameBlock]

    @property
    def size_bytes(self) -> int:
        """Bytes as it travels."""
        return self.batch.size_bytes + sum(block.size_bytes for block in self.frames.values())

    def rows(self) -> dict[str, ReplayRows]:
        """Policy id -> its rows."""
        batches = unpack(self.batch).policy_batches
        return {p: ReplayRows(batch, self.frames.get(p)) for p, batch in batches.items()}


def split_sample(batch: MultiAgentBatch, split: Iterable[str], mode: Mode) -> ReplaySample:
    """A batch of rows as a `ReplaySample`; of the policies in `split` each image is kept once."""
    batches, frames = dict(batch.policy_batches), {}
    for policy_id in split:
        if batches[policy_id].time_major or not batches[policy_id].size:
            continue
        batches[policy_id], frames[policy_id] = split_frames(batches[policy_id])
    return ReplaySample(pack(MultiAgentBatch(batches, batch.count), mode), frames)
