"""Packs and unpacks a batch that was sampled from Pong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.worker import arguments, rate, report
from benchmarks.workers.jobs import evaluator, job
from rlcore.compression import pack, unpack
from rlcore.sample_batch import MultiAgentBatch

PONG = {"id": "ALE/Pong-v5", "wrappers": "atari"}
# Samples thrown away first: games that just began look all alike.
SAMPLES_BEFORE = 3


def main() -> None:
    """Measures 10^6 bytes of unpacked batch a second."""
    asked = arguments()
    ours = evaluator(job(PONG), envs=16, fragment=32, threads=asked["threads"])
    batch = [ours.sample() for _ in range(SAMPLES_BEFORE + 1)][-1]
    ours.close()
    packed = pack(batch, "auto")
    work: dict[str, Callable[[], Any]] = {
        "pack": lambda: pack(batch, "auto"),
        "unpack": lambda: unpack(packed),
        "copy": lambda: [c.copy() for b in batch.policy_batches.values() for c in b.values()],
    }
    megabytes = raw_bytes(batch) / 1e6

    def once() -> float:
        work[asked["what"]]()
        return megabytes

    figure, details = rate(once, asked["seconds"])
    sizes = {"raw_bytes": raw_bytes(batch), "packed_bytes": packed.size_bytes}
    report(figure, **details, **sizes, compression_ratio=raw_bytes(batch) / packed.size_bytes)


def raw_bytes(batch: MultiAgentBatch) -> int:
    """Bytes of all columns, unpacked."""
    return sum(column.nbytes for b in batch.policy_batches.values() for column in b.values())


if __name__ == "__main__":
    main()
