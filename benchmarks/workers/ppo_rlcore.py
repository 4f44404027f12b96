"""PPO by `run_job`, with everything that a run writes: metrics, TensorBoard events, checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.figures import steady_rate
from benchmarks.worker import arguments, report
from benchmarks.workers.jobs import job
from benchmarks.workers.settings import SETTINGS
from rlcore.driver.run import RunOptions, run_job
from rlcore.metrics.result import IterationResult


class Clock:
    """A display that shows nothing and notes when each iteration ended."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def message(self, text: str) -> None:
        """Nobody reads it."""

    def start(self) -> None:
        """Nothing to draw."""

    def update(self, result: IterationResult) -> None:
        """Notes the time."""
        self.points.append((time.perf_counter(), result.timesteps))

    def stop(self) -> None:
        """Nothing to close."""


def main() -> None:
    """Measures timesteps a second from iteration to iteration."""
    asked = arguments()
    evaluators, timesteps = asked["evaluators"], asked["timesteps"]
    chosen = SETTINGS[asked["settings"]]
    last_rate = 0.0 if chosen.annealed else chosen.learning_rate
    manifest = job(
        {"id": "CartPole-v1"},
        timesteps=timesteps,
        config={
            "learningRate": chosen.learning_rate,
            "learningRateSchedule": [
                {"timesteps": 0, "value": chosen.learning_rate},
                {"timesteps": timesteps, "value": last_rate},
            ],
            "trainBatchSize": chosen.environments * chosen.steps,
            "fragmentLength": chosen.steps,
            "minibatchSize": chosen.minibatch,
            "numEpochs": chosen.epochs,
            "gamma": 0.99,
            "gaeLambda": 0.95,
            "clipRange": 0.2,
            "valueClipRange": chosen.value_clip,
            "entropyCoefficient": chosen.entropy,
            "valueLossCoefficient": 0.5,
            "maxGradientNorm": 0.5,
        },
        model={"hiddens": [64, 64], "activation": "tanh"},
        evaluators={
            "envsPerEvaluator": chosen.environments // max(1, evaluators),
            "pools": [{"name": "evaluators", "minReplicas": evaluators, "maxReplicas": max(1, evaluators)}],
        },
    )
    clock = Clock()
    run_job(manifest, RunOptions(root=Path("runs"), in_process=not evaluators), clock)
    report(steady_rate(clock.points), iterations=len(clock.points))


if __name__ == "__main__":
    main()
