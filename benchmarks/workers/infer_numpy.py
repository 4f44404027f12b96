"""A 64x64 tanh policy network and one categorical sample alone, in numpy: the least that acting can cost in Python."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.worker import arguments, rate, report

HIDDEN = 64


def main() -> None:
    """Measures rows of observations a second."""
    asked = arguments()
    rng = np.random.default_rng(1)
    widths = [asked["inputs"], HIDDEN, HIDDEN, asked["outputs"]]
    shapes = itertools.pairwise(widths)
    layers = [(rng.normal(0, 0.3, shape).astype(np.float32), np.zeros(shape[1], np.float32)) for shape in shapes]
    observations = rng.normal(size=(asked["envs"], asked["inputs"])).astype(np.float32)
    noise = rng.gumbel(size=(asked["envs"], asked["outputs"])).astype(np.float32)

    def act() -> int:
        hidden = observations
        for weight, bias in layers[:-1]:
            hidden = hidden @ weight
            hidden += bias
            np.tanh(hidden, out=hidden)
        weight, bias = layers[-1]
        return len((hidden @ weight + bias + noise).argmax(axis=1))

    figure, details = rate(lambda: sum(act() for _ in range(16)), asked["seconds"])
    report(figure, **details)


if __name__ == "__main__":
    main()
