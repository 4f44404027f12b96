"""Fills replay with transitions of Pong and draws from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.worker import arguments, rate, report
from benchmarks.workers.jobs import evaluator, job
from benchmarks.workers.pack_pong import PONG, SAMPLES_BEFORE
from rlcore.replay import ReplayRows, UniformReplay
from rlcore.replay.frames import split_frames
from rlcore.sample_batch import DEFAULT_POLICY, SampleBatch

SAMPLES = 8
DRAWN = 512


def main() -> None:
    """Measures transitions a second."""
    asked = arguments()
    ours = evaluator(job(PONG, algorithm="DQN", config={}), envs=16, fragment=32, threads=asked["threads"])
    samples = [ours.sample().policy_batches[DEFAULT_POLICY] for _ in range(SAMPLES_BEFORE + SAMPLES)][SAMPLES_BEFORE:]
    ours.close()
    capacity = sum(sample.size for sample in samples)
    once_kept, stacked = UniformReplay(capacity, seed=0), UniformReplay(capacity, seed=0)
    for sample in samples:
        once_kept.add(ReplayRows(*split_frames(sample)))
        stacked.add(ReplayRows(sample))
    work: dict[str, tuple[int, Callable[[], Any]]] = {
        "split": (samples[0].size, lambda: split_frames(samples[0])),
        "draw": (DRAWN, lambda: once_kept.sample(DRAWN)),
        "stacked": (DRAWN, lambda: stacked.sample(DRAWN)),
    }
    rows, call = work[asked["what"]]

    def once() -> float:
        call()
        return float(rows)

    figure, details = rate(once, asked["seconds"])
    raw_bytes = SampleBatch.concat(samples).size_bytes
    sizes = {"transitions": capacity, "raw_bytes": raw_bytes, "replay_bytes": once_kept.size_bytes}
    report(figure, **details, **sizes, times_smaller=raw_bytes / once_kept.size_bytes)


if __name__ == "__main__":
    main()
