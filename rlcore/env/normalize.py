"""Observations with mean 0 and deviation 1, by statistics that many evaluators gather together.

Statistics in use stay constant between two synchronizations, so that sampling is fast and can be repeated:

    filtered = observation_filter(observations)          # each timestep
    observation_filter.observe(fragment, valid)          # once per fragment [T, N, ...], gathers only
    master.merge([e.take_delta() for e in evaluators])   # in evaluator order: the same numbers every time
    evaluator.set_state(master.get_state())              # from here on the new statistics apply
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Keeps a feature that never changed from being divided by zero.
_VARIANCE_FLOOR = 1e-8

Moments = dict[str, np.ndarray]


class MeanStdFilter:
    """Running mean and variance of observations, merged exactly in float64 (Chan, Golub, LeVeque 1983).

    Args:
        shape: of one observation.
        clip: filtered values lie in -clip .. clip.
    """

    def __init__(self, shape: tuple[int, ...], *, clip: float = 10.0) -> None:
        self.shape = tuple(shape)
        self.clip = np.float32(clip)
        self._total = _zero(self.shape)
        self._delta = _zero(self.shape)
        self._refresh()

    @property
    def count(self) -> float:
        """Observations behind the statistics in use."""
        return float(self._total["count"][0])

    @property
    def mean(self) -> np.ndarray:
        """Mean in use, float64 `shape`."""
        return self._total["mean"]

    @property
    def std(self) -> np.ndarray:
        """Standard deviation in use (population), float64 `shape`; 1 before two observations were seen."""
        std: np.ndarray = 1.0 / self._inverse_std()
        return std

    def __call__(self, observations: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Filter observations `[..., *shape]` of any dtype to float32, into `out` where given."""
        filtered: np.ndarray = np.subtract(observations, self._mean32, out=out, dtype=np.float32)
        np.multiply(filtered, self._scale32, out=filtered)
        np.minimum(filtered, self.clip, out=filtered)
        np.maximum(filtered, -self.clip, out=filtered)
        return filtered

    def observe(self, observations: np.ndarray, valid: np.ndarray | None = None) -> None:
        """Gather unfiltered observations `[..., *shape]`; `valid` `[...]` (bool) leaves rows out.

        The statistics in use do not change before `merge` or `set_state`.
        """
        rows = observations.reshape(-1, *self.shape)
        if valid is not None:
            rows = rows[valid.reshape(-1)]
        if len(rows):
            mean = rows.mean(axis=0, dtype=np.float64)
            squares = np.square(rows - mean).sum(axis=0)
            self._delta = _merged(self._delta, {"count": np.array([float(len(rows))]), "mean": mean, "m2": squares})

    def take_delta(self) -> Moments:
        """What `observe` gathered since the last call: count, mean and sum of squared deviations, float64."""
        taken, self._delta = self._delta, _zero(self.shape)
        return taken

    def merge(self, deltas: Sequence[Moments]) -> None:
        """Add deltas to the statistics in use, in the order given (which decides the last bits)."""
        for delta in deltas:
            self._total = _merged(self._total, delta)
        self._refresh()

    def get_state(self) -> dict[str, np.ndarray]:
        """Statistics in use and those gathered since, float64 arrays."""
        gathered = {f"delta_{key}": value.copy() for key, value in self._delta.items()}
        return {**{key: value.copy() for key, value in self._total.items()}, **gathered}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state` of a filter of the same shape."""
        self._total = {key: np.array(state[key], np.float64) for key in ("count", "mean", "m2")}
        self._delta = {key: np.array(state[f"delta_{key}"], np.float64) for key in ("count", "mean", "m2")}
        self._refresh()

    def _inverse_std(self) -> np.ndarray:
        if self.count < 2:
            return np.ones(self.shape)
        inverse: np.ndarray = 1.0 / np.sqrt(self._total["m2"] / self.count + _VARIANCE_FLOOR)
        return inverse

    def _refresh(self) -> None:
        self._mean32 = self._total["mean"].astype(np.float32)
        self._scale32 = self._inverse_std().astype(np.float32)


def _zero(shape: tuple[int, ...]) -> Moments:
    return {"count": np.zeros(1), "mean": np.zeros(shape), "m2": np.zeros(shape)}


def _merged(first: Moments, second: Moments) -> Moments:
    """Moments of two samples together."""
    count = first["count"] + second["count"]
    if count[0] == 0:
        return first
    difference = second["mean"] - first["mean"]
    share = float(second["count"][0] / count[0])
    return {
        "count": count,
        "mean": first["mean"] + difference * share,
        "m2": first["m2"] + second["m2"] + np.square(difference) * (float(first["count"][0]) * share),
    }
